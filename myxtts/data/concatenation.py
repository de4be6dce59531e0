"""Concatenation augmentation: the beginning of one clip and the end of another, joined between two words.

A small corpus is a few hundred sentences, and a GPT that reads them often enough predicts how each goes on without
using its text. Forced alignments say when each word begins, so the words of a corpus make many more sentences.

Time is counted in codes: a word begins with the first code that belongs to it.
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
"""Length of the cross-fade at a join: without one it clicks."""
ATTEMPTS = 6
"""Ends that are tried for a beginning; a clip that fits with none of them stays as it is."""
SHORTEST_SHARE = 0.6
"""Of the batch's padded length: a shorter sentence would be mostly padding."""
_SAMPLES_PER_CODE = FRAMES_PER_CODE * HOP
_CACHED_CLIPS = 10_000


class WordBorder(NamedTuple):
    """The first token and the first code of a word that is not the first of its sentence."""

    token: int
    code: int


class Sentence(NamedTuple):
    """A clip with its text and alignment."""

    wave: NDArray[np.int16]
    tokens: NDArray[np.int32]
    alignment: NDArray[np.int64]
    """The index of the token that each code belongs to."""


class Concatenator:
    """Gives a share of a batch's clips the end of another clip, of the same speaker in the same language."""

    def __init__(
        self, prepared: PreparedCorpus, clips: NDArray[np.integer], alignments: Alignments, share: float
    ) -> None:
        self._prepared = prepared
        self._alignments = alignments
        self._share = share
        self._is_space = np.array(prepared.tokenizer.spaces())
        languages = np.asarray(prepared.index.language, np.int64)
        self._voice_of = np.asarray(prepared.index.speaker, np.int64) * (languages.max(initial=0) + 1) + languages
        sorted_clips = clips[np.argsort(self._voice_of[clips], kind="stable")]
        voices, starts = np.unique(self._voice_of[sorted_clips], return_index=True)
        self._clips_of_voice = dict(zip(voices.tolist(), np.split(sorted_clips, starts[1:]), strict=True))
        self.borders = lru_cache(_CACHED_CLIPS)(self._find_borders)

    def concatenate(self, batch: dict[str, Any], random: np.random.Generator) -> None:
        """Change the batch's waves, texts and alignments in place; its shapes stay."""
        for row, clip in enumerate(batch["clip"].tolist()):
            if random.random() < self._share and (made := self._with_another_end(clip, batch, random)):
                for name, values in (("wave", made.wave), ("text", made.tokens), ("alignment", made.alignment)):
                    batch[name][row] = 0
                    batch[name][row, : len(values)] = values
                batch["wave_lengths"][row], batch["text_lengths"][row] = len(made.wave), len(made.tokens)

    def _with_another_end(self, clip: int, batch: dict[str, Any], random: np.random.Generator) -> Sentence | None:
        longest, most_tokens = batch["wave"].shape[1], batch["text"].shape[1]
        beginnings, others = self.borders(clip), self._clips_of_voice[int(self._voice_of[clip])]
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
        _, tokens, alignment = self._sentence(clip)
        words = np.flatnonzero(self._is_space[tokens]) + 1
        codes = np.searchsorted(alignment, words)
        inside = (codes > 0) & (codes < len(alignment))
        return [WordBorder(int(word), int(code)) for word, code in zip(words[inside], codes[inside], strict=True)]


def joined(first: Sentence, cut: WordBorder, second: Sentence, resume: WordBorder) -> Sentence:
    """The first sentence up to the word at `cut`, then the second from the word at `resume` on."""
    before, after = cut.code * _SAMPLES_PER_CODE, resume.code * _SAMPLES_PER_CODE
    wave = np.concatenate([first.wave[:before], second.wave[after:]])
    fade = min(FADE_SAMPLES, len(first.wave) - before, len(second.wave) - after)
    rising = np.linspace(0.0, 1.0, fade)
    wave[before : before + fade] = (
        first.wave[before : before + fade] * (1.0 - rising) + second.wave[after : after + fade] * rising
    )
    tokens = np.concatenate([first.tokens[: cut.token], second.tokens[resume.token :]])
    shifted = second.alignment[resume.code :] - resume.token + cut.token
    return Sentence(wave, tokens, np.concatenate([first.alignment[: cut.code], shifted]))
