"""From a line's JSON value to an event of the schema, or to nothing.

A log is torn by kills, edited by hand, written by another version, or comes from a stranger: a line that is not as the
schema says is no event, control characters are escaped, since texts go to a terminal, and numbers that are not finite
or that no chart has room for are None.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from myxtts.monitoring.figures import WindowFigures
from myxtts.monitoring.schema import SCHEMA, Event, WindowEvent
from myxtts.monitoring.terminal import escaped

MOST_LEVELS = 6
"""Of lists and mappings within each other in a line."""
LARGEST_COUNT = 2**53
LARGEST_NUMBER = 1e30
"""A diverging loss may be large; beyond this it is read as one that is not finite."""
LATEST_TIME = 1e11
"""Some thousand years after 1970."""


class _NotAnEventError(ValueError):
    """A value is not what the schema says."""


def event_of(record: Any) -> Event | None:
    """The event of a line's JSON value; None where it is not one or lacks a field that readers need."""
    try:
        clean = _cleaned(record, MOST_LEVELS)
        if not isinstance(clean, dict) or not isinstance(name := clean.pop("event", None), str):
            return None
        if not 0 <= _number(clean.get("time")) < LATEST_TIME:
            return None
        if "data_device" in clean:  # logs of 0.1
            clean.setdefault("data_devices", [clean.pop("data_device")])
        return _built_event(SCHEMA.get(name, Event), clean)
    except _NotAnEventError:
        return None


def missing_fields(name: str, given: Mapping[str, Any]) -> list[str]:
    """The fields of an event that a writer has left out."""
    cls: Any = SCHEMA[name]
    names = [item.name for item in fields(cls) if item.name in _needed(cls) or item.metadata.get("always")]
    if cls is WindowEvent:
        names += _readers(WindowFigures)
    return [one for one in names if one not in given and one not in ("time", "figures")]


def _built_event(cls: Any, clean: dict[str, Any]) -> Event:
    known = {name: value for name, value in clean.items() if name in _readers(cls) and name != "more"}
    more = {name: value for name, value in clean.items() if name not in known}
    if cls is WindowEvent:
        known["figures"] = more
        more = {name: value for name, value in more.items() if name not in _readers(WindowFigures)}
    event: Event = _built(cls, known | {"more": more})
    return event


def _built(cls: Any, values: Any) -> Any:
    """A dataclass from those of the values that it has fields for; missing ones have their defaults."""
    if not isinstance(values, dict):
        raise _NotAnEventError
    given = {name: read(values[name]) for name, read in _readers(cls).items() if name in values}
    if any(name not in given for name in _needed(cls)):
        raise _NotAnEventError
    return cls(**given)


@cache
def _readers(cls: Any) -> dict[str, Callable[[Any], Any]]:
    """How each field of a dataclass is read."""
    hints = get_type_hints(cls)
    return {item.name: _reader(hints[item.name]) for item in fields(cls)}


@cache
def _needed(cls: Any) -> tuple[str, ...]:
    """Fields without a default."""
    return tuple(item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING)


def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function that gives a value back as a field of this type holds it, or raises."""
    origin, options = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (Union, types.UnionType):
        inner = _reader(options[0])
        return lambda value: None if value is None else inner(value)
    if origin in (list, tuple):
        inner = _reader(options[0])
        return lambda value: origin(inner(item) for item in _of_type(value, list))
    if origin in (dict, Mapping):
        inner = _reader(options[1])
        return lambda value: {key: inner(item) for key, item in _of_type(value, dict).items()}
    return lambda value: _built(hint, value)


def _of_type(value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        raise _NotAnEventError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise _NotAnEventError
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _NotAnEventError
    return value


_SIMPLE: dict[Any, Callable[[Any], Any]] = {
    str: lambda value: _of_type(value, str),
    int: _count,
    float: _number,
    Any: lambda value: value,
}


def _cleaned(value: Any, levels: int) -> Any:
    """The value with escaped texts and without numbers that cannot be shown."""
    kind = type(value)
    if kind is str:
        return value if value.isprintable() else escaped(value)
    if kind is float:
        return value if math.isfinite(value) and abs(value) < LARGEST_NUMBER else None
    if kind is int:
        return value if abs(value) < LARGEST_COUNT else None
    if kind not in (dict, list):
        return value
    if not levels:
        raise _NotAnEventError
    if kind is list:
        return [_cleaned(item, levels - 1) for item in value]
    return {_cleaned(key, 0): _cleaned(item, levels - 1) for key, item in value.items()}
