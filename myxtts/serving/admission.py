"""The queue: so many requests at once, so many waiting, fair between owners of keys.

Runs on the event loop and needs no lock. A place that becomes free goes to the owners in turn, whoever has how many
requests waiting; where the queue is full, the owner with the most waiting gives way to one with fewer.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from myxtts.serving.errors import RequestError, busy

_WEIGHT = 0.2
"""Of the last request in the mean duration that `Retry-After` is reckoned from."""


class Admission:
    """Places for requests."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free, self._at_once, self._most_waiting = at_once, at_once, waiting
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Those who wait, by owner; the owner whose turn is next stands first."""
        self._mean_s = 2.0

    @property
    def active(self) -> int:
        return self._at_once - self._free

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def retry_after_s(self) -> int:
        """When a place is likely to be free for one more."""
        return max(1, math.ceil(self._mean_s * (self.waiting + 1) / self._at_once))

    @asynccontextmanager
    async def place(self, owner: str, wait_s: float) -> AsyncIterator[None]:
        """Hold a place; raises `RequestError` (429) where there is none to be had in time."""
        await self._enter(owner, wait_s)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            self._mean_s += _WEIGHT * (loop.time() - began - self._mean_s)
            self._leave()

    async def _enter(self, owner: str, wait_s: float) -> None:
        if self._free > 0:
            self._free -= 1
            return
        if self.waiting >= self._most_waiting and not self._displace(owner):
            raise self._full()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), wait_s)
        except asyncio.TimeoutError:
            self._give_up(owner, turn)
            raise self._full() from None
        except asyncio.CancelledError:
            self._give_up(owner, turn)
            raise

    def _displace(self, owner: str) -> bool:
        """Send away the last one of the owner with the most waiting, if that is another with more than this one."""
        longest = max(self._queues, key=lambda name: len(self._queues[name]), default=owner)
        if len(self._queues.get(longest, ())) <= len(self._queues.get(owner, ())) + 1:
            return False
        displaced = self._queues[longest].pop()
        displaced.set_exception(self._full())
        return True

    def _give_up(self, owner: str, turn: asyncio.Future[None]) -> None:
        if turn.done():
            if turn.exception() is None:
                self._leave()  # its place came in the same moment
            return
        turn.cancel()
        queue = self._queues[owner]
        queue.remove(turn)
        if not queue:
            del self._queues[owner]

    def _leave(self) -> None:
        """Hand the place to the next owner in turn, who then stands last."""
        for owner in list(self._queues):
            queue = self._queues.pop(owner)
            while queue and queue[0].done():
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
                if queue:
                    self._queues[owner] = queue
                return
        self._free += 1

    def _full(self) -> RequestError:
        seconds = self.retry_after_s
        return busy(
            f"all {self._at_once} places are taken and {self.waiting} requests wait",
            hint=f"try again in {seconds} s",
            retry_after_s=seconds,
        )
