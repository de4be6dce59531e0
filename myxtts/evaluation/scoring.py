"""Scores from words and vectors: error rates, similarity, and their averages over utterances. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.models.ctc_paths import edit_distance
from myxtts.text.languages import find_language
from myxtts.text.normalise import normalise
from myxtts.text.persian import ZWNJ
from myxtts.text.phonemes import phonemes

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """Edits between a transcript and its text, and the length of the text."""

    errors: int
    length: int

    @property
    def rate(self) -> float | None:
        return self.errors / self.length if self.length else None

    def __add__(self, other: ErrorCount) -> ErrorCount:
        return ErrorCount(self.errors + other.errors, self.length + other.length)


def spoken_words(text: str, language: str) -> list[str]:
    """The words of a text as they are said: digits as words, no punctuation, one case.

    Marks belong to their letter: Hindi writes its vowels with them. Arabic and Persian may write theirs or not, so that
    there they are left out.
    """
    plain = normalise(text, language)
    if find_language(language).script == "arabic":
        plain = "".join(sign for sign in plain.replace(ZWNJ, " ") if not _is_mark(sign))
    kept = ""
    for sign in plain.replace(ZWNJ, ""):
        # A mark on something that is no letter is part of a picture: a red heart is a heart and a mark.
        kept += sign if sign.isalnum() or sign == "'" or (_is_mark(sign) and kept[-1:].strip()) else " "
    return [word.strip("'") for word in kept.split() if word.strip("'")]


def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign).startswith("M")


def word_errors(text: str, transcript: str, language: str) -> ErrorCount:
    words = spoken_words(text, language)
    return ErrorCount(edit_distance(words, spoken_words(transcript, language)), len(words))


def character_errors(text: str, transcript: str, language: str) -> ErrorCount:
    """Over letters only, so that a compound written as two words is no error."""
    letters = "".join(spoken_words(text, language))
    return ErrorCount(edit_distance(letters, "".join(spoken_words(transcript, language))), len(letters))


def phones_of(ipa: str) -> list[str]:
    """The letters of an IPA text: no stress, length, tone, spaces or punctuation."""
    return [sign for sign in ipa if unicodedata.category(sign) in ("Ll", "Lu", "Lo", "Lt")]


def phone_errors(text: str, recognised: Sequence[str], language: str) -> ErrorCount:
    """Phones of the text, as espeak reads it, against the phones that were recognised."""
    expected = phones_of(phonemes(normalise(text, language), language))
    return ErrorCount(edit_distance(expected, list(recognised)), len(expected))


def cosine(left: Vector, right: Vector) -> float:
    return float(np.dot(left, right) / max(1e-12, float(np.linalg.norm(left) * np.linalg.norm(right))))


def pooled(counts: Iterable[ErrorCount | None]) -> float | None:
    """The rate over all utterances together, so that long ones count more; None where there are none."""
    there = [count for count in counts if count is not None]
    return sum(there, ErrorCount(0, 0)).rate if there else None


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def mean(values: Iterable[float | None]) -> float | None:
    there = known(values)
    return sum(there) / len(there) if there else None
