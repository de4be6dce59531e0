"""What travels through a pipeline: sources of host batches, and batches on devices.

Owns the interfaces between the phases. Knows names, arrays and rows; nothing of what they mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from myxtts.errors import PipelineError

HostBatch = Mapping[str, Any]
"""Name to numpy array."""

Tensors = Mapping[str, Any]
"""Name to tensor (or array, where a pipeline runs without devices)."""

State = Mapping[str, Any]
"""JSON-able position of a source: a few integers."""

Process = Callable[[HostBatch], Tensors]
"""A data device's work on one batch. What it returns depends on the batch alone."""

Split = Callable[[Tensors, int], Sequence[Tensors]]
"""Turns one processed batch into one for each replica."""


class BatchSource(Protocol):
    """An iterator of host batches whose position can be saved and restored."""

    def __next__(self) -> HostBatch: ...

    def get_state(self) -> State: ...

    def set_state(self, state: State) -> None: ...


@dataclass(frozen=True, slots=True)
class Producer:
    """One data device: its work, and the device that this is called under and whose tensors it returns.

    All producers of a pipeline give the same tensors for the same batch, so that it does not matter which of them has
    it. The work may be done anywhere, as long as the call returns when the result is there.
    """

    process: Process
    device: str | None = None


@runtime_checkable
class Closable(Protocol):
    """A source that holds a process or files; the pipeline that was given it closes it."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much a batch holds, for throughput and padding figures."""

    audio_seconds: float
    padded_seconds: float
    """Seconds that the batch's rectangle takes, padding included."""


Measure = Callable[[HostBatch], BatchSize]


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """A batch on the model device or devices, ready to be trained on."""

    index: int
    """Number of the batch in this pipeline, from 0."""

    replicas: tuple[Tensors, ...]
    """One entry for each model device, in the order in which the devices were given."""

    state: State
    """The source's state after this batch: saved in a checkpoint, it makes a resumed run go on with the next one."""

    size: BatchSize | None = None

    @property
    def tensors(self) -> Tensors:
        """The batch of the only model device."""
        if len(self.replicas) != 1:
            raise PipelineError(
                f"batch {self.index} is on {len(self.replicas)} devices, not on one",
                hint="read `replicas`, one entry for each model device",
            )
        return self.replicas[0]


def even_shares(count: int, parts: int) -> list[int]:
    """A count in `parts` of nearly equal size, larger ones first."""
    small, larger = divmod(count, parts)
    return [small + (part < larger) for part in range(parts)]


def split_rows(tensors: Tensors, parts: int) -> list[Tensors]:
    """Cuts every tensor along its first axis into `parts` of nearly equal length, longer ones first.

    A batch with fewer rows than parts goes whole to each of them: its mean is the same, and no replica is left without.
    """
    rows = {name: int(tensor.shape[0]) for name, tensor in tensors.items()}
    if len(set(rows.values())) != 1:
        raise PipelineError(
            f"a batch cannot be split for {parts} replicas: its tensors have different first axes {rows}",
            hint="return tensors of the same batch size from the process phase, or pass a `split` of your own",
        )
    count = next(iter(rows.values()))
    if count < parts:
        return [tensors] * parts
    bounds = [0, *itertools.accumulate(even_shares(count, parts))]
    return [
        {name: tensor[start:stop] for name, tensor in tensors.items()} for start, stop in itertools.pairwise(bounds)
    ]
