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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.speaking import Sampling
from myxtts.synthesis.speech_model import Generated

logger = logging.getLogger(__name__)

JOINS_A_STEP = 2
"""Texts that may join between two steps: a prefill takes as long as several steps, and the others wait for it."""
LOOK_S = 0.1
"""How often a request that waits for codes looks whether its client is still there."""


class Step(Protocol):
    """What one step made of one row; see `myxtts.synthesis.decode_batch`."""

    @property
    def row(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def latent_D(self) -> NDArray[np.float32]: ...  # noqa: N802
    @property
    def spoken_token(self) -> int: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def finished(self) -> bool: ...


class Batch(Protocol):
    """Rows that join, step and leave, on one thread."""

    def join(
        self,
        latents_LD: NDArray[np.float32],
        text_ids: Sequence[int],
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_codes: int | None = None,
    ) -> int: ...

    def step(self) -> Sequence[Step]: ...

    def leave(self, row: int) -> None: ...


@dataclass(eq=False)
class _Text:
    """One text on its way through the batch."""

    join: Callable[[Batch], int]
    chunk: int
    made: list[Step] = field(default_factory=list)
    """Not handed over yet."""
    handed: queue.SimpleQueue[list[Step] | BaseException] = field(default_factory=queue.SimpleQueue)
    left: bool = False
    """Set by the request: nobody waits for more."""

    def hand_over(self) -> None:
        self.handed.put(self.made)
        self.made = []


class BatchedGeneration:
    """The batch and its thread; `check` is called by waiting requests and raises where theirs was stopped."""

    def __init__(self, new_batch: Callable[[], Batch], *, aligned: bool, check: Callable[[], None]) -> None:
        self._new_batch, self._aligned, self._check = new_batch, aligned, check
        self._waiting: queue.SimpleQueue[_Text | None] = queue.SimpleQueue()
        self._rows: dict[int, _Text] = {}
        self._thread = threading.Thread(target=self._run, name="decode-batch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def stream(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        chunk: int,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Iterator[Generated]:
        """One text's codes, `chunk` at a time."""
        [text] = self._start(latents_BLD, text_BU, text_lengths_B, chunk, sampling, seeds, max_codes)
        try:
            finished = False
            while not finished:
                made = self._next(text)
                finished = made[-1].finished
                yield self._generated([made])
        finally:
            text.left = True

    def generate(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        *,
        sampling: Sampling | None = None,
        seeds: int | Sequence[int] = 0,
        max_codes: int | Sequence[int] | None = None,
    ) -> Generated:
        """Several texts of one request, whole."""
        texts = self._start(latents_BLD, text_BU, text_lengths_B, 2**31, sampling, seeds, max_codes)
        try:
            return self._generated([self._next(text) for text in texts])
        finally:
            for text in texts:
                text.left = True

    def _start(
        self,
        latents_BLD: Any,
        text_BU: Any,
        text_lengths_B: Any,
        chunk: int,
        sampling: Sampling | None,
        seeds: int | Sequence[int],
        max_codes: int | Sequence[int] | None,
    ) -> list[_Text]:
        count = len(text_BU)
        latents_BLD = np.broadcast_to(np.asarray(latents_BLD, np.float32), (count, *np.shape(latents_BLD)[1:]))
        seeds_B = np.broadcast_to(np.asarray(seeds), (count,))
        limits = [None] * count if max_codes is None else np.broadcast_to(np.asarray(max_codes), (count,)).tolist()
        texts = []
        for row in range(count):
            ids = [int(token) for token in text_BU[row][: int(text_lengths_B[row])]]

            def join(
                batch: Batch,
                latents: NDArray[np.float32] = latents_BLD[row],
                ids: Sequence[int] = ids,
                seed: int = int(seeds_B[row]),
                limit: int | None = limits[row],
            ) -> int:
                return batch.join(latents, ids, sampling=sampling, seed=seed, max_codes=limit)

            texts.append(_Text(join, chunk))
            self._waiting.put(texts[-1])
        return texts

    def _next(self, text: _Text) -> list[Step]:
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

    def _generated(self, rows: Sequence[Sequence[Step]]) -> Generated:
        kept = [[step for step in row if not step.stopped] for row in rows]
        most, width = max(map(len, kept)), len(rows[0][0].latent_D)
        codes_BN = np.zeros((len(rows), most), np.int32)
        latents_BND = np.zeros((len(rows), most, width), np.float32)
        spoken_BN = np.zeros((len(rows), most if self._aligned else 0), np.int32)
        for row, steps in enumerate(kept):
            for place, step in enumerate(steps):
                codes_BN[row, place], latents_BND[row, place] = step.code, step.latent_D
                if self._aligned:
                    spoken_BN[row, place] = step.spoken_token
        lengths_B = np.array([len(steps) for steps in kept], np.int32)
        return Generated(codes_BN, lengths_B, np.array([row[-1].stopped for row in rows]), latents_BND, spoken_BN)

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
            except Exception as error:
                logger.exception("a decode step failed with %d texts in the batch", len(self._rows))
                for text in self._rows.values():
                    text.handed.put(error)
                self._rows.clear()
                batch = self._new_batch()
                continue
            self._hand_out(made)

    def _take_in(self, batch: Batch) -> bool:
        """Let texts join; waits where there is nothing to step. False at the end."""
        for _ in range(JOINS_A_STEP):
            try:
                text = self._waiting.get(block=not self._rows)
            except queue.Empty:
                return True
            if text is None:
                return False
            if text.left:
                continue
            try:
                self._rows[text.join(batch)] = text
            except Exception as error:  # noqa: BLE001 - the thread's edge: the request raises it
                text.handed.put(error)
        return True

    def _hand_out(self, made: Sequence[Step]) -> None:
        for step in made:
            text = self._rows[step.row]
            text.made.append(step)
            if step.finished:
                del self._rows[step.row]
            if step.finished or len(text.made) >= text.chunk:
                text.hand_over()
