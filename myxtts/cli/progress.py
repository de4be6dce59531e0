"""Progress of a command on standard error: one line, rewritten on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

EVERY_S = 5.0
"""Between two lines where there is no terminal."""


class NowAndThen:
    """Rate limit: one line in `EVERY_S`, and the last one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._next_s = now() + EVERY_S

    def due(self, done: int, total: int) -> bool:
        now_s = self._now()
        if now_s < self._next_s and done != total:
            return False
        self._next_s = now_s + EVERY_S
        return True


def counted(what: str) -> Callable[[int, int], None]:
    """A callback for `(done, total)`; `what` is the word before the numbers: "evaluated" gives "evaluated 3 of 40"."""
    terminal, lines = sys.stderr.isatty(), NowAndThen()

    def show(done: int, total: int) -> None:
        if terminal:
            sys.stderr.write(f"\r{what} {done} of {total}" + ("\n" if done == total else ""))
            sys.stderr.flush()
        elif lines.due(done, total):
            print(f"{what} {done} of {total}", file=sys.stderr, flush=True)

    return show
