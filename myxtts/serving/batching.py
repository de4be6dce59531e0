"""Generation batched over requests: one thread steps one batch, which texts of any request join and leave at any step.

`BatchedGeneration` has the methods that the synthesizer calls, so that everything around generation (splitting, checks,
decoding, joining) is as it is for one text. An error of one text is its own; an error of a step ends all texts that
were in the batch, and a new batch begins.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from myxtts.synthesis.decode_batch import RowStep, as_generated
from myxtts.synthesis.speech_model import Generated, Text, TextBatch

logger = logging.getLogger(__name__)

JOINS_A_STEP = 2
"""Texts that may join between two steps: a prefill takes as long as several steps, and the others wait for it."""
MOST_ROWS = 16
"""Texts that are stepped together: the keys and values of more fit in no cache, and each code takes longer."""
LOOK_S = 0.1
"""How often a request that waits for codes looks whether its client is still there."""


class Batch(Protocol):
    """Rows that join, step and leave, on one thread."""

    def join(self, text: Text) -> int: ...

    def step(self) -> Sequence[RowStep]: ...

    def leave(self, row: int) -> None: ...


@dataclass(eq=False)
class _Joining:
    """One text on its way through the batch."""

    text: Text
    chunk: int
    made: list[RowStep] = field(default_factory=list)
    """Not handed over yet."""
    handed: queue.SimpleQueue[list[RowStep] | BaseException] = field(default_factory=queue.SimpleQueue)
    left: bool = False
    """Set by the request: nobody waits for more."""

    def hand_over(self) -> None:
        self.handed.put(self.made)
        self.made = []


class BatchedGeneration:
    """The batch and its thread; `check` is called by waiting requests and raises where theirs was stopped."""

    def __init__(self, new_batch: Callable[[], Batch], *, aligned: bool, check: Callable[[], None]) -> None:
        self._new_batch, self._aligned, self._check = new_batch, aligned, check
        self._waiting: queue.SimpleQueue[_Joining | None] = queue.SimpleQueue()
        self._rows: dict[int, _Joining] = {}
        self._thread = threading.Thread(target=self._run, name="decode-batch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        """One text's codes, `chunk` at a time."""
        [text] = self._start(texts, chunk)
        try:
            finished = False
            while not finished:
                made = self._next(text)
                finished = made[-1].finished
                yield self._generated([made])
        finally:
            text.left = True

    def generate(self, texts: TextBatch) -> Generated:
        """Several texts of one request, whole."""
        started = self._start(texts, 2**31)
        try:
            return self._generated([self._next(text) for text in started])
        finally:
            for text in started:
                text.left = True

    def _start(self, texts: TextBatch, chunk: int) -> list[_Joining]:
        started = [_Joining(text, chunk) for text in texts.rows()]
        for text in started:
            self._waiting.put(text)
        return started

    def _next(self, text: _Joining) -> list[RowStep]:
        """What was made of a text since the last time; raises what went wrong with it."""
        while True:
            self._check()
            try:
                made = text.handed.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if isinstance(made, BaseException):
                raise made
            return made

    def _generated(self, rows: Sequence[Sequence[RowStep]]) -> Generated:
        width = len(rows[0][0].latent_D)
        return as_generated(rows, [row[-1].stopped for row in rows], aligned=self._aligned, width=width)

    def _run(self) -> None:
        batch = self._new_batch()
        while True:
            if not self._take_in(batch):
                return
            for row, text in list(self._rows.items()):
                if text.left:
                    batch.leave(row)
                    del self._rows[row]
            try:
                made = batch.step()
            except Exception as error:  # the thread's edge: the requests raise it
                logger.exception("a decode step failed with %d texts in the batch", len(self._rows))
                for text in self._rows.values():
                    text.handed.put(error)
                self._rows.clear()
                batch = self._new_batch()
                continue
            self._hand_out(made)

    def _take_in(self, batch: Batch) -> bool:
        """Let texts join; waits where there is nothing to step. False at the end."""
        for _ in range(min(JOINS_A_STEP, MOST_ROWS - len(self._rows))):
            try:
                text = self._waiting.get(block=not self._rows)
            except queue.Empty:
                return True
            if text is None:
                return False
            if text.left:
                continue
            try:
                self._rows[batch.join(text.text)] = text
            except Exception as error:  # noqa: BLE001 - the thread's edge: the request raises it
                text.handed.put(error)
        return True

    def _hand_out(self, made: Sequence[RowStep]) -> None:
        for step in made:
            text = self._rows[step.row]
            text.made.append(step)
            if step.finished:
                del self._rows[step.row]
            if step.finished or len(text.made) >= text.chunk:
                text.hand_over()
