"""A codebook over two replicas stays one; what is wrong is an assertion."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.models.codebook import SHORTEST_MEMORY, Codebook


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    with strategy.scope():
        codebook = Codebook(8, 4)
        codebook.build()
    latents = np.random.default_rng(0).normal(size=(2, 12, 4)).astype(np.float32)

    def step(rows: Any, bypass: tf.Tensor) -> Any:
        def replica(rows: tf.Tensor) -> tf.Tensor:
            _, codes = codebook.quantise(rows)
            codebook.update(rows, codes, tf.ones(tf.shape(codes), tf.bool), bypass)
            return tf.reduce_sum(tf.one_hot(codes, 8), axis=[0, 1])

        return strategy.run(replica, (rows,))

    run_step = tf.function(step)
    for bypass in (True, False, False):
        rows = strategy.experimental_distribute_values_from_function(
            lambda context: latents[context.replica_id_in_sync_group][None]
        )
        before = codebook.counts_K.numpy()
        hits = sum(strategy.experimental_local_results(run_step(rows, tf.constant(bypass))))
        copies = [value.numpy() for value in strategy.experimental_local_results(codebook.vectors_KC.value)]
        assert len(copies) == 2, copies
        assert np.array_equal(*copies), copies
        if not bypass:
            expected = before + (hits - before) / SHORTEST_MEMORY
            np.testing.assert_allclose(codebook.counts_K.numpy(), expected, rtol=1e-5)
        else:
            offered = latents.reshape(-1, 4)
            assert all(np.any(np.all(np.isclose(offered, vector), axis=1)) for vector in copies[0])
