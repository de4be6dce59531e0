"""Copies to a model GPU that works, for `tests/gpu`: what they and the steps take, alone and together, as JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.pipeline.devices import Copied, TensorFlowDevices
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices

STEPS = 20
PRODUCTS = 40
"""Matrix products of a step."""
BATCH_MB = 8


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(side: str = "4096", simulated: str = "0") -> None:
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), find_inventory(int(simulated)))
    apply_plan(plan)
    data, model = plan.producer_device, plan.model.name
    devices = TensorFlowDevices(deep_copy=plan.simulated)
    with tf.device(data):
        batch = {"mel": tf.random.stateless_normal([8, BATCH_MB * 2**18 // 8], seed=[1, 2])}
    with tf.device(model):
        matrix = tf.random.stateless_normal([int(side), int(side)], seed=[3, 4]) / float(side)

    def products(x: tf.Tensor) -> tf.Tensor:
        for _ in range(PRODUCTS):
            x = tf.matmul(x, matrix)
        return tf.reduce_sum(x)

    step = tf.function(products, autograph=False)

    def loop() -> None:
        """Steps as training makes them: the host waits for a number of each before it gives out the next."""
        for _ in range(STEPS):
            with tf.device(model):
                float(step(matrix))

    def copy() -> Copied:
        return devices.copy([batch], [model])

    for warm_up in (loop, copy, copy):
        warm_up()
    loop_s, alone_s = seconds_of(loop), min(seconds_of(copy) for _ in range(5))
    training = threading.Thread(target=loop)
    began = time.perf_counter()
    training.start()
    time.sleep(loop_s / 5)
    took: list[tuple[float, float]] = []
    arrived: Any = None
    while training.is_alive() and len(took) < STEPS // 2:
        started = time.perf_counter()
        arrived = copy()
        took.append((time.perf_counter() - started, arrived.waited_s))
    training.join()
    print(
        json.dumps(
            {
                "loop_s": loop_s,
                "loop_beside_copies_s": time.perf_counter() - began,
                "copy_alone_s": alone_s,
                "copy_s": sorted(one for one, _ in took)[len(took) // 2],
                "copy_busy_s": sorted(one - waited for one, waited in took)[len(took) // 2],
                "copies": len(took),
                "equal": bool(np.array_equal(arrived.replicas[0]["mel"].numpy(), batch["mel"].numpy())),
            }
        )
    )
