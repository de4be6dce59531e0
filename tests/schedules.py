"""A model checker in miniature: threads that take turns, and every order in which they may.

`explore` runs a small program of several threads again and again, each time in another order, until all orders with few
preemptions were seen, or as many as it was given. A thread may be interrupted wherever it takes the lock of a
`TurnCondition`. Where no thread can go on, that is a deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

MOST_PREEMPTIONS = 3


class DeadlockError(Exception):
    """No thread can go on."""


class _Ended(BaseException):
    """A schedule is given up; unwinds its threads."""


class _Thread:
    def __init__(self, number: int, run: Callable[[], None]) -> None:
        self.number, self.run = number, run
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.done = False
        self.error: BaseException | None = None


class Turns:
    """One run: who goes on is decided by `choices`, then by the first who can."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = list(choices)
        self.options: list[int] = []
        """How many could have been chosen at each decision."""
        self._preemptions = 0
        self._threads: list[_Thread] = []
        self._current: _Thread | None = None
        self._over = threading.Event()
        self.deadlocked: list[int] = []

    def run(self, programs: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """What each thread ended with."""
        self._threads = [_Thread(number, program) for number, program in enumerate(programs)]
        real = [threading.Thread(target=self._body, args=(one,), daemon=True) for one in self._threads]
        for thread in real:
            thread.start()
        self._hand_on(None)
        self._over.wait()
        for one in self._threads:
            one.turn.release()  # unwinds those that wait for good
        for thread in real:
            thread.join()
        if self.deadlocked:
            raise DeadlockError(f"threads {self.deadlocked} wait for each other; choices {self._choices}")
        return [one.error for one in self._threads]

    def pause(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Let another thread go on; returns when this one is chosen, which it can be once it is ready."""
        me = self._current
        assert me is not None
        me.ready = ready
        self._hand_on(me)
        me.turn.acquire()
        if self._over.is_set():
            raise _Ended
        me.ready = lambda: True

    def _body(self, one: _Thread) -> None:
        one.turn.acquire()
        try:
            if not self._over.is_set():
                one.run()
        except _Ended:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the test looks at it
            one.error = error
        one.done = True
        if not self._over.is_set():
            self._hand_on(None)

    def _hand_on(self, me: _Thread | None) -> None:
        waiting = [one for one in self._threads if not one.done]
        able = [one for one in waiting if one.ready()]
        if not able:
            self.deadlocked = [one.number for one in waiting]
            self._over.set()
            return
        if me in able:  # to go on is the first choice, and costs nothing
            able.remove(me)  # type: ignore[arg-type]
            able = [me, *(able if self._preemptions < MOST_PREEMPTIONS else [])]  # type: ignore[list-item]
        place = len(self.options)
        choice = self._choices[place] if place < len(self._choices) else 0
        self.options.append(len(able))
        self._preemptions += me is not None and me.ready() and choice > 0
        self._current = able[choice]
        self._current.turn.release()

    def chosen(self) -> list[int]:
        return [*self._choices, *([0] * len(self.options))][: len(self.options)]


class TurnCondition:
    """What a channel uses of a `threading.Condition`, in turns. A wait with a timeout may end before it is notified."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._held = turns, False
        self._news = 0

    def __enter__(self) -> None:
        self._turns.pause(lambda: not self._held)
        self._held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False

    def notify_all(self) -> None:
        self._news += 1

    def wait_for(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        while not holds():
            seen, self._held = self._news, False
            self._turns.pause(lambda seen=seen: not self._held and (timeout is not None or self._news > seen))
            self._held = True
            if timeout is not None:
                return holds()
        return True


def explore(make: Callable[[Turns], tuple[Sequence[Callable[[], None]], Callable[[], None]]], most: int) -> int:
    """Run every order of the threads that `make` gives, and its check after each; returns how many there were."""
    for count, choices in enumerate(_orders(make, most), 1):
        if choices is None:
            return count - 1
    return most


def _orders(
    make: Callable[[Turns], tuple[Sequence[Callable[[], None]], Callable[[], None]]], most: int
) -> Iterator[list[int] | None]:
    choices: list[int] = []
    for _ in range(most):
        turns = Turns(choices)
        programs, check = make(turns)
        errors = turns.run(programs)
        for error in errors:
            if error is not None:
                raise error
        check()
        choices = turns.chosen()
        yield choices
        while choices and choices[-1] + 1 >= turns.options[len(choices) - 1]:
            choices.pop()
        if not choices:
            yield None
            return
        choices[-1] += 1
