"""What one window of a pipeline looked like, as plain numbers.

Owns the figures that telemetry computes and that the console, the report and the verdict read back
from `events.jsonl`; they are therefore made of JSON values only. Shares are of the window's time, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

PHASES = ("source", "process", "transfer", "train")


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseFigures:
    """How one phase spent the window."""

    busy: float = 0.0
    """Share of the time in which it worked."""

    waiting: float = 0.0
    """Share in which it had no input."""

    blocked: float = 0.0
    """Share in which its output had no room (of `train` on a shared device: another phase held the device)."""

    ms_per_batch: float | None = None
    """Busy milliseconds for one batch; None when it finished none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowFigures:
    """How the phases, devices and the buffer spent a stretch of training, pauses left out.

    Telemetry gives every field; the defaults are for logs of versions that lack one.
    """

    seconds: float = 0.0
    steps: int = 0
    """Batches trained on; with gradient accumulation the optimiser makes fewer steps."""

    step_ms: float | None = None
    phases: dict[str, PhaseFigures] = field(default_factory=dict)
    data_devices: tuple[str, ...] = ()
    model_devices: tuple[str, ...] = ()
    device_busy: dict[str, float] = field(default_factory=dict)
    stall_share: float = 0.0
    """Share in which the model device had nothing to do because no batch was there."""

    buffer_depth: float = 0.0
    """Batches ready ahead of the model, mean over the window's steps."""

    buffer_capacity: int = 0
    efficiency: float | None = None
    """Slowest phase's time for a batch divided by the time of a step; 1 is the best a pipeline can do. Of several data
    devices, which work on as many batches at a time, the time is divided by their number."""

    bottleneck: str | None = None
    """Name of the slowest phase."""

    oscillation: float | None = None
    """Standard deviation of the model device's busy share over short slices, divided by its mean."""

    audio_seconds_per_s: float | None = None
    padding_share: float | None = None

    def to_event(self) -> dict[str, Any]:
        """The figures as JSON values, rounded to what is measured."""
        event: dict[str, Any] = _rounded(asdict(self))
        return event

    def phase(self, name: str) -> PhaseFigures:
        return self.phases.get(name, PhaseFigures())

    @property
    def model_busy(self) -> float:
        """Mean busy share of the model devices."""
        return self._mean_busy(self.model_devices)

    @property
    def data_busy(self) -> float:
        """Mean busy share of the data devices."""
        return self._mean_busy(self.data_devices)

    def _mean_busy(self, devices: Sequence[str]) -> float:
        shares = [self.device_busy.get(device, 0.0) for device in devices]
        return sum(shares) / len(shares) if shares else 0.0

    def roles_of(self, device: str) -> list[str]:
        """`data`, `model`, or both."""
        return ["data"] * (device in self.data_devices) + ["model"] * (device in self.model_devices)

    @property
    def shares_device(self) -> bool:
        """True where the data work runs on a model device."""
        return any(device in self.model_devices for device in self.data_devices)


_OF_THE_LAST = ("data_devices", "model_devices", "buffer_capacity", "bottleneck")
"""Figures that have no mean: of several windows, the last one's."""


def average(windows: Sequence[WindowFigures]) -> WindowFigures:
    """Several windows of one stage as one: every figure is its mean over time, but counts and what stays the same."""
    last = windows[-1]
    seconds = sum(window.seconds for window in windows)
    steps = sum(window.steps for window in windows)

    def mean(value: Callable[[WindowFigures], float | None]) -> float | None:
        known = [(value(window), window.seconds) for window in windows]
        weight = sum(length for number, length in known if number is not None)
        return sum(number * length for number, length in known if number is not None) / weight if weight else None

    def means(figures: Callable[[WindowFigures], Any], beside: Collection[str]) -> dict[str, Any]:
        """Of every field but those beside; a new one is there by itself, and must be a number or be named beside."""
        found = {}
        for item in fields(figures(last)):
            if item.name not in beside:
                value = mean(lambda window, name=item.name: getattr(figures(window), name))  # type: ignore[misc]
                found[item.name] = item.default if value is None else value
        return found

    def phase(name: str) -> PhaseFigures:
        own: dict[str, Any] = {
            "ms_per_batch": _ms_per_batch([(window.phase(name), window.seconds) for window in windows])
        }
        return PhaseFigures(**own, **means(lambda window: window.phase(name), own))

    own: dict[str, Any] = {
        "seconds": seconds,
        "steps": steps,
        "step_ms": 1000 * seconds / steps if steps else None,
        "phases": {name: phase(name) for name in last.phases},
        "device_busy": {
            device: mean(lambda window, device=device: window.device_busy.get(device)) or 0.0  # type: ignore[misc]
            for device in last.device_busy
        },
    }
    own |= {name: getattr(last, name) for name in _OF_THE_LAST}
    return WindowFigures(**own, **means(lambda window: window, own))


def _ms_per_batch(stretches: Sequence[tuple[PhaseFigures, float]]) -> float | None:
    """All busy time divided by all batches: a window with few long batches counts as those few."""
    worked = [(1000 * figures.busy * seconds, figures.ms_per_batch) for figures, seconds in stretches]
    batches = sum(busy_ms / ms for busy_ms, ms in worked if ms)
    return sum(busy_ms for busy_ms, ms in worked if ms) / batches if batches else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
