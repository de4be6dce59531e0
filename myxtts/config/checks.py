"""Range checks of settings; the error names the flag, the value, the limit and what to do."""

from __future__ import annotations

import math

from myxtts.errors import ConfigError


def at_least(flag: str, value: float | None, minimum: float, *, hint: str) -> None:
    _finite(flag, value, hint=hint)
    if value is not None and not value >= minimum:
        raise ConfigError(f"{flag} is {value}, must be at least {minimum:g}", hint=hint)


def in_range(flag: str, value: float | None, minimum: float, maximum: float, *, hint: str) -> None:
    _finite(flag, value, hint=hint)
    if value is not None and not minimum <= value <= maximum:
        raise ConfigError(f"{flag} is {value}, must be between {minimum:.10g} and {maximum:.10g}", hint=hint)


def check_seed(seed: int) -> None:
    in_range("--seed", seed, 0, 2**31 - 1, hint="any whole number from 0 to 2147483647")


def _finite(flag: str, value: float | None, *, hint: str) -> None:
    # A whole number is finite, and one of a thousand digits has no float to ask.
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{flag} is {value}, must be a finite number", hint=hint)
