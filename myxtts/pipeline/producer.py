"""The child's side of `ProcessSource`: builds the source, writes its batches into shared memory.

Runs in a spawned process of its own and keeps TensorFlow's GPUs out of it. It ends when the data end, when the
parent says so, or when the parent is gone (its pipe breaks).
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.pipeline.batches import BatchSource, Closable, State
from myxtts.pipeline.shared_slots import ArrayLayout, plan_layout, write_arrays


@dataclass(frozen=True, slots=True)
class Started:
    """Child to parent, first: the state that the source begins with."""

    state: State


@dataclass(frozen=True, slots=True)
class Grow:
    """Child to parent: a batch does not fit its slot."""

    slot: int
    needed_bytes: int


@dataclass(frozen=True, slots=True)
class Filled:
    """Child to parent: a batch lies in a slot."""

    slot: int
    layout: list[ArrayLayout]
    state: State


@dataclass(frozen=True, slots=True)
class Ended:
    """Child to parent: the source has no more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Child to parent: the source raised; the exception is pickled, its traceback is text."""

    pickled: bytes | None
    trace: str


@dataclass(frozen=True, slots=True)
class Free:
    """Parent to child: a slot may be written; its segment's name."""

    slot: int
    segment: str


def run_producer(
    factory: Callable[[], BatchSource], state: State | None, connection: Connection, stack_file: str
) -> None:
    """Entry point of the child process."""
    # Ctrl-C goes to the whole terminal group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    with Path(stack_file).open("w", encoding="utf-8") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        stacks.write(f"producer process {os.getpid()}:\n")
        stacks.flush()
        try:
            _produce(factory, state, connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the parent has closed or is gone
        except BaseException as error:  # noqa: BLE001 - the process's edge: forwarded to the parent
            connection.send(Failed(_pickled(error), traceback.format_exc()))
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def _produce(factory: Callable[[], BatchSource], state: State | None, connection: Connection) -> None:
    source = factory()
    if state is not None:
        source.set_state(state)
    connection.send(Started(source.get_state()))
    slots = _Slots(connection)
    try:
        while True:
            try:
                arrays = next(source)
            except StopIteration:
                connection.send(Ended())
                return
            slots.send({name: np.asarray(array) for name, array in arrays.items()}, source.get_state())
    finally:
        slots.close()
        if isinstance(source, Closable):
            source.close()


class _Slots:
    """The segments that the parent has handed to this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._segments: dict[int, SharedMemory] = {}

    def send(self, arrays: Mapping[str, np.ndarray[Any, Any]], state: State) -> None:
        """Waits for a free slot, writes the batch and tells the parent."""
        layout, needed_bytes = plan_layout(arrays)
        slot, segment = self._next_free()
        while segment.size < needed_bytes:
            self._connection.send(Grow(slot, needed_bytes))
            slot, segment = self._next_free()
        write_arrays(segment, arrays, layout)
        self._connection.send(Filled(slot, layout, state))

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()

    def _next_free(self) -> tuple[int, SharedMemory]:
        free: Free = self._connection.recv()
        segment = self._segments.get(free.slot)
        if segment is None or segment.name != free.segment:
            if segment is not None:
                segment.close()
            segment = SharedMemory(free.segment)
            self._segments[free.slot] = segment
        return free.slot, segment


def _pickled(error: BaseException) -> bytes | None:
    """The exception as bytes that the parent can load, or None for one that cannot travel."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - whatever its own pickling raises, the text still travels
        return None
    return data
