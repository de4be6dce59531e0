"""A known script cut to pieces: which of its words each piece speaks, from what a recogniser heard. Pure.

The words of all pieces, in order, are aligned to the script by edit distance; script before the first and behind the
last piece costs nothing, so that a recording may be one chapter of a book. Memory is linear in the words
(Hirschberg's division), time is their product: two hours of speech take seconds. A piece gets the script's own words
with their case and punctuation. One whose match is poor has a reason instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.evaluation.scoring import spoken_words
from myxtts.models.ctc_paths import edit_distance
from myxtts.text.languages import find_language

MOST_MISMATCH = 0.25
"""Of the letters; a tiny recogniser mishears about one in thirty of clean speech."""
NOT_THE_SCRIPT = "not the script"
_EDGE_WORDS = 3
"""So many words of a piece's end are compared where it is not clear to which piece a word belongs."""
OTHER_WORD = 2
_WITHOUT_SPACES = ("han", "kana")


@dataclass(frozen=True, slots=True)
class ScriptWord:
    """A word as it is written, and the words that are said for it."""

    written: str
    spoken: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a piece speaks of the script, and why that cannot be right, or None."""

    text: str
    problem: str | None


def script_words(text: str, language: str) -> list[ScriptWord]:
    """The words of a script in order; a sign that is not spoken belongs to the word before it."""
    spaced = find_language(language).script not in _WITHOUT_SPACES
    words: list[ScriptWord] = []
    for written in text.replace("|", " ").split() if spaced else "".join(text.replace("|", " ").split()):
        spoken = "".join(spoken_words(written, language))
        if spoken or not words:
            words.append(ScriptWord(written, spoken))
        else:
            space = " " if spaced else ""
            words[-1] = ScriptWord(f"{words[-1].written}{space}{written}", words[-1].spoken)
    return words


def match_pieces(heard: Sequence[str], script: Sequence[ScriptWord], language: str) -> list[Match]:
    """For every transcript of a piece, in order, the words of the script that it speaks."""
    pieces = [[word.spoken for word in script_words(text, language) if word.spoken] for text in heard]
    flat = [word for piece in pieces for word in piece]
    if not flat or not script:
        return [_match([], piece, language) for piece in pieces]
    numbers = {word: number for number, word in enumerate({*flat, *(one.spoken for one in script)})}
    found = align(
        np.array([numbers[word] for word in flat]), np.array([numbers[one.spoken] for one in script]), free_ends=True
    )
    spans = _spans(pieces, found)
    _give_edges(spans, pieces, script)
    return [_match(script[first:last], piece, language) for (first, last), piece in zip(spans, pieces, strict=True)]


def _match(words: Sequence[ScriptWord], piece: Sequence[str], language: str) -> Match:
    wanted, found = "".join(word.spoken for word in words), "".join(piece)
    mismatch = edit_distance(wanted, found) / max(1, len(wanted), len(found)) if wanted and found else 1.0
    poor = mismatch > MOST_MISMATCH
    return Match(
        joined_words(words, language),
        f"{NOT_THE_SCRIPT}: {mismatch:.0%} of its letters were heard otherwise" if poor else None,
    )


def joined_words(words: Sequence[ScriptWord], language: str) -> str:
    """Words as the language writes them in a row."""
    space = "" if find_language(language).script in _WITHOUT_SPACES else " "
    return space.join(word.written for word in words)


def align(
    heard: NDArray[np.int64], script: NDArray[np.int64], *, free_ends: bool = False, other: int = OTHER_WORD
) -> NDArray[np.int64]:
    """For every heard word the index of the script's word that it is, right or misheard; -1 where it is none.

    `other` is what one costs that the script does not have, or has otherwise; one of the script that was not read
    costs 1.
    """
    found = np.full(len(heard), -1, np.int64)
    first, last = 0, len(script)
    if free_ends and len(heard) and len(script):
        last = _last_least(_last_row(heard, script, other, free_start=True))
        first = last - _last_least(_last_row(heard[::-1], script[:last][::-1], other))
    _divide(heard, script[first:last], found, first, other)
    return found


def _last_least(costs: NDArray[np.int64]) -> int:
    """The last of the cheapest: a misheard word at an end is the script's, rather than one too many."""
    return len(costs) - 1 - int(costs[::-1].argmin())


def _divide(
    heard: NDArray[np.int64], script: NDArray[np.int64], found: NDArray[np.int64], offset: int, other: int
) -> None:
    """Hirschberg's division: the middle of the heard words meets the script where both halves cost least."""
    if len(heard) == 0 or len(script) == 0:
        return
    if len(heard) == 1:
        same = np.flatnonzero(script == heard[0])
        found[0] = offset + (int(same[0]) if len(same) else len(script) // 2)
        return
    middle = len(heard) // 2
    before = _last_row(heard[:middle], script, other)
    behind = _last_row(heard[middle:][::-1], script[::-1], other)[::-1]
    place = int((before + behind).argmin())
    _divide(heard[:middle], script[:place], found[:middle], offset, other)
    _divide(heard[middle:], script[place:], found[middle:], offset + place, other)


def _last_row(
    heard: NDArray[np.int64], script: NDArray[np.int64], other: int, *, free_start: bool = False
) -> NDArray[np.int64]:
    """Cost of all heard words against each beginning of the script; with a free start, of its best ending."""
    steps = np.arange(len(script) + 1)
    row = np.zeros_like(steps) if free_start else steps.copy()
    for word in heard:
        best = row + other
        np.minimum(best[1:], row[:-1] + other * (script != word), out=best[1:])
        row = np.minimum.accumulate(best - steps) + steps
    return row


def _spans(pieces: Sequence[Sequence[str]], found: NDArray[np.int64]) -> list[tuple[int, int]]:
    """First word of the script and the one behind the last, for every piece; empty where none was found."""
    spans, at, behind = [], 0, 0
    for piece in pieces:
        own = found[at : at + len(piece)]
        own = own[own >= 0]
        at += len(piece)
        if len(own):
            spans.append((max(behind, int(own[0])), int(own[-1]) + 1))
            behind = spans[-1][1]
        else:
            spans.append((behind, behind))
    return spans


def _give_edges(spans: list[tuple[int, int]], pieces: Sequence[Sequence[str]], script: Sequence[ScriptWord]) -> None:
    """Words at the border of two pieces go where the letters that were heard fit best, or, skipped, to neither."""
    spoken = [one.spoken for one in script]
    for left in range(len(spans) - 1):
        (first, end), (start, last) = spans[left], spans[left + 1]
        if first == end or start == last:
            continue
        heard_left = "".join(pieces[left][-_EDGE_WORDS:])
        heard_right = "".join(pieces[left + 1][:_EDGE_WORDS])
        ends = range(max(first + 1, end - 1), min(end + _EDGE_WORDS, start + 1, last - 1) + 1)
        starts = range(max(start - _EDGE_WORDS, end - 1, first + 1), min(start + 1, last - 1) + 1)
        costs = {
            (one, other): _edge_cost(heard_left, spoken[max(first, one - _EDGE_WORDS) : one], from_end=True)
            + _edge_cost(heard_right, spoken[other : min(last, other + _EDGE_WORDS)], from_end=False)
            for one in ends
            for other in starts
            if one <= other
        }
        if costs:
            best = min(costs, key=lambda pair: (costs[pair], pair[1] - pair[0]))
            spans[left], spans[left + 1] = (first, best[0]), (best[1], last)


def _edge_cost(heard: str, words: Sequence[str], *, from_end: bool) -> int:
    """Letters that differ at the edge, which counts as far as both reach."""
    spoken = "".join(words)
    length = min(len(heard), len(spoken))
    if from_end:
        return edit_distance(heard[len(heard) - length :], spoken[len(spoken) - length :])
    return edit_distance(heard[:length], spoken[:length])
