"""Bounded buffers between phases, and the one signal that stops them all.

A `Channel` has one producer and one consumer. The producer reserves room before it works, so that no more
than `capacity` batches ever exist behind a channel. End of data travels through it, in order. A failure does
not: it goes through the shared `Signal` and stops every phase at once, because batches that
wait ahead of it may take minutes to train and the user should hear of the failure now.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """The pipeline was closed or has failed; whoever sees this stops quietly."""


class EndOfDataError(Exception):
    """The channel is empty and its producer has finished."""


class NotYetError(Exception):
    """Nothing arrived within the time given."""


class Signal:
    """Shared by all channels of a pipeline: a lock, closing, and the first failure."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._closed = False
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    @property
    def stopped(self) -> bool:
        return self._closed or self._failure is not None

    def fail(self, failure: BaseException) -> None:
        """Stops everything; the first failure is the one that counts."""
        with self.changed:
            if self._failure is None:
                self._failure = failure
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `ready()`, a stop, or the timeout; returns `ready()`. The caller holds the lock."""
        self.changed.wait_for(lambda: self.stopped or ready(), timeout_s)
        return ready()


class Channel(Generic[T]):
    """First in, first out, at most `capacity` items."""

    def __init__(self, capacity: int, signal: Signal) -> None:
        if capacity < 1:
            raise ValueError(f"a channel of capacity {capacity} can pass nothing")
        self.capacity = capacity
        self._signal = signal
        self._items: deque[T] = deque()
        self._finished = False

    @property
    def depth(self) -> int:
        return len(self._items)

    @property
    def finished(self) -> bool:
        """True once the producer has put its last item."""
        return self._finished

    def reserve(self) -> None:
        """Producer: waits for room. With a single producer the room stays until it puts."""
        with self._signal.changed:
            self._signal.wait_for(lambda: len(self._items) < self.capacity)
            self._raise_if_stopped()

    def put(self, item: T) -> None:
        """Producer: hands over an item for which it has reserved room."""
        with self._signal.changed:
            self._raise_if_stopped()
            self._items.append(item)
            self._signal.changed.notify_all()

    def finish(self) -> None:
        """Producer: there will be no more."""
        with self._signal.changed:
            self._finished = True
            self._signal.changed.notify_all()

    def get(self, timeout_s: float | None = None) -> T:
        """Consumer: the next item; `EndOfDataError` after the last, `NotYetError` when none came in time."""
        with self._signal.changed:
            came = self._signal.wait_for(lambda: bool(self._items) or self._finished, timeout_s)
            self._raise_if_stopped()
            if not came:
                raise NotYetError
            if not self._items:
                raise EndOfDataError
            item = self._items.popleft()
            self._signal.changed.notify_all()
            return item

    def drain(self) -> None:
        """Drops what is left, so that device memory is free as soon as a pipeline is closed."""
        with self._signal.changed:
            self._items.clear()

    def _raise_if_stopped(self) -> None:
        if self._signal.stopped:
            raise StoppedError
