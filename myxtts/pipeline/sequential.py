"""The same phases one after the other on the caller's thread: for one device, and as the reference.

Only reading is ahead: host batches come from a thread (`host_buffer_size`), or from the caller's own (0).
"""

from __future__ import annotations

import time
from typing import Literal

from myxtts.pipeline.batches import DeviceBatch
from myxtts.pipeline.channel import Channel, StoppedError
from myxtts.pipeline.pipeline import PipelineBase, Readiness
from myxtts.pipeline.telemetry import Activity, Telemetry
from myxtts.pipeline.work import SourceBatch


class SequentialPipeline(PipelineBase):
    """Reads ahead on the host; processes and transfers when a batch is asked for."""

    def _prepare(self, buffer_size: int, host_buffer_size: int | None) -> None:
        """Nothing is processed ahead, so the whole buffer is the host's. On one device nothing is copied."""
        self.capacity = buffer_size if host_buffer_size is None else host_buffer_size
        self._host: Channel[SourceBatch] | None = None
        if self.capacity:
            host: Channel[SourceBatch] = self._channel(self.capacity)
            self._host = host
            self._add_thread("source", lambda: self._feed_host([host]))

    @property
    def depth(self) -> int:
        return self._host.depth if self._host is not None else 0

    def wait_until_ready(self) -> Readiness:
        began = time.perf_counter()
        reason: Literal["full", "delay", "end of data"] = "full"
        host = self._host
        if host is not None:
            with self._signal.changed:
                self._signal.wait_for(lambda: host.depth >= host.capacity or host.finished, self._start_delay_s)
            self._raise_failure()
            if host.depth < host.capacity:
                reason = "end of data" if host.finished else "delay"
        return Readiness(time.perf_counter() - began, self.depth, self.capacity, reason)

    def _batch_is_there(self) -> bool:
        return False

    def _next_batch(self) -> DeviceBatch:
        if self._signal.stopped:
            raise StoppedError
        batch = self._read() if self._host is None else self._get(self._host)
        train = self.telemetry.clock("train")
        if self._work.shares_device:
            # The device works, but not on the model: neither a stall nor training.
            train.switch(Activity.BLOCKED)
        with _busy(self.telemetry, self.telemetry.producer_of(batch.index)):
            processed = self._work.process(batch)
        if self._work.copies_nothing:
            return DeviceBatch(processed.index, processed.replicas, processed.state, processed.size)
        with _busy(self.telemetry, "transfer"):
            arrived, waited_s = self._work.transfer(processed)
            self.telemetry.clock("transfer").was_waiting(waited_s)
            return arrived

    def _read(self) -> SourceBatch:
        with _busy(self.telemetry, "source"):
            return self._work.read()


class _busy:  # noqa: N801 - reads as a statement
    """Counts a block as one batch's work of a phase."""

    def __init__(self, telemetry: Telemetry, phase: str) -> None:
        self._clock = telemetry.clock(phase)

    def __enter__(self) -> None:
        self._clock.switch(Activity.BUSY)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._clock.switch(Activity.WAITING)
        if kind is None:
            self._clock.finished_batch()
