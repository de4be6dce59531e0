"""The work of each phase on one batch, the same whether phases run on threads or one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.errors import PipelineError
from myxtts.pipeline.batches import (
    BatchSize,
    BatchSource,
    DeviceBatch,
    HostBatch,
    Measure,
    Producer,
    Split,
    State,
    Tensors,
)
from myxtts.pipeline.channel import EndOfDataError
from myxtts.pipeline.devices import Devices


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """A host batch with the source's state after it."""

    index: int
    arrays: HostBatch
    state: State


@dataclass(frozen=True, slots=True)
class ProcessedBatch:
    """A batch on the data device, already split for the replicas."""

    index: int
    replicas: tuple[Tensors, ...]
    state: State
    size: BatchSize | None


@dataclass(slots=True)
class PhaseWork:
    """What the phases compute: read, process, transfer. Holds no thread and no buffer."""

    _source: BatchSource
    producers: tuple[Producer, ...]
    _model_devices: tuple[str | None, ...]
    _devices: Devices
    _split: Split | None
    _measure: Measure | None
    _next_index: int = 0

    @property
    def shares_device(self) -> bool:
        """Whether the data work runs on a device of the model's."""
        return any(producer.device in self._model_devices for producer in self.producers)

    @property
    def copies_nothing(self) -> bool:
        """Whether data and model are on the same, only device."""
        return all(self._model_devices == (producer.device,) for producer in self.producers)

    def read(self) -> SourceBatch:
        """The next host batch; `EndOfDataError` after the last."""
        try:
            arrays = next(self._source)
        except StopIteration:
            raise EndOfDataError from None
        batch = SourceBatch(self._next_index, arrays, self._source.get_state())
        self._next_index += 1
        return batch

    def process(self, batch: SourceBatch) -> ProcessedBatch:
        """Runs the batch's producer under its device and waits for its outputs."""
        producer = self.producers[batch.index % len(self.producers)]
        try:
            with self._devices.scope(producer.device):
                tensors = producer.process(batch.arrays)
                replicas = self._split_for_replicas(tensors)
            self._devices.finish(tensors, producer.device)
            size = self._measure(batch.arrays) if self._measure is not None else None
        except StopIteration as error:
            # Passed on as it is, it would look like the end of the data.
            raise RuntimeError("the process callable raised StopIteration") from error
        return ProcessedBatch(batch.index, replicas, batch.state, size)

    def transfer(self, batch: ProcessedBatch) -> tuple[DeviceBatch, float]:
        """Copies each replica's tensors to its model device; also the seconds that this waited for other work."""
        copied = self._devices.copy(batch.replicas, self._model_devices)
        return DeviceBatch(batch.index, copied.replicas, batch.state, batch.size), copied.waited_s

    def finish_training(self) -> None:
        """Waits for all that the model devices were given: a step returns before its update is done."""
        for device in self._model_devices:
            self._devices.drain(device)

    def _split_for_replicas(self, tensors: Tensors) -> tuple[Tensors, ...]:
        count = len(self._model_devices)
        if self._split is None:
            return (tensors,) * count
        parts = tuple(self._split(tensors, count))
        if len(parts) != count:
            raise PipelineError(
                f"split returned {len(parts)} parts for {count} model devices",
                hint="return one mapping of tensors for each model device",
            )
        return parts
