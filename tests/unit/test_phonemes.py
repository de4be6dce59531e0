"""Phonemes: the same with a full cache as with an empty one, all scripts of a word, few questions to espeak."""

from __future__ import annotations

import pytest

from myxtts.text import phonemes
from myxtts.text.normalise import normalise


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one, two, three", "four, five, six", "one, six, two"]
    expected = [phonemes.phonemes(text, "en") for text in texts]
    monkeypatch.setattr(phonemes, "_CACHED_RUNS", 3)
    phonemes._cache.clear()

    assert phonemes.phonemes_of_many(texts, "en") == expected
    assert [phonemes.phonemes(text, "en") for text in texts] == expected


@pytest.mark.parametrize(
    ("word", "parts"),
    [("lg전자", ("lg", "전자")), ("tシャツ", ("t", "シャツ")), ("bგd", ("b", "გ", "d")), ("việt", ("việt",))],
)
def test_each_script_of_a_word_is_spoken(word: str, parts: tuple[str, ...]) -> None:
    assert phonemes.phonemes(word, "en") == " ".join(phonemes.phonemes(part, "en") for part in parts)


@pytest.mark.parametrize(
    ("text", "asked"),
    [("ordinary, “long-winded” (naïve) snake_case: isn't it? 5 > 3; سلام!", ""), ("a * b × c * d", "*")],
)
def test_espeak_is_asked_for_doubtful_signs_only_and_once(text: str, asked: str) -> None:
    plain = normalise(text, "en")
    phonemes._cache.clear()

    assert phonemes.unspoken(plain, "en") == set()
    assert sorted(sign for _, sign in phonemes._cache) == sorted(asked)
