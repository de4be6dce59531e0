"""A run as its events tell it: what is going on now, and how it went.

Folds events, one by one, into what the console, `myxtts monitor` and the report show. `RunState` is pure: no file, no
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from myxtts.monitoring.curves import Curve, LossPoint, loss_point, merged_losses
from myxtts.monitoring.events import Event, EventFollower
from myxtts.monitoring.figures import WindowFigures, average
from myxtts.monitoring.terminal import escaped

SMOOTHING = 0.9
RECENT_STEPS = 50
SILENT_S = 60.0


@dataclass(slots=True)
class StageHistory:
    """The curves of one stage."""

    validations: list[tuple[int, float | None]] = field(default_factory=list)
    _losses: Curve[LossPoint] = field(default_factory=lambda: Curve(merged_losses))

    def add_step(self, step: int, loss: float | None) -> None:
        """A resumed run repeats the steps after its checkpoint: the new ones replace the old."""
        self._losses.drop_last_while(lambda point: point.step >= step)
        self._losses.append(loss_point(step, loss))

    def add_validation(self, step: int, loss: float | None) -> None:
        self.validations = [point for point in self.validations if point[0] < step] + [(step, loss)]

    @property
    def points(self) -> list[LossPoint]:
        return self._losses.points


TimedWindow = tuple[float, WindowFigures]
TimedMemory = tuple[float, dict[str, dict[str, Any]]]


class RunState:
    """Everything that is known of a run after the events so far.

    A run may be resumed days later: what is drawn over time is placed by `elapsed_s`, which leaves such pauses out.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.last_at: float | None = None
        self._resumed_at: float | None = None
        self._elapsed_before_s = 0.0
        self.about: dict[str, Any] = {}
        self.devices: dict[str, Any] = {}
        self.placed: dict[str, Any] = {}
        self.warmup: dict[str, Any] = {}
        self.task: str | None = None
        """What goes on before a stage can begin, in words; None while it trains."""
        self.stage: str | None = None
        self.stages_done: list[str] = []
        self.step = 0
        self.total_steps: int | None = None
        self.loss: float | None = None
        self.smooth_loss: float | None = None
        self.step_fields: dict[str, float] = {}
        self.window: WindowFigures | None = None
        self.memory: dict[str, dict[str, Any]] = {}
        self.history: dict[str, StageHistory] = {}
        self.samples: list[Event] = []
        self.checkpoint: Event | None = None
        self.warnings: list[Event] = []
        self.ended: Event | None = None
        self.skipped = 0
        """Lines of the log that were no events."""
        self.looked_at: float | None = None
        """When a reader from another process last looked; None inside the run itself."""
        self._loss_sum = self._loss_weight = 0.0
        self._windows: dict[str, Curve[TimedWindow]] = {}
        self._memories: Curve[TimedMemory] = Curve(lambda readings: readings[-1])
        self._window_step: int | None = None
        self._window_speed: float | None = None
        self._training_at: float | None = None
        self._windows_s = 0.0
        self._with_pauses = 1.0
        """How much longer a step takes with its share of validation, samples and checkpoints."""
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_STEPS)
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Takes in one event; names that are not known (of a newer version) are passed over."""
        event = printable(event)
        if event["event"] == "run_start":
            self._elapsed_before_s = self.elapsed_s
            self._resumed_at = event["time"]
        self.last_at = event["time"]
        handler = _HANDLERS.get(event["event"])
        if handler is not None:
            handler(self, event)

    @property
    def steps_per_s(self) -> float | None:
        """From the last window, which leaves pauses out; before there is one, from the steps' own times.

        Steps of the optimiser: with gradient accumulation each takes several of the window's batches.
        """
        if self._window_speed is not None:
            return self._window_speed
        if len(self._recent) < 2:
            return None
        (first_at, first), (last_at, last) = self._recent[0], self._recent[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end of this stage, its pauses included."""
        if self.total_steps is None or not self.steps_per_s or self.ended is not None:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_s * self._with_pauses

    @property
    def silent_s(self) -> float | None:
        """For how long a run that has not ended has said nothing; None while that is not worth a word."""
        if self.looked_at is None or self.last_at is None or self.ended is not None:
            return None
        silent_s = self.looked_at - self.last_at
        return silent_s if silent_s > SILENT_S else None

    @property
    def elapsed_s(self) -> float:
        """How long the run has run, up to its last event."""
        if self._resumed_at is None or self.last_at is None:
            return self._elapsed_before_s
        return self._elapsed_before_s + max(0.0, self.last_at - self._resumed_at)

    @property
    def windows(self) -> list[tuple[float, str, WindowFigures]]:
        """When (in seconds of `elapsed_s`), of which stage, and the figures; in a long run, means of several."""
        return sorted(
            ((at, stage, figures) for stage, curve in self._windows.items() for at, figures in curve.points),
            key=lambda window: window[0],
        )

    @property
    def memories(self) -> list[TimedMemory]:
        """When (in seconds of `elapsed_s`), and the reading of each role."""
        return self._memories.points

    def memory_of(self, device: str, role: str) -> dict[str, Any] | None:
        """The last memory reading of a device, by its name or, where it has another name there, by its role."""
        for name, entry in self.memory.items():
            if device in (name, entry.get("device")):
                return entry
        return self.memory.get(role)

    def _run_start(self, event: Event) -> None:
        self.about = event
        self.ended = self.task = None
        self._forget_speed()

    def _devices(self, event: Event) -> None:
        self.devices = event

    def _model_placed(self, event: Event) -> None:
        self.placed = event

    def _progress(self, event: Event) -> None:
        self.task = f"{event['task']}: {event['done']:,} of {event['total']:,}"

    def _warmup(self, event: Event) -> None:
        self.warmup = event

    def _training_start(self, event: Event) -> None:
        self.task = None
        if self.stage != event["stage"]:
            self.smooth_loss = self.loss = None
            self._loss_sum = self._loss_weight = 0.0
        self.stage, self.step, self.total_steps = event["stage"], event["step"], event["total_steps"]
        self.step_fields = {}
        self._forget_speed()
        self._window_step = event["step"] - 1
        self._training_at = event["time"]

    def _forget_speed(self) -> None:
        self.window = self._window_speed = self._window_step = self._training_at = None
        self._windows_s, self._with_pauses = 0.0, 1.0
        self._recent.clear()

    def _step(self, event: Event) -> None:
        self.stage, self.step, self.loss = event["stage"], event["step"], event["loss"]
        self._recent.append((event["time"], event["step"]))
        self.history.setdefault(event["stage"], StageHistory()).add_step(event["step"], event["loss"])
        self.step_fields = {
            name: value
            for name, value in event.items()
            if name not in ("event", "time", "stage", "step", "loss") and isinstance(value, (int, float))
        }
        if self.loss is not None:
            # Divided by the weights so far, or the first losses would count for too much.
            self._loss_sum = SMOOTHING * self._loss_sum + self.loss
            self._loss_weight = SMOOTHING * self._loss_weight + 1
            self.smooth_loss = self._loss_sum / self._loss_weight

    def _window(self, event: Event) -> None:
        self.window = WindowFigures.from_event(event)
        if self._window_step is not None and self.window.seconds > 0:
            self._window_speed = (event["step"] - self._window_step) / self.window.seconds
        self._window_step = event["step"]
        self._windows_s += self.window.seconds
        if self._training_at is not None and self._windows_s > 0:
            self._with_pauses = max(1.0, (event["time"] - self._training_at) / self._windows_s)
        self._windows.setdefault(event["stage"], Curve(_merged_windows)).append((self.elapsed_s, self.window))

    def _memory(self, event: Event) -> None:
        self.memory = event["devices"]
        self._memories.append((self.elapsed_s, self.memory))

    def _validation(self, event: Event) -> None:
        self.history.setdefault(event["stage"], StageHistory()).add_validation(event["step"], event["loss"])

    def _sample(self, event: Event) -> None:
        self.samples = [sample for sample in self.samples if sample["path"] != event["path"]] + [event]

    def _checkpoint(self, event: Event) -> None:
        self.checkpoint = event

    def _stage_done(self, event: Event) -> None:
        if event["stage"] not in self.stages_done:
            self.stages_done.append(event["stage"])

    def _warning(self, event: Event) -> None:
        self.warnings.append(event | {"elapsed_s": self.elapsed_s})

    def _leak(self, event: Event) -> None:
        message = f"memory of {event['device']} grows by {event['mb_per_step']:.2f} MB a step"
        hint = "stop it (Ctrl-C saves) and start it again before memory runs out, and report it with events.jsonl"
        self._warning(event | {"message": message, "hint": hint})

    def _run_end(self, event: Event) -> None:
        self.ended = event


def printable(value: Any) -> Any:
    """An event whose texts no terminal obeys: a log may come from anywhere."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, dict):
        return {escaped(key): printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable(item) for item in value]
    return value


def read_state(path: Path) -> RunState:
    """What the log of a run tells so far."""
    follower = EventFollower(path)
    state = RunState(follower.poll())
    state.skipped = follower.skipped
    return state


def skipped_words(state: RunState) -> str | None:
    """Said wherever the state is shown; None where every line was an event."""
    return f"{state.skipped} line(s) of events.jsonl are no events and were left out" if state.skipped else None


def _merged_windows(windows: Sequence[TimedWindow]) -> TimedWindow:
    return windows[-1][0], average([figures for _, figures in windows]) if len(windows) > 1 else windows[0][1]


_HANDLERS = {
    "run_start": RunState._run_start,
    "devices": RunState._devices,
    "model_placed": RunState._model_placed,
    "progress": RunState._progress,
    "warmup": RunState._warmup,
    "training_start": RunState._training_start,
    "step": RunState._step,
    "window": RunState._window,
    "memory": RunState._memory,
    "leak": RunState._leak,
    "validation": RunState._validation,
    "sample": RunState._sample,
    "checkpoint": RunState._checkpoint,
    "stage_done": RunState._stage_done,
    "warning": RunState._warning,
    "run_end": RunState._run_end,
}
