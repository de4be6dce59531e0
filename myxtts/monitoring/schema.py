"""The events of a run, one dataclass each: what writers give, and what readers get.

Every line of `events.jsonl` has `event` (the name) and `time` (seconds since 1970). A field without a default must be
there for a line to be read. A field with one may be missing, as in logs of an older version, and is then the default;
`always` marks those that this version always writes. What the schema does not know, further numbers of a step or the
fields of a newer version, is in `more`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from myxtts.monitoring.figures import WindowFigures


def always(default: Any) -> Any:
    """A field that is always written, with its value for logs that lack it."""
    return field(default=default, metadata={"always": True})


@dataclass(frozen=True, kw_only=True)
class Event:
    """What every event has; by itself, an event of a name that this version does not know."""

    name: ClassVar[str] = ""
    time: float
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, float]:
        """The further numbers."""
        return {name: value for name, value in self.more.items() if type(value) in (int, float)}


@dataclass(frozen=True, kw_only=True)
class RunStartEvent(Event):
    """First, and again at each resume."""

    name = "run_start"
    version: str = always("")
    command: str | None = None
    mode: str | None = None
    stages: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DevicesEvent(Event):
    """The device plan is carried out; `lines` are the plan in words."""

    name = "devices"
    mode: str = always("")
    lines: list[str] = field(default_factory=list, metadata={"always": True})


@dataclass(frozen=True, kw_only=True)
class PipelineEvent(Event):
    """The pipeline's devices and buffer are known."""

    name = "pipeline"
    data_devices: list[str] = field(default_factory=list, metadata={"always": True})
    model_devices: list[str] = field(default_factory=list, metadata={"always": True})
    buffer_size: int = always(0)


@dataclass(frozen=True, kw_only=True)
class ModelPlacedEvent(Event):
    """The model is built on `device`."""

    name = "model_placed"
    device: str = always("")
    physical: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProgressEvent(Event):
    """Every few seconds of a task before a stage can begin."""

    name = "progress"
    task: str
    done: int = always(0)
    total: int = always(0)


@dataclass(frozen=True, kw_only=True)
class WarmupEvent(Event):
    """The pipeline's buffer was waited for."""

    name = "warmup"
    waited_s: float = always(0.0)
    depth: int = always(0)
    capacity: int = always(0)
    reason: str = always("")


@dataclass(frozen=True, kw_only=True)
class TrainingStartEvent(Event):
    """A stage's first step, `step`, is next."""

    name = "training_start"
    stage: str
    step: int
    total_steps: int | None = always(None)


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """A step is done; `loss` is None where it was not finite."""

    name = "step"
    stage: str
    step: int
    loss: float | None = always(None)


@dataclass(frozen=True, kw_only=True)
class WindowEvent(Event):
    """Figures of the pipeline over the last `--log-every` steps; they stand beside the other fields in the line."""

    name = "window"
    stage: str
    step: int
    figures: WindowFigures


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """Memory of one device; None where it is not known."""

    device: str | None = None
    current_mb: float | None = None
    peak_mb: float | None = None
    limit_mb: float | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryEvent(Event):
    """Memory by role, with every window."""

    name = "memory"
    devices: dict[str, MemoryReading] = field(default_factory=dict, metadata={"always": True})


@dataclass(frozen=True, kw_only=True)
class LeakEvent(Event):
    """Memory of a device, or of the process, grows steadily."""

    name = "leak"
    device: str
    mb_per_step: float = always(0.0)


@dataclass(frozen=True, kw_only=True)
class ValidationEvent(Event):
    """The held-out data were evaluated."""

    name = "validation"
    stage: str
    step: int
    loss: float | None = always(None)


@dataclass(frozen=True, kw_only=True)
class SampleEvent(Event):
    """Audio was written to `path` in the run folder."""

    name = "sample"
    stage: str
    step: int
    path: str
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(Event):
    """A checkpoint is on disk."""

    name = "checkpoint"
    stage: str
    step: int
    path: str = always("")


@dataclass(frozen=True, kw_only=True)
class StageDoneEvent(Event):
    """A stage has ended."""

    name = "stage_done"
    stage: str
    step: int = always(0)


@dataclass(frozen=True, kw_only=True)
class WarningEvent(Event):
    """A setting should be changed."""

    name = "warning"
    message: str
    hint: str = always("")


@dataclass(frozen=True, kw_only=True)
class RunEndEvent(Event):
    """Last; `reason` is finished, interrupted or failed."""

    name = "run_end"
    reason: str = always("failed")
    message: str = always("")


SCHEMA: dict[str, type[Event]] = {cls.name: cls for cls in Event.__subclasses__()}
"""Every event by the name that it has in the log."""
