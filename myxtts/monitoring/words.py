"""Numbers as people read them, the same on the terminal, in the report and in a verdict."""

from __future__ import annotations


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}g}"
