"""GPU numbers as people write them: one, a list with commas, or none."""

from __future__ import annotations

from typing import Union

from myxtts.errors import ConfigError

# A plain alias, not `X | Y`: the flag parser recognises the type by identity.
GpuIndices = Union[int, tuple[int, ...], str, None]  # noqa: UP007
"""One GPU (`1`), several (`(1, 2)` or `"1,2"`), or none."""


def parse_gpu_indices(flag: str, value: GpuIndices | list[int]) -> int | tuple[int, ...] | None:
    """One number for one GPU, a tuple for several; refuses what is not a list of numbers from 0 up."""
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (tuple, list)) else [value]
    try:
        indices = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{flag} is {value!r}, must be GPU numbers with commas between",
            hint=f"one GPU: {flag} 1, several: {flag} 1,2,3",
        ) from None
    if not indices or min(indices) < 0:
        raise ConfigError(
            f"{flag} is {value!r}, must be GPU numbers from 0 up",
            hint="GPUs are numbered from 0 as nvidia-smi shows them",
        )
    if len(set(indices)) != len(indices):
        raise ConfigError(f"{flag} is {value!r}, it names a GPU twice", hint="name each GPU once")
    return indices[0] if len(indices) == 1 else indices


def as_tuple(value: GpuIndices) -> tuple[int, ...]:
    """The parsed indices as a tuple, whatever their number."""
    parsed = parse_gpu_indices("GPU list", value)
    if parsed is None:
        return ()
    return parsed if isinstance(parsed, tuple) else (parsed,)
