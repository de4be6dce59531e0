"""Long text into pieces that a voice can speak at once, without losing a character.

`split_text` is pure: the pieces, joined, are the text. It cuts at paragraphs and sentences always, and at clauses,
words and at last between characters only where a piece would be longer than the voice was trained for.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from myxtts.errors import SynthesisError

SHORT_CHARS = 12
"""A sentence with fewer letters and digits joins a neighbour: single words are what XTTS voices speak worst."""

# A run of marks or spaces is looked at from its first one only: from each of them, the time would grow with its square.
_PARAGRAPH = re.compile(r"\n\s*")
_SENTENCE = re.compile(r"(?<![.!?…؟۔])[.!?…؟۔]+[\"'”’»)\]]*\s+|[。！？।॥]+[”’」』)]*\s*")
_CLAUSE = re.compile(r"[,;:،؛][\"'”’»)\]]*\s+|[、，；：]\s*|(?<!\s)\s+[-–—]+\s+|[)\]]\s+")
_WORD = re.compile(r"\s+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:[A-Za-z]|mr|mrs|ms|dr|prof|st|no|vs|etc|jr|sr|e\.g|i\.e|bzw|usw|z\.b|nr|ca|str)\.\s+$",
    re.IGNORECASE,
)


class Border(IntEnum):
    """What stands behind a piece, from the strongest to the weakest."""

    PARAGRAPH = 0
    SENTENCE = 1
    CLAUSE = 2
    WORD = 3
    CHARACTER = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the text, with every character of it, and the border that ends it."""

    text: str
    border: Border


def split_text(text: str, limit: int, cost: Callable[[str], int] = len) -> list[Piece]:
    """Pieces of at most `limit` by `cost` (such as tokens) whose texts, joined, are `text`.

    A single character may cost more than the limit; it is then a piece of its own.
    """
    if limit < 1:
        raise SynthesisError(f"pieces of at most {limit} were asked for", hint="the limit must be at least 1")
    pieces: list[Piece] = []
    for paragraph in _cut(text, Border.PARAGRAPH):
        sentences = _cut(paragraph.text, Border.SENTENCE, last=paragraph.border)
        for sentence in _with_neighbours(sentences, limit, cost):
            pieces += _fitted(sentence, limit, cost)
    return pieces


def _cut(text: str, border: Border, last: Border | None = None) -> list[Piece]:
    """The text cut behind every border of one kind; the last piece ends with what ended the whole."""
    ends = [end for end in _ends(text, border) if 0 < end < len(text)]
    places = [0, *ends, len(text)] if text else [0]
    parts = [text[start:end] for start, end in itertools.pairwise(places)]
    final = border if last is None else last
    return [Piece(part, final if number == len(parts) - 1 else border) for number, part in enumerate(parts)]


def _ends(text: str, border: Border) -> list[int]:
    if border is Border.PARAGRAPH:
        return [match.end() for match in _PARAGRAPH.finditer(text)]
    if border is Border.SENTENCE:
        return [match.end() for match in _SENTENCE.finditer(text) if _ends_sentence(text, match)]
    if border is Border.CLAUSE:
        return [match.end() for match in _CLAUSE.finditer(text)]
    if border is Border.WORD:
        return [match.end() for match in _WORD.finditer(text)]
    # A mark that changes the sign before it (a vowel point, a joiner, a skin tone) stays with it.
    return [place for place in range(1, len(text)) if not _belongs_to_previous(text, place)]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    after = text[match.end() : match.end() + 1]
    if after.islower():
        return False
    end = text[max(0, match.end() - 12) : match.end()]
    return match.group().lstrip()[:1] != "." or _ABBREVIATION.search(end) is None


def _belongs_to_previous(text: str, place: int) -> bool:
    joiners = "\u200c\u200d\ufe0e\ufe0f"
    sign = text[place]
    return unicodedata.category(sign) in ("Mn", "Mc", "Me", "Sk") or sign in joiners or text[place - 1] == "\u200d"


def _with_neighbours(sentences: Sequence[Piece], limit: int, cost: Callable[[str], int]) -> list[Piece]:
    """Very short sentences joined to the one after them, or at the end to the one before, where both fit together."""
    joined: list[Piece] = []
    for piece in sentences:
        if joined and (_is_short(joined[-1].text) or _is_short(piece.text)):
            both = joined[-1].text + piece.text
            if cost(both) <= limit:
                joined[-1] = Piece(both, piece.border)
                continue
        joined.append(piece)
    return joined


def _is_short(text: str) -> bool:
    return sum(sign.isalnum() for sign in text) < SHORT_CHARS


def _fitted(piece: Piece, limit: int, cost: Callable[[str], int], border: Border = Border.CLAUSE) -> list[Piece]:
    """The piece itself where it fits, or its parts at the strongest border that makes it fit."""
    if not piece.text or cost(piece.text) <= limit:
        return [piece] if piece.text else []
    parts = _cut(piece.text, border, last=piece.border)
    if len(parts) == 1:
        return parts if border is Border.CHARACTER else _fitted(piece, limit, cost, Border(border + 1))
    fitted: list[Piece] = []
    for packed in _packed(parts, limit, cost):
        if border is Border.CHARACTER or cost(packed.text) <= limit:
            fitted.append(packed)
        else:
            fitted += _fitted(packed, limit, cost, Border(border + 1))
    return fitted


def _packed(parts: Sequence[Piece], limit: int, cost: Callable[[str], int]) -> list[Piece]:
    """Neighbours put together as long as they fit, about equally long: no single word is left for the end."""
    costs = [cost(part.text) for part in parts]
    rows = max(1, -(-sum(costs) // limit))
    fair = max(1.0, sum(costs) / rows)
    packed: list[Piece] = []
    before, row_before = 0.0, -1
    for part, its_cost in zip(parts, costs, strict=True):
        row = int((before + its_cost / 2) / fair)
        # Costs of parts do not add up exactly: phonemes are linked, numbers are read as one.
        if row == row_before and cost(packed[-1].text + part.text) <= limit:
            packed[-1] = Piece(packed[-1].text + part.text, part.border)
        else:
            packed.append(part)
        before, row_before = before + its_cost, row
    return packed
