"""Signs of life of all workers and of Ray's head: who does not answer is named, and who does not for long counts as
lost."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from myxtts.cluster.plan import Placement

logger = logging.getLogger(__name__)

HEALTH = "health"
"""The group of calls that a worker answers beside its work, on a thread of their own."""
SILENT_S = 15.0
"""Of a worker that is named: a busy one answers within a second or two."""
LOST_S = 120.0
"""Of a worker that is given up: Ray ends it, and starts a data worker again."""
START_GRACE_S = 60.0
"""How long a process may take to start before its silence counts."""
HEAD_LOST_S = 15.0
"""Ray ends a driver, without a word of ours, whose head has been away for 60 s: the model workers must save before."""


class HeadWatch:
    """Whether Ray's head answers at its port; Ray itself says nothing until it ends the process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._asked_at = self._seen_at = time.monotonic()

    @property
    def is_lost(self) -> bool:
        return self._asked_at - self._seen_at > HEAD_LOST_S

    def look(self) -> None:
        """Asks, every two seconds at most."""
        if time.monotonic() - self._asked_at >= 2.0:
            self.answers()

    def answers(self) -> bool:
        """Asks now."""
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            self._asked_at = time.monotonic()
            return False
        self._asked_at = self._seen_at = time.monotonic()
        return True


@dataclass
class Watched:
    """A worker, what it is doing for the driver, and when it last answered."""

    placement: Placement
    actor: Any
    training: Any = None
    """The call that ends with the attempt; of model workers."""
    process: int | None = None
    asked: Any = None
    seen_at: float = field(default_factory=lambda: time.monotonic() + START_GRACE_S)
    named: bool = False

    def last_seen_s(self) -> float:
        """Seconds since its last answer; 0 while it may still be starting."""
        return max(0.0, time.monotonic() - self.seen_at)


class WorkerWatch:
    """Asks every worker, prints what they say, and names those that say nothing."""

    def __init__(self, ray: Any, workers: Sequence[Watched]) -> None:
        self._ray, self._workers = ray, workers

    def look(self, wait_s: float = 0.0) -> str | None:
        """What was lost, if a model worker was. Waits so long for each answer."""
        for one in self._workers:
            if (lost := self._ask(one, wait_s)) is not None:
                return lost
        return None

    def _ask(self, one: Watched, wait_s: float) -> str | None:
        if one.asked is None:
            one.asked = one.actor.ping.options(concurrency_group=HEALTH).remote()
        ready, _ = self._ray.wait([one.asked], timeout=wait_s)
        if ready:
            return self._answered(one)
        silent_s = one.last_seen_s()
        if silent_s > SILENT_S and not one.named:
            one.named = True
            others = "the model waits for its batches" if one.placement.role == "data" else "all others wait for it"
            logger.warning("%s has not answered for %.0f s: %s", one.placement.name, silent_s, others)
        if silent_s <= LOST_S:
            return None
        if one.placement.role == "model":
            return f"{one.placement.name} has not answered for {silent_s:.0f} s"
        logger.warning("%s is started again", one.placement.name)
        self._ray.kill(one.actor, no_restart=False)
        one.asked, one.seen_at = None, time.monotonic() + START_GRACE_S
        return None

    def _answered(self, one: Watched) -> str | None:
        asked, one.asked = one.asked, None
        try:
            pong = self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            return f"{one.placement.name} was lost ({type(error).__name__})"
        if one.named:
            logger.warning("%s answers again", one.placement.name)
        elif one.process not in (None, pong.process):
            logger.warning("%s was lost and has been started again", one.placement.name)
        one.seen_at, one.named, one.process = time.monotonic(), False, pong.process
        is_chief = one.placement.role == "model" and one.placement.number == 0
        for level, line in pong.lines:
            if is_chief:
                logger.log(level, line)
            elif level >= logging.WARNING:
                logger.log(level, "%s: %s", one.placement.name, line)
        return None
