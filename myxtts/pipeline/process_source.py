"""A source that lives in a process of its own, behind the interface of any source.

For reading and host work that would otherwise compete with training for the interpreter's lock. The child
is spawned (never forked: TensorFlow's threads do not survive a fork), starts with the first batch asked for,
and its death, by whatever signal, is an error here, not a wait.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.errors import PipelineError
from myxtts.pipeline.batches import BatchSource, State
from myxtts.pipeline.producer import Ended, Failed, Filled, Free, Grow, run_producer
from myxtts.pipeline.shared_slots import new_segment, read_arrays

logger = logging.getLogger(__name__)

FIRST_SEGMENT_BYTES = 1 << 20
START_TIMEOUT_S = 120.0
"""Starting an interpreter and its imports takes seconds, on a loaded machine many."""

POLL_S = 0.25
STOP_S = 5.0
GRACE_S = 1.0
"""A child whose pipe is closed ends by itself after its batch, and closes what its source holds."""


class ChildTraceback(Exception):  # noqa: N818 - shown as the cause of the child's error
    """The traceback of an error that was raised in another process, as text."""

    def __str__(self) -> str:
        return f"in the producer process:\n{self.args[0]}"


class ProcessSource:
    """Runs `factory()` in a child process and yields its batches in order.

    `factory` is picklable (a module-level function, or a `functools.partial` of one) and builds the real source there.
    """

    def __init__(self, factory: Callable[[], BatchSource], *, slots: int = 4, hang_timeout_s: float = 240.0) -> None:
        """`slots` batches are read ahead; a child silent for `hang_timeout_s` is reported with its stacks."""
        self._factory = factory
        self._slot_count = slots
        self._hang_timeout_s = hang_timeout_s
        self._state: State | None = None
        self._child: _Child | None = None
        self._ended = False
        self._closed = threading.Event()
        # Held while the child's pipe or memory is used, so that closing cannot pull them away in between.
        self._in_use = threading.RLock()

    @property
    def pid(self) -> int | None:
        """Process id of the running child."""
        return self._child.process.pid if self._child is not None else None

    def __iter__(self) -> ProcessSource:
        return self

    def __next__(self) -> dict[str, np.ndarray[Any, Any]]:
        with self._in_use:
            return self._next_arrays()

    def _next_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        if self._ended:
            raise StopIteration
        child = self._running_child()
        message = self._receive(child, self._hang_timeout_s)
        while isinstance(message, Grow):
            child.grow(message)
            message = self._receive(child, self._hang_timeout_s)
        if isinstance(message, Ended):
            self._ended = True
            raise StopIteration
        if isinstance(message, Failed):
            raise _child_error(message)
        arrays = child.take(message)
        self._state = message.state
        return arrays

    def get_state(self) -> State:
        """The state after the last batch that `next` returned."""
        with self._in_use:
            if self._state is None:
                self._running_child()
            assert self._state is not None
            return self._state

    def set_state(self, state: State) -> None:
        """Goes on from `state`: what the child has read ahead is dropped with it."""
        with self._in_use:
            self._stop_child()
            self._state = state
            self._ended = False

    def close(self) -> None:
        """Ends the child and frees its shared memory; a `next` that waits on another thread raises."""
        self._closed.set()
        with self._in_use:
            self._stop_child()

    def __enter__(self) -> ProcessSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _running_child(self) -> _Child:
        if self._closed.is_set():
            raise PipelineError("the producer process is closed", hint="make a new ProcessSource")
        if self._child is None:
            self._child = _Child(self._factory, self._state, self._slot_count)
            message = self._receive(self._child, max(self._hang_timeout_s, START_TIMEOUT_S))
            if isinstance(message, Failed):
                raise _child_error(message)
            self._state = message.state
        return self._child

    def _receive(self, child: _Child, timeout_s: float) -> Any:
        """The child's next message; its death, its silence and our closing are errors."""
        deadline = time.monotonic() + timeout_s
        while not self._closed.is_set():
            wait([child.connection, child.process.sentinel], POLL_S)
            try:
                if child.connection.poll():
                    return child.connection.recv()
            except (EOFError, OSError):
                # Every message that was sent whole has been read; the pipe ends with the process.
                child.process.join(STOP_S)
                raise _death(child.process) from None
            if not child.process.is_alive() and not child.connection.poll():
                raise _death(child.process)
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"the producer process {child.process.pid} has sent nothing for {timeout_s:.0f} s",
                    hint=f"see where it stands:\n{child.stacks()}",
                )
        raise PipelineError("the producer process was closed while a batch was awaited", hint="none is needed")

    def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()


class _Child:
    """A running child with its pipe and segments."""

    def __init__(self, factory: Callable[[], BatchSource], state: State | None, slots: int) -> None:
        context = multiprocessing.get_context("spawn")
        with tempfile.NamedTemporaryFile(prefix="myxtts-stacks-", delete=False) as stack_file:
            self._stack_file = Path(stack_file.name)
        self.connection, theirs = context.Pipe()
        self._segments: dict[int, SharedMemory] = {}
        self.process: BaseProcess = context.Process(
            target=run_producer,
            args=(factory, state, theirs, str(self._stack_file)),
            name="pipeline-producer",
        )
        # Not a daemon, which could have no reading processes of its own; a program that forgets to close still ends.
        atexit.register(self.stop)
        try:
            self.process.start()
            # Closed here, so that the child's death is seen as the end of the pipe.
            theirs.close()
            for slot in range(slots):
                self._segments[slot] = new_segment(FIRST_SEGMENT_BYTES)
                self._free(slot)
        except BaseException:
            self.stop()
            raise

    def take(self, message: Filled) -> dict[str, np.ndarray[Any, Any]]:
        """Copies a batch out of its slot and gives the slot back."""
        arrays = read_arrays(self._segments[message.slot], message.layout)
        self._free(message.slot)
        return arrays

    def grow(self, message: Grow) -> None:
        """Replaces a slot's segment by one with room for the batch and half as much again."""
        _unlink(self._segments.pop(message.slot))
        self._segments[message.slot] = new_segment(message.needed_bytes * 3 // 2)
        self._free(message.slot)

    def stacks(self) -> str:
        """Where the child's threads stand, written by the child itself (also when it holds its lock)."""
        before = self._stack_file.stat().st_size
        if not before or self.process.pid is None:
            # Sent now, the signal would end it: it has not come to handle signals.
            return "  (still importing its modules)"
        os.kill(self.process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + STOP_S
        while self._stack_file.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return self._stack_file.read_text(encoding="utf-8").strip()

    def stop(self) -> None:
        """Ends the process, kindly and then not, and unlinks what it used."""
        atexit.unregister(self.stop)
        self.connection.close()
        if self.process.pid is not None:
            self.process.join(GRACE_S)
            if self.process.is_alive():
                self.process.terminate()
                self.process.join(STOP_S)
            if self.process.is_alive():
                self.process.kill()
                self.process.join(STOP_S)
        for segment in self._segments.values():
            _unlink(segment)
        self._segments.clear()
        self._stack_file.unlink(missing_ok=True)

    def _free(self, slot: int) -> None:
        try:
            self.connection.send(Free(slot, self._segments[slot].name))
        except OSError:
            logger.debug("the producer process is gone; the next receive reports it")


def _unlink(segment: SharedMemory) -> None:
    segment.close()
    segment.unlink()


def _child_error(message: Failed) -> BaseException:
    cause = ChildTraceback(message.trace)
    if message.pickled is None:
        last_line = message.trace.strip().splitlines()[-1]
        error: BaseException = PipelineError(
            f"the producer process failed: {last_line}", hint="its traceback is above; run with --debug to see it"
        )
    else:
        error = pickle.loads(message.pickled)
    error.__cause__ = cause
    return error


def _death(process: BaseProcess) -> PipelineError:
    code = process.exitcode
    if code is not None and code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        hint = "if the kernel ran out of memory (see dmesg), lower --batch-size or --buffer-size; then resume"
    else:
        how = f"ended by itself with code {code}"
        hint = "its own output above says why; then resume"
    return PipelineError(f"the producer process {process.pid} {how}", hint=hint)
