"""Asking a metric, which is others' code: where it fails on a sound, that costs this score of this sound and no more.

A metric that fails on each of the first sounds would fail on all: that ends the evaluation, with its reason.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeVar

from myxtts.errors import JudgeError

logger = logging.getLogger(__name__)

FIRST_SOUNDS = 3
"""A metric that has failed so often and never answered is broken."""


class Judge(Protocol):
    name: str


AnyJudge = TypeVar("AnyJudge", bound=Judge)
Answer = TypeVar("Answer")


class Asking:
    """Keeps count of each metric's answers and failures."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def about(self, sound: str) -> Sound:
        return Sound(self, sound)


class Sound:
    """One sound that all metrics are asked about, and who of them failed."""

    def __init__(self, asking: Asking, name: str) -> None:
        self._asking, self._name = asking, name
        self.errors: dict[str, str] = {}

    def ask(self, metric: AnyJudge | None, question: Callable[[AnyJudge], Answer], *, without: str) -> Answer | None:
        """The metric's answer; None where there is no metric or it failed. `without` is how to do without it."""
        if metric is None:
            return None
        try:
            answer = question(metric)
        except Exception as error:
            reason = reason_of(error)
            self.errors[metric.name] = reason
            self._asking.failures[metric.name] += 1
            if not self._asking.answers[metric.name] and self._asking.failures[metric.name] == FIRST_SOUNDS:
                raise JudgeError(
                    f"{metric.name} failed on each of the first {FIRST_SOUNDS} sounds, lastly {self._name}: {reason}",
                    hint=f"mend it, or evaluate without it: {without}",
                ) from error
            logger.warning("%s failed on %s: %s", metric.name, self._name, reason)
            return None
        self._asking.answers[metric.name] += 1
        return answer


def reason_of(error: Exception) -> str:
    """In one line: of a traceback, its last."""
    last = (str(error).strip().splitlines() or [""])[-1].strip()
    return f"{type(error).__name__}: {last}" if last else type(error).__name__
