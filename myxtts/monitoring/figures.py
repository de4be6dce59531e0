"""What one window of a pipeline looked like, as plain numbers.

Owns the figures that telemetry computes and that the console, the report and the verdict read back
from `events.jsonl`; they are therefore made of JSON values only. Shares are of the window's time, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseFigures:
    """How one phase spent the window."""

    busy: float
    """Share of the time in which it worked."""

    waiting: float
    """Share in which it had no input."""

    blocked: float
    """Share in which its output had no room (of `train` on a shared device: another phase held the device)."""

    ms_per_batch: float | None
    """Busy milliseconds for one batch; None when it finished none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowFigures:
    """How the phases, devices and the buffer spent a stretch of training, pauses left out."""

    seconds: float
    steps: int
    step_ms: float | None
    phases: dict[str, PhaseFigures]
    data_device: str
    model_devices: tuple[str, ...]
    device_busy: dict[str, float]
    stall_share: float
    """Share in which the model device had nothing to do because no batch was there."""

    buffer_depth: float
    """Batches ready ahead of the model, mean over the window's steps."""

    buffer_capacity: int
    efficiency: float | None
    """Slowest phase's time for a batch divided by the time of a step; 1 is the best a pipeline can do."""

    bottleneck: str | None
    """Name of the slowest phase."""

    oscillation: float | None
    """Standard deviation of the model device's busy share over short slices, divided by its mean."""

    audio_seconds_per_s: float | None
    padding_share: float | None

    def to_event(self) -> dict[str, Any]:
        """The figures as JSON values, rounded to what is measured."""
        event: dict[str, Any] = _rounded(asdict(self))
        return event

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> WindowFigures:
        """The figures of a `window` event; unknown fields (of a newer version) are passed over."""
        known = {field.name: event[field.name] for field in fields(cls)}
        known["model_devices"] = tuple(known["model_devices"])
        names = [field.name for field in fields(PhaseFigures)]
        known["phases"] = {
            phase: PhaseFigures(**{name: figures[name] for name in names}) for phase, figures in known["phases"].items()
        }
        return cls(**known)

    @property
    def model_busy(self) -> float:
        """Mean busy share of the model devices."""
        return sum(self.device_busy[device] for device in self.model_devices) / len(self.model_devices)

    @property
    def data_busy(self) -> float:
        return self.device_busy[self.data_device]

    @property
    def shares_device(self) -> bool:
        """True where the data work runs on a model device."""
        return self.data_device in self.model_devices


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
