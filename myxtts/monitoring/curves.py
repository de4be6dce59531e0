"""Records of a run in bounded room, however long it goes on.

A curve has at most `KEPT_POINTS` points, each of equally many entries in a row. When it is full, two points become one
and from then on a point takes twice as many entries: the first day of a month is kept as finely as the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

KEPT_POINTS = 2_000
"""No picture is wider than this, and a window with its phases takes 2 kB. Even, so that all points of a full curve have
a neighbour to be merged with."""

T = TypeVar("T")


class Curve(Generic[T]):
    """Entries in their order; `merge` makes one of several."""

    def __init__(self, merge: Callable[[Sequence[T]], T]) -> None:
        self._merge = merge
        self._points: list[T] = []
        self._gathered: list[T] = []
        self._entries_per_point = 1

    def append(self, entry: T) -> None:
        self._gathered.append(entry)
        if len(self._gathered) < self._entries_per_point:
            return
        self._points.append(self._merge(self._gathered))
        self._gathered = []
        if len(self._points) >= KEPT_POINTS:
            pairs = (self._points[place : place + 2] for place in range(0, len(self._points), 2))
            self._points = [self._merge(pair) for pair in pairs]
            self._entries_per_point *= 2

    def drop_last_while(self, unwanted: Callable[[T], bool]) -> None:
        """A point goes as a whole: of a long curve, some entries before the first that is unwanted go with it."""
        for entries in (self._gathered, self._points):
            while entries and unwanted(entries[-1]):
                entries.pop()
            if entries:
                return

    @property
    def points(self) -> list[T]:
        """The last one may be of fewer entries."""
        return [*self._points, self._merge(self._gathered)] if self._gathered else self._points[:]


class LossPoint(NamedTuple):
    """The losses of one step, or of several in a row."""

    step: int
    """The last of them."""

    total: float
    """Sum of the losses that are numbers."""

    known: int
    unknown: int
    """Steps whose loss is a number, and whose loss is none."""

    @property
    def loss(self) -> float | None:
        """Their mean."""
        return self.total / self.known if self.known else None


def loss_point(step: int, loss: float | None) -> LossPoint:
    return LossPoint(step, loss or 0.0, int(loss is not None), int(loss is None))


def merged_losses(points: Sequence[LossPoint]) -> LossPoint:
    totals, known, unknown = zip(*(point[1:] for point in points), strict=True)
    return LossPoint(points[-1].step, sum(totals), sum(known), sum(unknown))
