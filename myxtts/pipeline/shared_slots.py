"""Numpy batches through shared memory: how they are laid out, and who may touch which slot when.

The parent creates and unlinks every segment, so that a child that is killed leaves nothing behind
(and Python's resource tracker unlinks them should the parent be killed). The child writes a batch into
a free slot and sends its layout through a pipe; the parent copies it out and gives the slot back.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Where one array of a batch lies in its slot."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def new_segment(size_bytes: int) -> SharedMemory:
    """A segment whose name tells whose it is: `myxtts-<pid>-<random>`."""
    return SharedMemory(f"myxtts-{os.getpid()}-{secrets.token_hex(6)}", create=True, size=size_bytes)


def plan_layout(arrays: Mapping[str, np.ndarray[Any, Any]]) -> tuple[list[ArrayLayout], int]:
    """The place of every array, each aligned, and the bytes that a slot needs for them."""
    layout, end = [], 0
    for name, array in arrays.items():
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        layout.append(ArrayLayout(name, array.dtype.str, array.shape, offset))
        end = offset + array.nbytes
    return layout, end


def write_arrays(slot: SharedMemory, arrays: Mapping[str, np.ndarray[Any, Any]], layout: list[ArrayLayout]) -> None:
    for place in layout:
        view = np.ndarray(place.shape, place.dtype, buffer=slot.buf, offset=place.offset)
        view[...] = arrays[place.name]


def read_arrays(slot: SharedMemory, layout: list[ArrayLayout]) -> dict[str, np.ndarray[Any, Any]]:
    """Copies the batch out, so that the slot can be written again at once."""
    return {
        place.name: np.ndarray(place.shape, place.dtype, buffer=slot.buf, offset=place.offset).copy()
        for place in layout
    }
