"""Devices that finish their work later than the call that gives it to them returns, as GPUs do; in real time.

A device does one thing after the other. What TensorFlow does with GPUs is modelled: a function returns as soon as its
work is in the queue, a fetched value waits for it, and a copy begins when the receiving device's queue is empty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from myxtts.pipeline.devices import Copied, CopyTimes

BATCH_BYTES = 1_000_000


class Queue:
    """One device's: work begins when what is before it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0

    def give(self, seconds: float) -> float:
        """When the work will be done; returns at once."""
        with self._lock:
            self._free_at = max(time.perf_counter(), self._free_at) + seconds
            return self._free_at

    def drain(self) -> None:
        sleep_until(self._free_at)


class ModelledDevices:
    """A pipeline's devices; a tensor is the moment at which it is computed."""

    def __init__(self, names: Sequence[str], *, copy_s: float) -> None:
        self.queues = {name: Queue() for name in names}
        self._copy_s = copy_s
        self._times = CopyTimes()

    def scope(self, device: str | None) -> AbstractContextManager[object]:
        return nullcontext()

    def finish(self, tensors: Mapping[str, Any], device: str | None) -> None:
        sleep_until(max(tensors.values()))

    def drain(self, device: str | None) -> None:
        self.queues[str(device)].drain()

    def copy(self, replicas: Sequence[Mapping[str, Any]], devices: Sequence[str | None]) -> Copied:
        began = time.perf_counter()
        for device in devices:
            self.queues[str(device)].drain()
        time.sleep(self._copy_s)
        return Copied(tuple(replicas), self._times.waited_s(time.perf_counter() - began, BATCH_BYTES))


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))
