""" "Did you mean": one way to refuse a name that is close to a known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from myxtts.errors import ConfigError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the closest known names, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    name = name[:80]  # of a file or a command line, and of whatever length
    return ConfigError(f"{what} {name!r} is not known", hint=did_you_mean(name, known))
