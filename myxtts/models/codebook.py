"""Vector quantiser with a codebook that follows the data (exponential moving averages), for training from scratch.

Owns the code vectors, their running statistics, and the revival of codes that nothing chooses. It has no trainable
weights: `quantise` is pure, `update` assigns the non-trainable weights and is called once a step, in a replica context
under a strategy and outside any jitted function.

Shapes: B clips, N codes of a clip, K codebook entries, C width of an entry.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

SHORTEST_MEMORY = 100
"""Updates that a running average remembers; a large codebook remembers more, or each entry would follow the few latents
that chose it lately."""
CODES_PER_MEMORY = 16
"""A codebook remembers one update for every so many codes,"""
UPDATES_PER_MEMORY = 10
"""and of all its updates no more than one in so many, for at first everything moves."""
DEAD_SHARE = 0.1
"""A code is dead when its running count is below this share of the average; unused, it gets there in 230 updates of
the shortest memory."""
RECENT_UPDATES = 100
"""A code is in use when one of the last so many updates chose it."""
_EPSILON = 1e-5


class Codebook(keras.layers.Layer):  # type: ignore[misc]
    """K vectors of width C; the nearest wins."""

    def __init__(self, codes: int, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.codes = codes
        self.width = width

    def build(self, input_shape: Any = None) -> None:
        shape_KC = (self.codes, self.width)
        self.vectors_KC = self._state("vectors", shape_KC, keras.initializers.RandomNormal(stddev=1.0))
        self.counts_K = self._state("counts", (self.codes,), "ones")
        self.sums_KC = self._state("sums", shape_KC, "zeros")
        self.idle_K = self._state("idle", (self.codes,), keras.initializers.Constant(RECENT_UPDATES))
        self.updates = self._state("updates", (1,), "zeros")
        self.built = True

    def _state(self, name: str, shape: tuple[int, ...], initializer: Any) -> Any:
        # Every replica assigns the same value (the statistics are summed first), so any one of them will do.
        return self.add_weight(
            shape=shape,
            initializer=initializer,
            trainable=False,
            dtype="float32",
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )

    def quantise(self, latents_BNC: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest vectors, and their codes."""
        latents_BNC = tf.cast(latents_BNC, tf.float32)
        vectors_KC = tf.convert_to_tensor(self.vectors_KC)
        # |x - v|^2 without |x|^2, which no choice of v changes.
        distances_BNK = tf.reduce_sum(vectors_KC**2, axis=-1) - 2.0 * tf.einsum("bnc,kc->bnk", latents_BNC, vectors_KC)
        codes_BN = tf.argmin(distances_BNK, axis=-1, output_type=tf.int32)
        return tf.gather(vectors_KC, codes_BN), codes_BN

    def look_up(self, codes_BN: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.convert_to_tensor(self.vectors_KC), codes_BN)

    def distance(self, latents_BNC: tf.Tensor, codes_BN: tf.Tensor) -> tf.Tensor:
        """[B, N]: mean square between a latent and its code's vector, with a gradient for the latents alone."""
        vectors_BNC = tf.gather(tf.stop_gradient(tf.convert_to_tensor(self.vectors_KC)), codes_BN)
        return tf.reduce_mean((latents_BNC - vectors_BNC) ** 2, axis=-1)

    def update(self, latents_BNC: tf.Tensor, codes_BN: tf.Tensor, valid_BN: tf.Tensor, bypass: tf.Tensor) -> None:
        """One step of the moving averages; while the quantiser is bypassed, fill the codebook with the data instead."""
        latents_RC = tf.reshape(tf.cast(latents_BNC, tf.float32), [-1, self.width])
        codes_R, valid_R = tf.reshape(codes_BN, [-1]), tf.reshape(valid_BN, [-1])
        hits_RK = tf.one_hot(codes_R, self.codes) * tf.cast(valid_R, tf.float32)[:, None]
        seeds = self._seeds()
        offers_KC = _offers(latents_RC, valid_R, self.codes, seeds[0])
        rows = tf.reduce_sum(tf.cast(valid_R, tf.float32))
        hits_K, sums_KC, offers_KC, rows = _sum_over_replicas(
            tf.reduce_sum(hits_RK, axis=0), tf.matmul(hits_RK, latents_RC, transpose_a=True), offers_KC, rows
        )
        bypass, decay = tf.cast(bypass, tf.bool), self._decay()
        counts_K = self.counts_K * decay + hits_K * (1.0 - decay)
        sums_KC = self.sums_KC * decay + sums_KC * (1.0 - decay)
        total = tf.reduce_sum(counts_K)
        smooth_K = (counts_K + _EPSILON) / (total + self.codes * _EPSILON) * total

        average = total / self.codes
        wanting_K = bypass | (counts_K < DEAD_SHARE * average)
        # A batch has latents for as many as its rows; a lot says who is served first.
        turn_K = _rank(tf.random.stateless_uniform([self.codes], seeds[1]) + tf.where(wanting_K, 0.0, 1.0))
        replace_K = wanting_K & (turn_K < tf.cast(rows, tf.int32))
        # While bypassed the statistics say nothing: each entry stands for itself and for its share of a batch.
        kept_KC = tf.where(bypass, tf.convert_to_tensor(self.vectors_KC), sums_KC / smooth_K[:, None])
        vectors_KC = tf.where(replace_K[:, None], tf.gather(offers_KC, turn_K), kept_KC)
        counts_K = tf.where(bypass, rows / self.codes, tf.where(replace_K, average, counts_K))
        as_if_KC = vectors_KC * counts_K[:, None]
        self.vectors_KC.assign(vectors_KC)
        self.counts_K.assign(counts_K)
        self.sums_KC.assign(tf.where(bypass | replace_K[:, None], as_if_KC, sums_KC))
        self.idle_K.assign(tf.where(hits_K > 0, tf.zeros_like(hits_K), self.idle_K + 1.0))
        self.updates.assign(self.updates + 1.0)

    def usage(self) -> tf.Tensor:
        """Codebook utilisation: the share of the codes that were chosen in the last `RECENT_UPDATES` updates; a
        collapsed codebook is near 0."""
        return tf.reduce_mean(tf.cast(tf.convert_to_tensor(self.idle_K) < RECENT_UPDATES, tf.float32))

    def _decay(self) -> tf.Tensor:
        longest = max(SHORTEST_MEMORY, self.codes / CODES_PER_MEMORY)
        updates = tf.convert_to_tensor(self.updates)[0]
        return 1.0 - 1.0 / tf.clip_by_value(updates / UPDATES_PER_MEMORY, SHORTEST_MEMORY, longest)

    def _seeds(self) -> list[tf.Tensor]:
        # From the update counter, so that replicas draw alike and a resumed run draws on.
        step = tf.cast(tf.convert_to_tensor(self.updates)[0], tf.int32)
        return [tf.stack([step, 0]), tf.stack([step, 1])]


def _offers(latents_RC: tf.Tensor, valid_R: tf.Tensor, codes: int, seed: tf.Tensor) -> tf.Tensor:
    """A latent of this batch for each turn, all different as long as there are enough; this replica's share of them.

    Turn k is served by replica k modulo the number of replicas; the others give zeros, so that a sum joins them.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync if context is not None else 1
    replica = context.replica_id_in_sync_group if context is not None else 0
    draw_R = tf.random.stateless_uniform([tf.size(valid_R)], seed)
    order_R = tf.argsort(tf.where(valid_R, draw_R, 2.0))
    rows = tf.maximum(tf.reduce_sum(tf.cast(valid_R, tf.int32)), 1)
    turn_K = tf.range(codes)
    chosen_K = tf.gather(order_R, (turn_K // replicas) % rows)
    mine_K = tf.cast(tf.equal(turn_K % replicas, replica), tf.float32)
    return tf.gather(latents_RC, chosen_K) * mine_K[:, None]


def _rank(values: tf.Tensor) -> tf.Tensor:
    return tf.argsort(tf.argsort(values))


def _sum_over_replicas(*tensors: tf.Tensor) -> list[tf.Tensor]:
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return list(tensors)
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, list(tensors)))
