"""Autoregressive generation of several texts at once, which join and leave at any step (continuous batching).

`join` prefills one text; `step` gives every text that is there its next code; a text that has stopped or is at its
limit leaves by itself, `leave` takes one out early. What a row generates depends on its own text, voice, seed and
sampling, not on the rows around it, but for rounding. Not for several threads at once: give one thread the batch.

    batch = DecodeBatch(gpt)
    row = batch.join(Text(latents_LD, ids, Sampling(), seed=1, max_codes=400))
    while batch.rows:
        for made in batch.step():
            ...  # made.row, made.code, made.latent_D, made.spoken_token, made.stopped, made.finished

Sizes in names: L latents, D width, V audio vocabulary, R rows of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from myxtts.config.checks import at_least
from myxtts.config.speaking import Sampling
from myxtts.errors import ConfigError, DataError
from myxtts.runtime.philox import stateless_uniform
from myxtts.synthesis.litert.gpt import LiteRTGPT, Predicted, Prefilled
from myxtts.synthesis.numpy_sampling import guided, penalise, sample
from myxtts.synthesis.speech_model import Generated, Text

Floats = NDArray[np.float32]


class RowStep(NamedTuple):
    """What one step made of one row."""

    row: int
    code: int
    """The code; the stop token where `stopped`, which is no part of the speech."""
    latent_D: Floats
    """The latent of this code, for the decoders."""
    spoken_token: int
    """Index of the text token that is spoken; means nothing for a voice without alignment heads."""
    stopped: bool
    """The row ended by itself."""
    finished: bool
    """Stopped, or at its limit: the row has left."""


@dataclass
class _Row:
    """A text in the batch."""

    number: int
    sampling: Sampling
    max_codes: int
    text_length: int
    uniform_N: Floats
    penalty_V: Floats | None
    slots: list[int]
    """Its rows of the cache: with guidance there is a second one, without text."""
    prefilled: list[Prefilled] = field(default_factory=list)
    """For each slot what it began with."""
    predicted: list[tuple[Floats, Floats, int]] = field(default_factory=list)
    """For each slot the latent, logits and spoken token of the next code."""
    made: int = 0


class DecodeBatch:
    """The texts that are being generated with one GPT."""

    def __init__(self, gpt: LiteRTGPT) -> None:
        self._gpt = gpt
        self._cache = gpt.new_cache()
        self._rows: dict[int, _Row] = {}
        # A prompt is kept by the rows that began with it, and goes with the last of them.
        self._prompts: WeakValueDictionary[tuple[bytes, tuple[int, ...]], Prefilled] = WeakValueDictionary()
        self._next = 0

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows that are there, in the order in which they joined."""
        return tuple(self._rows)

    def join(self, text: Text) -> int:
        """Prefill a text; returns the number of its row, never used again. Raises for what this GPT cannot take."""
        self._refuse(text.latents_LD, text.ids)
        config, sampling = self._gpt.config, text.sampling
        limit = config.max_audio_tokens if text.max_codes is None else min(text.max_codes, config.max_audio_tokens)
        at_least("max_codes", limit, 1, hint="leave it out for as many as the model has positions for")
        penalised = sampling.repetition_penalty != 1.0
        row = _Row(
            number=self._next,
            sampling=sampling,
            max_codes=limit,
            text_length=len(text.ids),
            uniform_N=stateless_uniform(limit + 1, text.seed),
            penalty_V=np.ones(config.audio_codes + 2, np.float32) if penalised else None,
            slots=[],
        )
        for ids in [text.ids] if sampling.guidance == 1.0 else [text.ids, ()]:
            prefilled = self._prefilled(np.asarray(text.latents_LD, np.float32), ids)
            row.prefilled.append(prefilled)
            row.slots.append(self._cache.add(prefilled.prompt))
            row.predicted.append(_of_slot(prefilled.predicted, 0))
        self._next += 1
        self._rows[row.number] = row
        return row.number

    def _prefilled(self, latents_LD: Floats, ids: Sequence[int]) -> Prefilled:
        """Of a prompt that a row here began with already, its own: candidates of a text, and what has no text."""
        key = latents_LD.tobytes(), tuple(ids)
        prefilled = self._prompts.get(key)
        if prefilled is None:
            prefilled = self._prompts[key] = self._gpt.prefill(latents_LD, ids, self._cache)
        return prefilled

    def leave(self, row: int) -> None:
        """Take a row out before it has finished; one that has left already is left alone."""
        gone = self._rows.pop(row, None)
        if gone is None:
            return
        for slot in sorted(gone.slots, reverse=True):
            moved = self._cache.drop(slot)
            for other in self._rows.values():
                other.slots = [slot if own == moved else own for own in other.slots]
        if not self._rows:
            # The cache has grown to the most and the longest rows that there were at once.
            self._cache = self._gpt.new_cache()
            self._prompts.clear()

    def step(self) -> list[RowStep]:
        """The next code of every row, in the order in which they joined; empty where there are no rows."""
        made = []
        for row, code in self._sampled():
            latent_D, _, spoken_token = row.predicted[0]
            stopped = code == self._gpt.audio_stop
            row.made += not stopped
            finished = stopped or row.made >= row.max_codes
            made.append(RowStep(row.number, code, latent_D, spoken_token, stopped, finished))
            if row.penalty_V is not None:
                row.penalty_V[code] = row.sampling.repetition_penalty
        for one in made:
            if one.finished:
                self.leave(one.row)
        if self._rows:
            self._feed({one.row: one.code for one in made})
        return sorted(made, key=lambda one: one.row)

    def _sampled(self) -> list[tuple[_Row, int]]:
        """The next code of each row; rows that are sampled alike are sampled together."""
        groups: dict[Sampling, list[_Row]] = {}
        for row in self._rows.values():
            groups.setdefault(row.sampling, []).append(row)
        sampled: list[tuple[_Row, int]] = []
        for sampling, rows in groups.items():
            logits_BV = np.stack([_penalised(row, 0) for row in rows])
            if sampling.guidance != 1.0:
                logits_BV = guided(logits_BV, np.stack([_penalised(row, 1) for row in rows]), sampling.guidance)
            uniform_B = np.array([row.uniform_N[row.made] for row in rows], np.float32)
            sampled += zip(rows, sample(logits_BV, sampling, uniform_B).tolist(), strict=True)
        return sampled

    def _feed(self, codes: dict[int, int]) -> None:
        """Run the GPT on the new code of each row that goes on."""
        count = self._cache.rows
        codes_R, places_R, lengths_R = (np.zeros(count, np.int64) for _ in range(3))
        for row in self._rows.values():
            for slot in row.slots:
                codes_R[slot], places_R[slot], lengths_R[slot] = codes[row.number], row.made, row.text_length
        predicted = self._gpt.step(codes_R, places_R, lengths_R, self._cache)
        for row in self._rows.values():
            row.predicted = [_of_slot(predicted, slot) for slot in row.slots]

    def _refuse(self, latents_LD: Floats, text_ids: Sequence[int]) -> None:
        config = self._gpt.config
        expected = config.conditioning_latents, config.gpt_width
        if np.shape(latents_LD) != expected:
            raise ConfigError(
                f"voice latents have the shape {np.shape(latents_LD)}, this GPT takes {expected}",
                hint="make them with the conditioning encoder of the same model",
            )
        if len(text_ids) > config.max_text_tokens:
            raise DataError(
                f"a text of {len(text_ids)} tokens is longer than the {config.max_text_tokens} that the model has "
                "positions for",
                hint="split the text, or raise --max-text-tokens and train with it",
            )
        if wrong := [token for token in text_ids if not 0 <= token < config.text_vocab]:
            raise DataError(
                f"text token {wrong[0]} is not in the vocabulary of {config.text_vocab}",
                hint="encode the text with the voice's own tokenizer",
            )


def as_generated(
    rows: Sequence[Sequence[RowStep]], stopped_B: Sequence[bool], *, aligned: bool, width: int
) -> Generated:
    """What steps made of several texts as one array each; `stopped` tells which of them have ended by themselves."""
    kept = [[step for step in row if not step.stopped] for row in rows]
    size = max(map(len, kept), default=0)
    codes_BN = np.zeros((len(rows), size), np.int32)
    latents_BND = np.zeros((len(rows), size, width), np.float32)
    spoken_BN = np.zeros((len(rows), size if aligned else 0), np.int32)
    for row, steps in enumerate(kept):
        for place, step in enumerate(steps):
            codes_BN[row, place], latents_BND[row, place] = step.code, step.latent_D
            if aligned:
                spoken_BN[row, place] = step.spoken_token
    lengths_B = np.array([len(steps) for steps in kept], np.int32)
    return Generated(codes_BN, lengths_B, np.array(stopped_B, bool), latents_BND, spoken_BN)


def _penalised(row: _Row, slot: int) -> Floats:
    logits_V = row.predicted[slot][1]
    return logits_V if row.penalty_V is None else penalise(logits_V, row.penalty_V)


def _of_slot(predicted: Predicted, slot: int) -> tuple[Floats, Floats, int]:
    return predicted.latents_RD[slot], predicted.logits_RV[slot], int(predicted.spoken_token_R[slot])
