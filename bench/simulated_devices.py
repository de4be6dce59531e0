"""The simulation against the pipeline itself: 1+1 to 2+2 devices whose phases sleep instead of computing.

Logical CPU devices share two cores, so that three devices that compute cannot be measured here; four that sleep can.
Everything else is real: the pipeline's threads and buffers, tensors on their devices, deep copies between them. Phase
times are measured alone, one after the other; the prediction knows nothing of the pipelined runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.report import Row
from bench.simulate import Phases, agreement, simulate

ROWS, BATCH_MB = 8, 1
JITTER = 0.2
CYCLE = 32
"""Batches after which the lengths repeat; every measurement is over whole cycles."""
DEVICES = 4
CASES = {"model the slower": (120.0, 180.0), "data the slower": (180.0, 120.0)}
"""Milliseconds of the process phase and of a step: long beside the time that waking a sleeper takes."""
FIXED_MS = 18.0
PLACEMENTS = ((1, 1), (1, 2), (2, 1), (2, 2))


class Sleepers:
    """Phases that take their time and leave the machine alone."""

    def __init__(self, process_ms: float, train_ms: float) -> None:
        import numpy as np

        self._process_ms, self._train_ms = process_ms, train_ms
        width = BATCH_MB * 250_000 // ROWS
        self._wave = np.zeros((ROWS, width), np.float32)
        self._factors = np.random.default_rng(0).normal(1.0, JITTER, CYCLE).clip(0.3, 2.0)
        self._factors /= self._factors.mean()
        self._replicas = ThreadPoolExecutor(DEVICES)

    def batch(self, number: int) -> dict[str, Any]:
        import numpy as np

        factor = self._factors[number % len(self._factors)]
        return {"wave": self._wave, "factor": np.full((ROWS, 1), factor, np.float32)}

    def process(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        time.sleep(self._process_ms * float(batch["factor"][0, 0]) / 1000)
        return {name: tf.constant(array) for name, array in batch.items()}

    def train(self, replicas: Sequence[Mapping[str, Any]]) -> None:
        """All replicas at once, each as long as its rows take, and what no number of replicas shortens."""
        list(self._replicas.map(self._replica, replicas))

    def _replica(self, tensors: Mapping[str, Any]) -> None:
        factor = float(tensors["factor"][0, 0])
        share = int(tensors["factor"].shape[0]) / ROWS
        time.sleep((FIXED_MS + (self._train_ms - FIXED_MS) * share) * factor / 1000)


class Source:
    """Endless batches."""

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers, self._next = sleepers, 0

    def __next__(self) -> Mapping[str, Any]:
        self._next += 1
        return self._sleepers.batch(self._next)

    def get_state(self) -> dict[str, int]:
        return {"position": self._next}

    def set_state(self, state: Mapping[str, int]) -> None:
        self._next = state["position"]


def check(*, rounds: int, quick: bool) -> tuple[Phases, list[Row]]:
    """Rows of predicted against measured steps a second, and the phase times of the first case.

    The phases are measured anew in every round, next to the runs that they predict.
    """
    _make_devices()
    rows, first = [], None
    for case, (process_ms, train_ms) in list(CASES.items())[: 1 if quick else None]:
        sleepers = Sleepers(process_ms, train_ms)
        predicted: dict[tuple[int, int], list[float]] = {placement: [] for placement in PLACEMENTS}
        measured: dict[tuple[int, int], list[float]] = {placement: [] for placement in PLACEMENTS}
        for _ in range(rounds):
            phases = measured_phases(sleepers)
            first = first or phases
            for placement in PLACEMENTS:
                predicted[placement].append(simulate(phases, *placement, buffer_size=8).steps_per_s)
                measured[placement].append(pipelined_steps_per_s(sleepers, *placement))
        for data, model in PLACEMENTS:
            rows.append(agreement(f"{data}+{model}, {case}", predicted[data, model], measured[data, model]))
    assert first is not None
    return first, rows


def _make_devices() -> None:
    from myxtts.runtime.backend import import_tensorflow

    tf = import_tensorflow()  # before anything else does, so that it is quiet
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * DEVICES
    )


def measured_phases(sleepers: Sleepers) -> Phases:
    """Each phase alone: processing, copying, a step with all rows and one with half of them."""
    import tensorflow as tf

    from myxtts.pipeline import split_rows
    from myxtts.pipeline.devices import TensorFlowDevices

    batches = [sleepers.batch(number) for number in range(CYCLE)]
    with tf.device("/CPU:0"):
        process_ms = _mean_ms(sleepers.process, batches)
        tensors = [sleepers.process(batch) for batch in batches[:8]]
    copying = TensorFlowDevices(deep_copy=True)
    transfer_ms = _mean_ms(lambda one: copying.copy([one], ["/CPU:1"]), tensors)
    whole_ms = _mean_ms(lambda one: sleepers.train([one]), batches)
    half_ms = _mean_ms(lambda one: sleepers.train(split_rows(one, 2)), batches)
    return Phases(
        process_ms=process_ms,
        train_ms=whole_ms,
        train_fixed_ms=max(0.0, 2 * half_ms - whole_ms),
        batch_mb=BATCH_MB,
        link_gb_s=BATCH_MB / max(transfer_ms, 1e-3),
        link_latency_ms=0.0,
        jitter=JITTER,
    )


def _mean_ms(run: Callable[[Any], object], batches: Sequence[Any]) -> float:
    run(batches[0])
    began = time.perf_counter()
    for batch in batches:
        run(batch)
    return 1000 * (time.perf_counter() - began) / len(batches)


def pipelined_steps_per_s(sleepers: Sleepers, data: int, model: int) -> float:
    """Steps a second of the real pipeline. It begins with an empty buffer: what a full one gives away is no speed."""
    from myxtts.pipeline import Pipeline, Producer, split_rows
    from myxtts.pipeline.devices import TensorFlowDevices

    pipeline = Pipeline(
        Source(sleepers),
        [Producer(sleepers.process, f"/CPU:{number}") for number in range(data)],
        model_devices=[f"/CPU:{data + number}" for number in range(model)],
        buffer_size=8,
        devices=TensorFlowDevices(deep_copy=True),
        split=split_rows if model > 1 else None,
    )
    with pipeline:
        for _ in range(6):
            sleepers.train(next(pipeline).replicas)
        began = time.perf_counter()
        for _ in range(CYCLE):
            sleepers.train(next(pipeline).replicas)
        return CYCLE / (time.perf_counter() - began)
