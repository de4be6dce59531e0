"""The model worker's end of data workers: asks them for batches by number and keeps a few on their way.

Data worker k of D has the batches p = k (mod D). A call carries all that is needed to answer it, so that a data worker
that was restarted answers it as its predecessor would have.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from myxtts.cluster.connecting import import_ray
from myxtts.errors import MyXTTSError
from myxtts.pipeline import BatchSize, Producer, Telemetry
from myxtts.pipeline.batches import HostBatch, Tensors
from myxtts.training.data_worker import ProducedBatch, StageSetup, as_tensors

AHEAD = 2
"""Calls to each data worker: one that it works on, and one that it finds when that is done."""


@dataclass(frozen=True)
class BatchCall:
    """What a data worker is asked for: one part of a batch of a stage."""

    number: int
    part: int
    parts: int
    stride: int
    stage: str
    """The same for all calls that have the same setup."""
    setup: list[Any]


@dataclass(frozen=True)
class ClusterDataWorkers:
    """The data workers of a run, for model worker `part` of `parts`."""

    actors: Sequence[Any]
    names: Sequence[str]
    part: int = 0
    parts: int = 1

    @contextmanager
    def begin(self, setup: StageSetup, model_devices: Sequence[str]) -> Iterator[StageBatches]:
        """Weights and alignments go to the object store once; data workers fetch them with their first batch."""
        batches = StageBatches(self, import_ray().put(setup), model_devices)
        try:
            yield batches
        finally:
            batches.close()


class StageBatches:
    """The producers of one stage (`myxtts.training.data_worker.RemoteBatches`)."""

    def __init__(self, workers: ClusterDataWorkers, setup: Any, model_devices: Sequence[str]) -> None:
        self._workers, self._setup = workers, setup
        self._identity = uuid.uuid4().hex
        self._waiting: list[deque[tuple[int, Any]]] = [deque() for _ in workers.actors]
        self._sizes: dict[int, BatchSize] = {}
        self.in_flight = AHEAD * len(workers.actors)
        self.telemetry = Telemetry(data_devices=workers.names, model_devices=model_devices)
        self.producers: Sequence[Producer] = [
            Producer(partial(self._produce, k), "/CPU:0") for k in range(len(workers.actors))
        ]

    def measure(self, batch: HostBatch) -> BatchSize:
        return self._sizes.pop(batch["number"])

    def close(self) -> None:
        for waiting in self._waiting:
            waiting.clear()  # Ray frees what nobody refers to

    def _produce(self, worker: int, batch: HostBatch) -> Tensors:
        number = batch["number"]
        waiting = self._waiting[worker]
        following = waiting[-1][0] + len(self._waiting) if waiting else number
        while len(waiting) < AHEAD:
            waiting.append((following, self._call(worker, following)))
            following += len(self._waiting)
        expected, call = waiting.popleft()
        assert expected == number, f"batch {expected} was asked for, {number} is wanted"
        began = time.perf_counter()
        produced = _answer(call)
        # The thread that waits counts as busy; the device was, for as long as it says.
        clock = self.telemetry.clock(self.telemetry.process_phases[worker])
        clock.was_waiting(time.perf_counter() - began - produced.seconds)
        self._sizes[number] = produced.size
        return as_tensors(produced.arrays)

    def _call(self, worker: int, number: int) -> Any:
        workers = self._workers
        # In a list the setup arrives as a reference: a data worker that has the setup does not fetch it again.
        wanted = BatchCall(number, workers.part, workers.parts, len(workers.actors), self._identity, [self._setup])
        return workers.actors[worker].batch.remote(wanted)


def _answer(call: Any) -> ProducedBatch:
    ray = import_ray()
    try:
        produced: ProducedBatch = ray.get(call)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MyXTTSError):
            raise error.cause from error
        raise
    return produced
