"""Phonemes: the same with a full cache as with an empty one."""

from __future__ import annotations

import pytest

from myxtts.text import phonemes


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one, two, three", "four, five, six", "one, six, two"]
    expected = [phonemes.phonemes(text, "en") for text in texts]
    monkeypatch.setattr(phonemes, "_CACHED_RUNS", 3)
    phonemes._cache.clear()

    assert phonemes.phonemes_of_many(texts, "en") == expected
    assert [phonemes.phonemes(text, "en") for text in texts] == expected
