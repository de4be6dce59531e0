"""A run as its events tell it: what is going on now, and how it went.

Folds events, one by one, into what the console, `myxtts monitor` and the report show. Pure: no file, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from myxtts.monitoring.events import Event
from myxtts.monitoring.figures import WindowFigures

SMOOTHING = 0.9
KEPT_POINTS = 20_000
"""A curve with more points loses every second one: a run of weeks stays small and no picture is wider than this."""

RECENT_STEPS = 50
SILENT_S = 60.0


@dataclass(slots=True)
class StageHistory:
    """The curves of one stage."""

    steps: list[int] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    validations: list[tuple[int, float | None]] = field(default_factory=list)

    def add_step(self, step: int, loss: float | None) -> None:
        """A resumed run repeats the steps after its checkpoint: the new ones replace the old."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.losses.pop()
        self.steps.append(step)
        self.losses.append(loss)
        _thin(self.steps)
        _thin(self.losses)

    def add_validation(self, step: int, loss: float | None) -> None:
        self.validations = [point for point in self.validations if point[0] < step] + [(step, loss)]


class RunState:
    """Everything that is known of a run after the events so far."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.started_at: float | None = None
        self.last_at: float | None = None
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
        self.windows: list[tuple[float, str, WindowFigures]] = []
        self.memory: dict[str, dict[str, Any]] = {}
        self.memories: list[tuple[float, dict[str, dict[str, Any]]]] = []
        self.history: dict[str, StageHistory] = {}
        self.samples: list[Event] = []
        self.checkpoint: Event | None = None
        self.warnings: list[Event] = []
        self.ended: Event | None = None
        self.looked_at: float | None = None
        """When a reader from another process last looked; None inside the run itself."""
        self._loss_sum = self._loss_weight = 0.0
        self._window_step: int | None = None
        self._window_speed: float | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_STEPS)
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Takes in one event; names that are not known (of a newer version) are passed over."""
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
        """Seconds to the end of this stage."""
        if self.total_steps is None or not self.steps_per_s or self.ended is not None:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_s

    @property
    def silent_s(self) -> float | None:
        """For how long a run that has not ended has said nothing; None while that is not worth a word."""
        if self.looked_at is None or self.last_at is None or self.ended is not None:
            return None
        silent_s = self.looked_at - self.last_at
        return silent_s if silent_s > SILENT_S else None

    @property
    def elapsed_s(self) -> float:
        return self.last_at - self.started_at if self.started_at is not None and self.last_at is not None else 0.0

    def memory_of(self, device: str, role: str) -> dict[str, Any] | None:
        """The last memory reading of a device, by its name or, where it has another name there, by its role."""
        for name, entry in self.memory.items():
            if device in (name, entry.get("device")):
                return entry
        return self.memory.get(role)

    def _run_start(self, event: Event) -> None:
        self.about = event
        self.started_at = self.started_at if self.started_at is not None else event["time"]
        self.ended = None
        self._recent.clear()

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
        self.window = self._window_speed = None
        self._window_step = event["step"] - 1
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
        self.windows.append((event["time"], event["stage"], self.window))
        _thin(self.windows)

    def _memory(self, event: Event) -> None:
        self.memory = event["devices"]
        self.memories.append((event["time"], self.memory))
        _thin(self.memories)

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
        self.warnings.append(event)

    def _leak(self, event: Event) -> None:
        message = f"memory of {event['device']} grows by {event['mb_per_step']:.2f} MB a step"
        hint = "stop it (Ctrl-C saves) and start it again before memory runs out, and report it with events.jsonl"
        self.warnings.append(event | {"message": message, "hint": hint})

    def _run_end(self, event: Event) -> None:
        self.ended = event


def _thin(points: list[Any]) -> None:
    if len(points) > KEPT_POINTS:
        del points[1::2]


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
