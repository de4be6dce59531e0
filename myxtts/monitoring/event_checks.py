"""Whether a line of a log is an event: what readers rely on is there and of its kind.

A log is written by one version and read by another, torn by kills and edited by hand, and a run that resumes reads its
own: a line that cannot be used must cost that line and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from myxtts.monitoring.figures import PHASES, WindowFigures

_MOST_LEVELS = 6
_LARGEST_COUNT = 2**53
_LATEST = 1e11
"""Seconds since 1970: some thousand years."""


def is_event(value: Any, vocabulary: Mapping[str, tuple[str, ...]]) -> bool:
    """Names that are not known, of a newer version, are events too."""
    if not isinstance(value, dict) or not isinstance(value.get("event"), str) or not _is_plain(value, _MOST_LEVELS):
        return False
    if not _is_number(value.get("time")) or not 0 <= value["time"] < _LATEST:
        return False
    needed = vocabulary.get(value["event"], ())
    if not all(name in value and _KINDS[name](value[name]) for name in needed):
        return False
    return value["event"] != "window" or _is_window(value)


def _is_plain(value: Any, levels: int) -> bool:
    """Few levels, and no number that Python reads and cannot print."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < _LARGEST_COUNT
    if isinstance(value, dict):
        return levels > 0 and all(_is_plain(item, levels - 1) for item in value.values())
    if isinstance(value, list):
        return levels > 0 and all(_is_plain(item, levels - 1) for item in value)
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and abs(value) < _LATEST


def _is_span(value: Any) -> bool:
    return _is_amount(value) and value >= 0


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _by_name(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_reading(value: Any) -> bool:
    """The memory of one device."""
    numbers, texts = ("current_mb", "peak_mb", "limit_mb"), ("device", "source")
    return isinstance(value, dict) and (
        all(_or_none(_is_amount)(value.get(name)) for name in numbers)
        and all(_or_none(_is_text)(value.get(name)) for name in texts)
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("version", "mode", "data_device", "device", "task", "reason", "stage", "path"), _is_text),
    **dict.fromkeys(("message", "hint"), _is_text),
    **dict.fromkeys(("step", "steps", "done", "total", "buffer_size", "depth", "capacity"), _is_count),
    **dict.fromkeys(("seconds", "waited_s"), _is_span),
    **dict.fromkeys(("lines", "model_devices"), _list_of(_is_text)),
    **dict.fromkeys(("mb_per_step", "stall_share"), _is_amount),
    "loss": _or_none(_is_number),
    "total_steps": _or_none(_is_count),
    "device_busy": _by_name(_is_amount),
    "devices": _by_name(_is_reading),
}

_WINDOW: dict[str, Callable[[Any], bool]] = {
    "data_device": _is_text,
    "model_devices": lambda value: _list_of(_is_text)(value) and len(value) > 0,
    "buffer_capacity": _is_count,
    "buffer_depth": _is_amount,
    "bottleneck": _or_none(_is_text),
    **dict.fromkeys(
        ("step_ms", "efficiency", "oscillation", "audio_seconds_per_s", "padding_share"), _or_none(_is_amount)
    ),
}
_PHASE = {
    **dict.fromkeys(("busy", "waiting", "blocked"), _is_amount),
    "ms_per_batch": _or_none(_is_amount),
}


def _is_window(event: dict[str, Any]) -> bool:
    if not all(name in event and check(event[name]) for name, check in _WINDOW.items()):
        return False
    phases = event.get("phases")
    if not isinstance(phases, dict) or not all(_is_phase(phases.get(name)) for name in PHASES):
        return False
    figures = WindowFigures.from_event(event)
    return {figures.data_device, *figures.model_devices} <= figures.device_busy.keys()


def _is_phase(value: Any) -> bool:
    return isinstance(value, dict) and all(name in value and check(value[name]) for name, check in _PHASE.items())
