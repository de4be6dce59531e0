"""Sentences that nobody said: the beginning of one clip and the end of another, joined between two words.

A small corpus is a few hundred sentences, and a GPT that hears them often enough knows how each goes on without reading
it. Alignments say when each word begins, so the same words make any number of sentences.

A code is the unit of time: a word begins with the first code that belongs to it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import HOP
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.data.alignments import Alignments
from myxtts.data.prepared import PreparedCorpus

FADE_SAMPLES = 128
"""Samples in which one clip gives way to the other, so that the join does not click."""
ATTEMPTS = 6
"""Ends that are tried for a beginning; a clip that fits with none of them stays as it is."""
SHORTEST_SHARE = 0.6
"""Of the longest clip of the batch: shorter sentences would be padding for the most part."""
_SAMPLES_PER_CODE = FRAMES_PER_CODE * HOP
_CLIPS_KNOWN = 10_000


class WordBorder(NamedTuple):
    """Where a word that is not the first begins."""

    token: int
    code: int


class Sentence(NamedTuple):
    """A clip as the GPT learns it."""

    wave: NDArray[np.int16]
    tokens: NDArray[np.int32]
    spoken: NDArray[np.int64]
    """The index of the token that each code belongs to."""


class Concatenator:
    """Gives a share of a batch's clips another end, of the same speaker in the same language."""

    def __init__(
        self, prepared: PreparedCorpus, clips: NDArray[np.integer], alignments: Alignments, share: float
    ) -> None:
        self._prepared = prepared
        self._alignments = alignments
        self._share = share
        self._is_space = np.array(prepared.tokenizer.spaces())
        languages = np.asarray(prepared.index.language, np.int64)
        self._kind = np.asarray(prepared.index.speaker, np.int64) * (languages.max(initial=0) + 1) + languages
        sorted_clips = clips[np.argsort(self._kind[clips], kind="stable")]
        kinds, starts = np.unique(self._kind[sorted_clips], return_index=True)
        self._alike = dict(zip(kinds.tolist(), np.split(sorted_clips, starts[1:]), strict=True))
        self.borders = lru_cache(_CLIPS_KNOWN)(self._find_borders)

    def concatenation(self, batch: dict[str, Any], random: np.random.Generator) -> None:
        """Change the batch's waves, texts and alignments in place; its shapes stay."""
        for row, clip in enumerate(batch["clip"].tolist()):
            if random.random() < self._share and (made := self._with_another_end(clip, batch, random)):
                for name, values in (("wave", made.wave), ("text", made.tokens), ("alignment", made.spoken)):
                    batch[name][row] = 0
                    batch[name][row, : len(values)] = values
                batch["wave_lengths"][row], batch["text_lengths"][row] = len(made.wave), len(made.tokens)

    def _with_another_end(self, clip: int, batch: dict[str, Any], random: np.random.Generator) -> Sentence | None:
        longest, most_tokens = batch["wave"].shape[1], batch["text"].shape[1]
        beginnings, others = self.borders(clip), self._alike[int(self._kind[clip])]
        for _ in range(ATTEMPTS if beginnings else 0):
            other = int(others[random.integers(len(others))])
            ends = self.borders(other)
            if not ends:
                continue
            cut, resume = beginnings[random.integers(len(beginnings))], ends[random.integers(len(ends))]
            samples = int(self._prepared.index.wave_samples[other]) + (cut.code - resume.code) * _SAMPLES_PER_CODE
            tokens = int(self._prepared.index.text_tokens[other]) + cut.token - resume.token
            if SHORTEST_SHARE * longest <= samples <= longest and tokens <= most_tokens:
                return joined(self._sentence(clip), cut, self._sentence(other), resume)
        return None

    def _sentence(self, clip: int) -> Sentence:
        return Sentence(*self._prepared.read_arrays(clip), self._alignments.of(clip))

    def _find_borders(self, clip: int) -> list[WordBorder]:
        _, tokens, spoken = self._sentence(clip)
        words = np.flatnonzero(self._is_space[tokens]) + 1
        codes = np.searchsorted(spoken, words)
        inside = (codes > 0) & (codes < len(spoken))
        return [WordBorder(int(word), int(code)) for word, code in zip(words[inside], codes[inside], strict=True)]


def joined(first: Sentence, cut: WordBorder, second: Sentence, resume: WordBorder) -> Sentence:
    """The first sentence up to a word of it, the second from a word of it on."""
    before, after = cut.code * _SAMPLES_PER_CODE, resume.code * _SAMPLES_PER_CODE
    wave = np.concatenate([first.wave[:before], second.wave[after:]])
    fade = min(FADE_SAMPLES, len(first.wave) - before, len(second.wave) - after)
    rising = np.linspace(0.0, 1.0, fade)
    wave[before : before + fade] = (
        first.wave[before : before + fade] * (1.0 - rising) + second.wave[after : after + fade] * rising
    )
    tokens = np.concatenate([first.tokens[: cut.token], second.tokens[resume.token :]])
    spoken = np.concatenate([first.spoken[: cut.code], second.spoken[resume.code :] - resume.token + cut.token])
    return Sentence(wave, tokens, spoken)
