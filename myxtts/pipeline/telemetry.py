"""Where the time of a pipeline goes: a clock for each phase, figures for each window.

Every phase is in one state at a time (busy, waiting for input, blocked by its output); its clock adds up the
seconds of each. A window is read on the training thread between two steps. `pause` leaves validation and
checkpoints out. Changing a state costs about a microsecond, a step changes about ten.

Busy is the time that a phase's thread spends in its work. CPU functions return when they are done, so that is the
device's time. A GPU runs behind its thread. The process phase therefore waits for its outputs, the training thread for
the rest of its step before it is said to wait for data, and a copy's wait for the model device's queue is counted as
waiting (`myxtts.pipeline.devices`).
"""

from __future__ import annotations

import enum
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from myxtts.monitoring.figures import PHASES, PhaseFigures, WindowFigures
from myxtts.pipeline.batches import BatchSize

SLICE_S = 1.0
"""Oscillation is measured over slices of at least this long; what users saw swung over 2 to 5 seconds."""

SLICES_KEPT = 60


class Activity(enum.IntEnum):
    """What a phase is doing; the value is its place in a clock's list of seconds."""

    IDLE = 0
    BUSY = 1
    WAITING = 2
    BLOCKED = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds spent in each activity, and batches finished, since the clock began."""

    seconds: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    batches: int = 0

    def __sub__(self, earlier: Reading) -> Reading:
        return Reading(
            tuple(a - b for a, b in zip(self.seconds, earlier.seconds, strict=True)), self.batches - earlier.batches
        )

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            tuple(a + b for a, b in zip(self.seconds, other.seconds, strict=True)), self.batches + other.batches
        )

    def of(self, activity: Activity) -> float:
        return self.seconds[activity]


class PhaseClock:
    """Adds up what one phase does. One thread switches it; any thread reads it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._activity = Activity.IDLE
        self._since = now()
        self._seconds = [0.0, 0.0, 0.0, 0.0]
        self._batches = 0

    def switch(self, activity: Activity) -> None:
        with self._lock:
            moment = self._now()
            self._seconds[self._activity] += moment - self._since
            self._activity, self._since = activity, moment

    def was_waiting(self, seconds: float) -> None:
        """Of what was counted as busy before, this much was a wait."""
        with self._lock:
            self._seconds[Activity.BUSY] -= seconds
            self._seconds[Activity.WAITING] += seconds

    def finished_batch(self) -> None:
        self._batches += 1

    def read(self) -> Reading:
        """The sums, with the activity that is going on counted up to now."""
        with self._lock:
            seconds = list(self._seconds)
            seconds[self._activity] += self._now() - self._since
            return Reading(tuple(seconds), self._batches)

    def current(self) -> tuple[Activity, float]:
        """What the phase is doing, and for how many seconds it has been."""
        with self._lock:
            return self._activity, self._now() - self._since


def oscillation(busy_shares: Sequence[float]) -> float | None:
    """Standard deviation divided by mean; None for fewer than three shares or a device that never worked."""
    if len(busy_shares) < 3:
        return None
    mean = statistics.fmean(busy_shares)
    return statistics.pstdev(busy_shares, mean) / mean if mean > 0 else None


@dataclass(slots=True)
class _Tally:
    """What is counted by batch since the window began."""

    depth_sum: int = 0
    batches: int = 0
    audio_seconds: float = 0.0
    padded_seconds: float = 0.0
    measured: bool = False


@dataclass(slots=True)
class _Mark:
    """A moment, and what every clock said at it."""

    at: float
    readings: dict[str, Reading]


class Telemetry:
    """The clocks of a pipeline's phases and the figures made of them. One pipeline, one telemetry."""

    def __init__(
        self,
        *,
        data_devices: Sequence[str] = ("host",),
        model_devices: Sequence[str] = ("host",),
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.data_devices = tuple(data_devices)
        self.model_devices = tuple(model_devices)
        self.buffer_capacity = 0
        self.overlapped = False
        self._now = now
        self.process_phases: tuple[str, ...] = ("process",)
        """Names of the process phases, one for each data device."""
        if len(self.data_devices) > 1:
            named = enumerate(self.data_devices, 1)
            self.process_phases = tuple(f"process {number} ({device})" for number, device in named)
        self._phases = {phase: (phase,) if phase != "process" else self.process_phases for phase in PHASES}
        self._clocks = {name: PhaseClock(now) for names in self._phases.values() for name in names}
        self._tally = _Tally()
        self._slice_shares: deque[float] = deque(maxlen=SLICES_KEPT)
        self._paused = False
        self._in_step = False
        self.begin()

    def clock(self, phase: str) -> PhaseClock:
        return self._clocks[phase]

    def producer_of(self, index: int) -> str:
        """The process phase that has the batch of this number."""
        return self.process_phases[index % len(self.process_phases)]

    def begin(self) -> None:
        """Training thread, before its first batch: what was before (filling the buffer) is not training."""
        self._begin_window()
        self._slice = self._mark()

    def batch_delivered(self, depth: int, size: BatchSize | None) -> None:
        """Training thread: a batch was taken, and `depth` batches were ready when it was asked for."""
        self._in_step = True
        tally = self._tally
        tally.batches += 1
        tally.depth_sum += depth
        if size is not None:
            tally.measured = True
            tally.audio_seconds += size.audio_seconds
            tally.padded_seconds += size.padded_seconds

    def step_finished(self) -> None:
        """Training thread: a step is over. Closes a slice when it is long enough."""
        self._count_step()
        if self._now() - self._slice.at >= SLICE_S:
            end = self._mark()
            train = end.readings["train"] - self._slice.readings["train"]
            busy_s = train.of(Activity.BUSY) + (train.of(Activity.BLOCKED) if self._shares_device else 0.0)
            self._slice_shares.append(busy_s / (end.at - self._slice.at))
            self._slice = end

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves what happens inside out of every figure: validation, checkpoints, samples."""
        self._settle()
        self._paused = True
        train = self._clocks["train"]
        train.switch(Activity.IDLE)
        try:
            yield
        finally:
            train.switch(Activity.BUSY)
            self._paused = False
            self._stretch = self._mark()
            self._slice = self._mark()

    def window(self) -> WindowFigures:
        """Training thread, between steps: the figures since the last call. The next window begins here."""
        self._count_step()
        if not self._paused:
            self._settle()
        figures = self._figures(self._seconds, self._readings, self._tally)
        self._begin_window()
        return figures

    def _count_step(self) -> None:
        """Once for each batch: a window that is read after a step has it, though no next batch was asked for yet."""
        if self._in_step:
            self._in_step = False
            self._clocks["train"].finished_batch()

    def _begin_window(self) -> None:
        self._tally = _Tally()
        self._seconds = 0.0
        self._readings = {phase: Reading() for phase in self._clocks}
        self._stretch = self._mark()

    def _mark(self) -> _Mark:
        return _Mark(self._now(), {phase: clock.read() for phase, clock in self._clocks.items()})

    def _settle(self) -> None:
        """Adds the stretch that ends now, which began with the window or after a pause, to the window."""
        end = self._mark()
        self._seconds += end.at - self._stretch.at
        for phase, reading in end.readings.items():
            self._readings[phase] += reading - self._stretch.readings[phase]
        self._stretch = end

    @property
    def _shares_device(self) -> bool:
        return any(device in self.model_devices for device in self.data_devices)

    def _figures(self, seconds: float, readings: dict[str, Reading], tally: _Tally) -> WindowFigures:
        phases = {
            phase: _phase_figures([readings[name] for name in names], seconds) for phase, names in self._phases.items()
        }
        steps = readings["train"].batches
        step_ms = 1000 * seconds / steps if steps else None
        # What a batch costs a phase: several data devices work on as many batches at a time.
        costs_ms = {name: (phases[name].ms_per_batch or 0.0) / len(names) for name, names in self._phases.items()}
        slowest = max(PHASES, key=lambda phase: costs_ms[phase])
        slowest_ms = costs_ms[slowest] or None
        if not self.overlapped and self._shares_device:
            # One after the other on one device: the best it can do is to be busy with one or the other.
            slowest_ms = costs_ms["process"] + costs_ms["train"] or None
        return WindowFigures(
            seconds=seconds,
            steps=steps,
            step_ms=step_ms,
            phases=phases,
            data_devices=self.data_devices,
            model_devices=self.model_devices,
            device_busy=self._device_busy(seconds, readings),
            stall_share=phases["train"].waiting,
            buffer_depth=tally.depth_sum / tally.batches if tally.batches else 0.0,
            buffer_capacity=self.buffer_capacity,
            efficiency=slowest_ms / step_ms if slowest_ms is not None and step_ms else None,
            bottleneck=slowest if slowest_ms is not None else None,
            oscillation=oscillation(self._slice_shares),
            audio_seconds_per_s=tally.audio_seconds / seconds if tally.measured and seconds else None,
            padding_share=1 - tally.audio_seconds / tally.padded_seconds if tally.padded_seconds else None,
        )

    def _device_busy(self, seconds: float, readings: dict[str, Reading]) -> dict[str, float]:
        users = [*zip(self.data_devices, self.process_phases, strict=True)]
        users += [(device, "train") for device in self.model_devices]
        busy_s = dict.fromkeys((device for device, _ in users), 0.0)
        for device, phase in users:
            busy_s[device] += readings[phase].of(Activity.BUSY)
        # Two threads that share a device can both be at work; the device is busy once. A wait that began in the window
        # before may be taken off this one's busy time.
        return {device: min(max(busy, 0.0) / seconds, 1.0) if seconds else 0.0 for device, busy in busy_s.items()}


def _phase_figures(readings: Sequence[Reading], seconds: float) -> PhaseFigures:
    """Of a phase's threads together: the mean of their shares, and what a batch takes one of them."""
    total = sum(readings, Reading())

    def share(activity: Activity) -> float:
        # A wait that began in the window before may be taken off this one's busy time.
        return max(0.0, total.of(activity)) / seconds / len(readings) if seconds else 0.0

    return PhaseFigures(
        busy=share(Activity.BUSY),
        waiting=share(Activity.WAITING),
        blocked=share(Activity.BLOCKED),
        ms_per_batch=1000 * max(0.0, total.of(Activity.BUSY)) / total.batches if total.batches else None,
    )
