"""A known script cut to pieces by their sound: forced alignment with the built-in voice's CTC aligner, no recogniser.

What the aligner hears in all pieces, in order, is aligned to the sounds of the script by edit distance. Half of it is
wrong in a voice that it does not know, and still most pieces are found within a few words; one that is not may follow
the piece before it. Of the spans of words near both, those are taken that are likeliest together, by the CTC path
through each piece's posteriors. An hour costs about twenty CPU-seconds. Sizes in names: F frames, K labels, S states of
a path (see `ctc_paths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import DVAE_MEL
from myxtts.audio.numpy_mel import log_mel
from myxtts.collecting.script import NOT_THE_SCRIPT, Match, ScriptWord, align, joined_words, script_words
from myxtts.errors import ConfigError
from myxtts.models.ctc_paths import end_scores, greedy_labels
from myxtts.models.numpy_aligner import NumpyAligner
from myxtts.synthesis.voice import ALIGNER_FILE, BASE, BUILT_IN, TOKENIZER_FILE
from myxtts.text.tokenizer import load_tokenizer

Posteriors = NDArray[np.float32]
Span = tuple[int, int]

MOST_GAP = 3.4
"""Of a sound that the script has and the aligner did not hear, in nats: 0.9 to 3.2 where the text is right in a voice
and a room that it does not know, and from 3.9 on where it is another text (`docs/your-data.md`)."""
TEMPERATURE = 1.5
"""Of the aligner's posteriors: in a voice that it does not know it is surer than it is right."""
MOST_UNKNOWN = 0.1
"""Share of a script's sounds that the aligner may have no label for."""
_OTHER_SOUND = 6
"""Cost of a sound that is not the script's, in sounds of it that were not read: half of what is heard is wrong, and is
no reason to stay in a sentence that was left out."""
_NEAR_WORDS = 4
_MOST_DRIFT = 6
"""Sounds; a fifth of a piece's own are added, which a reader may swallow."""
_NOTHING_YET = -1
_SKIPPED_WORD = 8.0
"""Nats for a word of the script that was not read: more than one that is read and hardly heard costs. So for as many
as are in doubt at a border; a whole page that was not read costs no more."""
_MID_SENTENCE = 20.0
"""Nats for a piece that begins or ends within a sentence, where a reader rarely pauses; a script without marks has it
everywhere, which decides nothing."""


@dataclass(frozen=True, slots=True)
class SoundAligner:
    """The built-in voice's aligner and the labels of its vocabulary."""

    name: ClassVar[str] = "the built-in aligner"
    network: NumpyAligner
    labels_of: Callable[[str, str], NDArray[np.int32]]
    """The labels of a text in a language, -1 for a sound without one."""

    @classmethod
    def built_in(cls) -> SoundAligner:
        tokenizer = load_tokenizer(BUILT_IN / BASE / TOKENIZER_FILE)
        label_of = tokenizer.spoken_labels()
        unspoken = (label_of < 0) & (np.arange(tokenizer.size) != tokenizer.unknown_id)

        def labels_of(text: str, language: str) -> NDArray[np.int32]:
            ids = np.array(tokenizer.encode(text, language))
            return np.asarray(label_of[ids[~unspoken[ids]]])

        return cls(NumpyAligner.load(BUILT_IN / BASE / ALIGNER_FILE), labels_of)

    def posteriors(self, wave: NDArray[np.float32]) -> Posteriors:
        """Of a piece, at 22,050 samples a second."""
        return softened(self.network.log_posteriors(log_mel(wave, DVAE_MEL)))

    def match(self, pieces: Iterable[Posteriors], script: str, language: str) -> list[Match]:
        """For every piece of a recording, in order, the words of the script that it speaks."""
        words = script_words(script, language)
        labels = self.word_labels(words, language)
        heard = list(pieces)
        spans = _likeliest(heard, _guesses(heard, _coarse(heard, labels), labels), words, labels)
        return [
            Match("", f"{NOT_THE_SCRIPT}: nothing of it was heard")
            if span is None
            else Match(joined_words(words[slice(*span)], language), _problem(one, labels[slice(*span)]))
            for one, span in zip(heard, spans, strict=True)
        ]

    def word_labels(self, words: Sequence[ScriptWord], language: str) -> list[NDArray[np.int32]]:
        """The labels of each word; refuses a language whose sounds the aligner mostly lacks."""
        found = [self.labels_of(word.written, language) for word in words]
        flat = np.concatenate([np.zeros(0, np.int32), *found])
        if not len(flat) or np.mean(flat < 0) > MOST_UNKNOWN:
            share = f"{np.mean(flat < 0):.0%} of the sounds" if len(flat) else "no sound"
            raise ConfigError(
                f"the built-in aligner cannot follow this script in {language!r}: it has no label for {share}",
                hint="is --language right? otherwise name a recogniser: --recogniser or --recogniser-command",
            )
        return [labels[labels >= 0] for labels in found]


def softened(log_posteriors_FK: Posteriors) -> Posteriors:
    """The same at the higher temperature, the likeliest label of each frame as before."""
    scaled_FK = log_posteriors_FK / np.float32(TEMPERATURE)
    return np.asarray(scaled_FK - np.log(np.exp(scaled_FK).sum(-1, keepdims=True)), np.float32)


def _coarse(pieces: Sequence[Posteriors], labels: Sequence[NDArray[np.int32]]) -> list[Span | None]:
    """About which words each piece speaks: what was heard in all of them, aligned to the whole script at once."""
    heard = [np.array(greedy_labels(piece), np.int64) for piece in pieces]
    word_of = np.repeat(np.arange(len(labels)), [len(word) for word in labels])
    found = align(
        np.concatenate([np.zeros(0, np.int64), *heard]), np.concatenate(labels), free_ends=True, other=_OTHER_SOUND
    )
    spans: list[Span | None] = []
    at = 0
    for piece in heard:
        words = word_of[_in_step(found[at : at + len(piece)])]
        at += len(piece)
        spans.append((int(words[0]), int(words[-1]) + 1) if len(words) else None)
    return spans


def _in_step(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places in the script that go on as the piece does: not those in a sentence beside it that nobody read."""
    heard = np.flatnonzero(found >= 0)
    if len(heard) == 0:
        return heard
    drift = found[heard] - heard
    return np.asarray(found[heard[np.abs(drift - np.median(drift)) <= _MOST_DRIFT + 0.2 * len(found)]])


def _guesses(
    pieces: Sequence[Posteriors], coarse: Sequence[Span | None], labels: Sequence[NDArray[np.int32]]
) -> list[list[Span]]:
    """For each piece its coarse span, and as many sounds as were heard of it behind the piece before."""
    behind = np.cumsum([len(word) for word in labels])
    guesses = []
    end = 0
    for piece, near in zip(pieces, coarse, strict=True):
        sounds = (behind[end - 1] if end else 0) + len(greedy_labels(piece))
        follows = (end, min(len(labels), int(np.searchsorted(behind, sounds)) + 1))
        guesses.append([span for span in (near, follows) if span is not None and span[0] < span[1]])
        end = near[1] if near else end
    return guesses


def _likeliest(
    pieces: Sequence[Posteriors],
    guesses: Sequence[Sequence[Span]],
    words: Sequence[ScriptWord],
    labels: Sequence[NDArray[np.int32]],
) -> list[Span | None]:
    """The spans near the guesses that are likeliest together: in order, none overlapping, few words left out."""
    inner = [False, *(word.written[-1].isalnum() for word in words)]
    best = {_NOTHING_YET: 0.0}  # by the word behind the last that is taken
    came: list[dict[int, tuple[int | None, int]]] = []  # for each piece and end its first word, and the end before
    for piece, near in zip(pieces, guesses, strict=True):
        sounds = sum(len(word) for word in labels[slice(*near[0])]) if near else len(greedy_labels(piece))
        something_else = float(piece.max(-1).sum()) - MOST_GAP * sounds
        reached = {end: value + something_else for end, value in best.items()}
        origin: dict[int, tuple[int | None, int]] = {end: (None, end) for end in best}
        for (first, last), score in _span_scores(piece, near, labels).items():
            score -= _MID_SENTENCE * (inner[first] + inner[last])
            for end, value in best.items():
                skipped = 0 if end == _NOTHING_YET else first - end
                total = value + score - _SKIPPED_WORD * min(skipped, _NEAR_WORDS)
                if skipped >= 0 and total > reached.get(last, -np.inf):
                    reached[last], origin[last] = total, (first, end)
        best = reached
        came.append(origin)
    spans: list[Span | None] = []
    last = max(best, key=best.__getitem__)
    for origin in reversed(came):
        first_word, before = origin[last]
        spans.append(None if first_word is None else (first_word, last))
        last = before
    return spans[::-1]


def _span_scores(piece: Posteriors, guesses: Sequence[Span], labels: Sequence[NDArray[np.int32]]) -> dict[Span, float]:
    """The log likelihood of every span whose ends are near a guess's: one pass for each start gives all of its ends."""
    wanted: dict[int, set[int]] = {}
    for begin, end in guesses:
        for first in range(max(0, begin - _NEAR_WORDS), min(len(labels), begin + _NEAR_WORDS + 1)):
            lasts = range(max(first + 1, end - _NEAR_WORDS), min(len(labels), end + _NEAR_WORDS) + 1)
            if lasts:
                wanted.setdefault(first, set()).update(lasts)
    scores = {}
    for first, ends in wanted.items():
        spoken = labels[first : max(ends)]
        behind = np.cumsum([len(word) for word in spoken])
        of_labels = end_scores(piece, np.concatenate(spoken))
        for last in ends:
            score = float(of_labels[behind[last - first - 1]])
            if np.isfinite(score):
                scores[first, last] = score
    return scores


def _problem(piece: Posteriors, labels: Sequence[NDArray[np.int32]]) -> str | None:
    """Why the words do not fit the piece: how much likelier what was heard is than they are, for each sound."""
    spoken = np.concatenate(labels)
    gap = (float(piece.max(-1).sum()) - float(end_scores(piece, spoken)[-1])) / max(1, len(spoken))
    if gap <= MOST_GAP:
        return None
    return f"{NOT_THE_SCRIPT}: its sounds miss the text's by {gap:.1f}, more than {MOST_GAP:g}"
