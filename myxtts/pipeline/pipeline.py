"""The three phases of training, overlapped: process on data devices, transfer, train on the caller's thread.

```
source ─▶ host buffer ─▶ process ─▶ buffer ─▶ transfer ─▶ 2 slots ─▶ train (iteration)
 thread                  thread               thread                caller
```
Each of several producers has a thread and buffers of its own: batch p is the work of number p modulo their count, and
the transfer takes from one after the other, so that no batch overtakes another.
Order and content are those of `SequentialPipeline`, batch for batch. The first failure of any phase stops all of
them and is raised at the caller's next `next()`, with its own traceback, ahead of batches that still wait.
Closing, at any moment, wakes and joins every thread and drops what waits.
"""

from __future__ import annotations

import abc
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

from myxtts.errors import PipelineError
from myxtts.pipeline.batches import BatchSource, Closable, DeviceBatch, Measure, Producer, Split, even_shares
from myxtts.pipeline.channel import Channel, EndOfDataError, NotYetError, Signal, StoppedError
from myxtts.pipeline.devices import Devices, TensorFlowDevices
from myxtts.pipeline.faults import FIRST_BATCH_WARNING, hang_error, hung_phase, stack_of
from myxtts.pipeline.telemetry import Activity, PhaseClock, Telemetry
from myxtts.pipeline.work import PhaseWork, ProcessedBatch, SourceBatch

logger = logging.getLogger(__name__)

HANG_TIMEOUT_S = 300.0
CLOSE_TIMEOUT_S = 30.0
CLOSE_GRACE_S = 5.0
"""How long a source may finish its batch before it is closed under its thread."""

HUNG_GRACE_S = 1.0

POLL_S = 0.25
TRANSFER_SLOTS = 2
HOST_BATCHES = 4
"""Read ahead of an overlapped process phase: enough to hide a slow read, as the buffer comes after it."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Readiness:
    """How a warm start went."""

    waited_s: float
    depth: int
    """Batches ready when the wait ended."""

    capacity: int
    reason: Literal["full", "delay", "end of data"]


class PipelineBase(abc.ABC):
    """What both schedules share, and what a trainer may rely on: a context manager and an iterator of batches."""

    capacity: int
    """Batches that can be ready ahead of the training thread."""

    def __init__(
        self,
        source: BatchSource,
        producers: Sequence[Producer],
        *,
        model_devices: Sequence[str | None],
        buffer_size: int = 50,
        host_buffer_size: int | None = None,
        start_delay_s: float = 2.0,
        devices: Devices | None = None,
        split: Split | None = None,
        measure: Measure | None = None,
        telemetry: Telemetry | None = None,
        hang_timeout_s: float = HANG_TIMEOUT_S,
    ) -> None:
        """`buffer_size` counts batches ready for the model, `host_buffer_size` those that are only read.

        Where several model devices are given, `split` cuts each batch for them; without it each gets the whole.
        `devices` are TensorFlow's unless others are given.
        """
        if not model_devices or not producers:
            raise PipelineError(
                "a pipeline needs a producer and a model device",
                hint="pass [Producer(process, '/GPU:0')] and model_devices=['/GPU:1'], or None for no device",
            )
        self.telemetry = telemetry or Telemetry(
            data_devices=[producer.device or "host" for producer in producers],
            model_devices=[device or "host" for device in model_devices],
        )
        self._source = source
        self._work = PhaseWork(
            source, tuple(producers), tuple(model_devices), devices or TensorFlowDevices(), split, measure
        )
        self._start_delay_s = start_delay_s
        self._hang_timeout_s = hang_timeout_s
        self._signal = Signal()
        self._threads: dict[str, threading.Thread] = {}
        self._channels: list[Channel[Any]] = []
        self._delivered = 0
        self._closed = False
        self._hung = False
        self._slow_to_start: set[str] = set()
        self._prepare(buffer_size, host_buffer_size)
        self.telemetry.buffer_capacity = self.capacity

    @abc.abstractmethod
    def _prepare(self, buffer_size: int, host_buffer_size: int | None) -> None:
        """Makes the schedule's channels and threads, and says its `capacity`."""

    def start(self) -> PipelineBase:
        """Starts the phases' threads."""
        if self._closed or any(thread.ident is not None for thread in self._threads.values()):
            raise PipelineError("a pipeline can be started once", hint="make a new one from the source's saved state")
        for thread in self._threads.values():
            thread.start()
        return self

    def close(self) -> None:
        """Stops and joins every thread, drops waiting batches and closes the source if it can be closed."""
        if self._closed:
            return
        self._closed = True
        self._signal.close()
        running = {phase: thread for phase, thread in self._threads.items() if thread.ident is not None}
        if "source" in running:
            running["source"].join(HUNG_GRACE_S if self._hung else CLOSE_GRACE_S)
        if isinstance(self._source, Closable):
            try:
                self._source.close()
            except Exception:
                # The source is the caller's, and may raise anything: it would take the place of the error for which
                # the pipeline is being closed.
                logger.warning("the source could not be closed", exc_info=True)
        # A thread that was reported as hung has had its time.
        deadline = time.monotonic() + (HUNG_GRACE_S if self._hung else CLOSE_TIMEOUT_S)
        for thread in running.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in (thread for thread in running.values() if thread.is_alive()):
            logger.warning("%s does not stop and is left behind:\n%s", thread.name, stack_of(thread))
        for channel in self._channels:
            channel.drain()

    def __enter__(self) -> PipelineBase:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> PipelineBase:
        return self

    def __next__(self) -> DeviceBatch:
        train = self.telemetry.clock("train")
        if self._delivered:
            if not self._batch_is_there():
                # The rest of the step is work. With a batch at hand it goes on while the next step is given out.
                self._work.finish_training()
            self.telemetry.step_finished()
        else:
            self.telemetry.begin()
        train.switch(Activity.WAITING)
        depth = self.depth
        batch = None
        try:
            batch = self._next_batch()
        except EndOfDataError:
            raise StopIteration from None
        except StoppedError:
            pass
        finally:
            if batch is None:
                train.switch(Activity.IDLE)
        if batch is None:
            # Outside the handler, so that the failure's traceback is its own and names no StoppedError.
            self._raise_failure()
            raise PipelineError("the pipeline is closed", hint="iterate inside its `with` block")
        self._delivered += 1
        self.telemetry.batch_delivered(depth, batch.size)
        train.switch(Activity.BUSY)
        return batch

    @property
    @abc.abstractmethod
    def depth(self) -> int:
        """Batches ready ahead of the training thread."""

    @abc.abstractmethod
    def wait_until_ready(self) -> Readiness:
        """Warm start: waits until the buffer is full, the data have ended, or the start delay is over."""

    def pause(self) -> AbstractContextManager[None]:
        """Leaves what the caller does inside (validation, checkpoints) out of the telemetry."""
        return self.telemetry.pause()

    @abc.abstractmethod
    def _batch_is_there(self) -> bool:
        """Whether the next batch is on the model devices already."""

    @abc.abstractmethod
    def _next_batch(self) -> DeviceBatch: ...

    def _channel(self, capacity: int) -> Channel[Any]:
        channel: Channel[Any] = Channel(capacity, self._signal)
        self._channels.append(channel)
        return channel

    def _add_thread(self, phase: str, run: Callable[[], None]) -> None:
        # Daemon: a thread that hangs in foreign code must not keep the process from ending.
        self._threads[phase] = threading.Thread(
            target=self._guard, args=(phase, run), name=f"pipeline-{phase}", daemon=True
        )

    def _guard(self, phase: str, run: Callable[[], None]) -> None:
        try:
            run()
        except StoppedError:
            pass
        except BaseException as error:  # the thread's edge: forwarded to the caller
            logger.debug("the %s phase failed", phase, exc_info=True)
            self._signal.fail(error)
        finally:
            self.telemetry.clock(phase).switch(Activity.IDLE)

    def _feed_host(self, hosts: Sequence[Channel[SourceBatch]]) -> None:
        """The source thread: reads batches into the host buffers, one after the other, until the data end."""
        clock = self.telemetry.clock("source")
        try:
            for host in itertools.cycle(hosts):
                clock.switch(Activity.BLOCKED)
                host.reserve()
                clock.switch(Activity.BUSY)
                host.put(self._work.read())
                clock.finished_batch()
        except EndOfDataError:
            for host in hosts:
                host.finish()

    def _get(self, channel: Channel[Item]) -> Item:
        """The next item for the training thread; a phase that hangs is reported instead of waited for.

        Its own polls are counted beside the phase's clock: that goes on while the whole process is stopped (Ctrl-Z, a
        paused machine), in which nothing hangs.
        """
        self._raise_failure()
        poll_s, waited_s = min(POLL_S, self._hang_timeout_s), 0.0
        while True:
            try:
                return channel.get(poll_s)
            except NotYetError:
                waited_s += poll_s
                if waited_s >= self._hang_timeout_s:
                    self._raise_if_hung()

    def _raise_if_hung(self) -> None:
        clocks = {phase: self.telemetry.clock(phase) for phase in self._threads}
        activities = {phase: clock.current() for phase, clock in clocks.items()}
        phase = hung_phase(activities, self._hang_timeout_s)
        if phase is not None and not clocks[phase].read().batches:
            if phase not in self._slow_to_start:
                self._slow_to_start.add(phase)
                logger.warning(FIRST_BATCH_WARNING, phase, activities[phase][1])
            return
        if phase is not None:
            error = hang_error(phase, activities[phase][1], self._threads[phase])
            self._hung = True
            self._signal.fail(error)
            raise error

    def _raise_failure(self) -> None:
        if self._signal.failure is not None:
            raise self._signal.failure


class Pipeline(PipelineBase):
    """Overlapped phases over one or several data devices and one or several model devices.

    With several model devices each batch arrives as `DeviceBatch.replicas`: cut by `split` (`split_rows`
    for equal shares of the rows), or whole on every device where no `split` is given. `buffer_size` counts
    processed batches ahead of the model, the last two of them on its device.
    """

    def _prepare(self, buffer_size: int, host_buffer_size: int | None) -> None:
        slots = TRANSFER_SLOTS if buffer_size > TRANSFER_SLOTS else 1
        phases = self.telemetry.process_phases
        host_batches = HOST_BATCHES if host_buffer_size is None else host_buffer_size
        hosts: list[Channel[SourceBatch]] = [
            self._channel(max(1, size)) for size in even_shares(host_batches, len(phases))
        ]
        self._processed: list[Channel[ProcessedBatch]] = [
            self._channel(max(1, size)) for size in even_shares(buffer_size - slots, len(phases))
        ]
        self._ready: Channel[DeviceBatch] = self._channel(slots)
        self.capacity = self._ready.capacity + sum(channel.capacity for channel in self._processed)
        self.telemetry.overlapped = True
        self._processed_counts = [0] * len(phases)
        self._add_thread("source", lambda: self._feed_host(hosts))
        for number, phase in enumerate(phases):
            self._add_thread(phase, partial(self._run_process, number, phase, hosts[number]))
        self._add_thread("transfer", self._run_transfer)

    @property
    def depth(self) -> int:
        return sum(self._processed_counts) - self._delivered

    def wait_until_ready(self) -> Readiness:
        began = time.perf_counter()
        with self._signal.changed:
            self._signal.wait_for(lambda: self.depth >= self.capacity or self._all_processed(), self._start_delay_s)
        self._raise_failure()
        depth = self.depth
        reason: Literal["full", "delay", "end of data"] = "delay"
        if depth >= self.capacity:
            reason = "full"
        elif self._all_processed():
            reason = "end of data"
        return Readiness(time.perf_counter() - began, depth, self.capacity, reason)

    def _all_processed(self) -> bool:
        return all(channel.finished for channel in self._processed)

    def _batch_is_there(self) -> bool:
        return self._ready.depth > 0

    def _next_batch(self) -> DeviceBatch:
        return self._get(self._ready)

    def _run_process(self, number: int, phase: str, host: Channel[SourceBatch]) -> None:
        def process(batch: SourceBatch) -> ProcessedBatch:
            processed = self._work.process(batch)
            self._processed_counts[number] += 1
            return processed

        self._move(phase, [host], self._processed[number], process)

    def _run_transfer(self) -> None:
        def transfer(batch: ProcessedBatch) -> DeviceBatch:
            arrived, waited_s = self._work.transfer(batch)
            self.telemetry.clock("transfer").was_waiting(waited_s)
            return arrived

        self._move("transfer", self._processed, self._ready, transfer)

    def _move(
        self, phase: str, inbounds: Sequence[Channel[Any]], outbound: Channel[Any], work: Callable[[Any], Any]
    ) -> None:
        """A phase's thread: reserve room, take a batch, work, hand over; until the data end."""
        clock: PhaseClock = self.telemetry.clock(phase)
        try:
            for inbound in itertools.cycle(inbounds):
                clock.switch(Activity.BLOCKED)
                outbound.reserve()
                clock.switch(Activity.WAITING)
                batch = inbound.get()
                clock.switch(Activity.BUSY)
                outbound.put(work(batch))
                clock.finished_batch()
                # Kept in this frame it would hold device memory while the phase waits for the next.
                del batch
        except EndOfDataError:
            outbound.finish()
