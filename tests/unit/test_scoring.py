"""Error rates, the table, and metrics that are there, missing, or of one's own."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from myxtts.data.prepare import prepare
from myxtts.errors import ConfigError, MissingDependencyError, how_to_install
from myxtts.evaluation import metrics as metrics_module
from myxtts.evaluation.evaluate import Row, summarise
from myxtts.evaluation.metrics import Metrics, Moonshine, add_phone_metric, load_recogniser, refuse_without_metrics
from myxtts.evaluation.page import notes, text_table, write_page
from myxtts.evaluation.scoring import (
    ErrorCount,
    character_errors,
    edit_distance,
    phone_errors,
    pooled,
    spoken_words,
    word_errors,
)
from tests.corpus_maker import make_ljspeech, settings


@pytest.mark.parametrize(
    ("wanted", "found", "edits"),
    [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_edit_distance(wanted: str, found: str, edits: int) -> None:
    assert edit_distance(wanted, found) == edits


def test_digits_case_and_punctuation_are_no_errors() -> None:
    assert word_errors("Four, eight: one!", "4 8 1", "en") == ErrorCount(0, 3)
    assert word_errors("It's 3 o'clock.", "its three o'clock", "en") == ErrorCount(1, 3)


def test_words_written_apart_cost_words_but_no_letters() -> None:
    assert word_errors("a blackbird sings", "a black bird sings", "en").errors == 2
    assert character_errors("a blackbird sings", "a black bird sings", "en").errors == 0


def test_vowel_signs_belong_to_their_word() -> None:
    assert spoken_words("हिन्दी भाषा।", "hi") == ["हिन्दी", "भाषा"]
    assert word_errors("हिन्दी भाषा", "हान्दू भीषे", "hi") == ErrorCount(2, 2)
    assert spoken_words("a red \u2764\ufe0fheart\u2764\ufe0f", "en") == ["a", "red", "heart"]


@pytest.mark.parametrize(
    ("language", "vowelled", "plain"),
    [("ar", "كِتَابٌ جَدِيدٌ", "كتاب جديد"), ("fa", "گُلِ سُرخ می\u200cرَوَد", "گل سرخ می رود")],
)
def test_vowels_that_may_be_written_or_not_are_no_errors(language: str, vowelled: str, plain: str) -> None:
    words = len(plain.split())

    assert word_errors(vowelled, plain, language) == word_errors(plain, vowelled, language) == ErrorCount(0, words)


def test_phones_are_compared_without_stress_and_length() -> None:
    assert phone_errors("see", ["s", "i"], "en").errors == 0


def test_rates_are_over_all_words_together() -> None:
    assert pooled([ErrorCount(1, 1), None, ErrorCount(0, 9)]) == 0.1
    assert pooled([None]) is None
    assert ErrorCount(0, 0).rate is None


def row(system: str, **manifest: object) -> Row:
    return Row(item="1", system=system, text="<Hi>", language="en", speaker="s", **manifest)  # type: ignore[arg-type]


def test_the_summary_counts_failures_and_leaves_unknown_scores_open() -> None:
    rows = [
        row("speech", words=ErrorCount(1, 4), similarity=0.5, right_speaker=True, failure="loop"),
        row("speech", words=ErrorCount(1, 4), right_speaker=False),
        row("real clip", words=ErrorCount(0, 4)),
    ]

    speech, real = summarise(rows)

    assert (speech.word_error, speech.similarity, speech.right_speaker, speech.failures) == (0.25, 0.5, 0.5, 1)
    assert (real.system, real.naturalness) == ("real clip", None)
    assert (speech.evaluated, real.evaluated) == ({"similarity": 1}, {}), "one of two has a similarity"
    table = text_table([speech, real]).splitlines()
    assert len({len(line) for line in table}) == 1
    assert "25.0 %" in table[1]
    assert "0.50 (1)" in table[1]
    assert "similarity" in table[0]
    assert "naturalness" not in table[0], "a column that nobody evaluated"


def test_the_page_escapes_texts_and_says_what_is_missing(tmp_path: Path) -> None:
    metrics = Metrics(missing=["naturalness needs distillmos"])
    rows = [row("speech", transcript="high")]
    summaries = summarise(rows)
    write_page(tmp_path / "e.html", "A & B", rows, summaries, notes(metrics, rows, summaries), tmp_path / "sounds")

    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    assert "&lt;Hi&gt;" in page
    assert "naturalness needs distillmos" in page
    assert "transcript: high" in page


def test_no_metric_at_all_is_an_error_with_the_cure() -> None:
    with pytest.raises(MissingDependencyError) as caught:
        refuse_without_metrics(Metrics(missing=["words need x"]))

    assert caught.value.hint == how_to_install("eval")


class OwnRecogniser:
    name = "mine"
    languages = frozenset({"en"})

    def transcribe(self, wave: np.ndarray, sample_rate: int) -> str:
        return "hello"


def test_a_recogniser_of_ones_own_is_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_asr")
    module.make = OwnRecogniser  # type: ignore[attr-defined]
    module.wrong = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_asr", module)

    assert load_recogniser("my_asr:make").name == "mine"
    module.broken = lambda: {}["model"]  # type: ignore[attr-defined]
    for wrong in ("my_asr:wrong", "my_asr:none", "no_such_asr:make", "my_asr", "my_asr:broken"):
        with pytest.raises(ConfigError, match="--asr"):
            load_recogniser(wrong)


def test_a_corpus_without_phonemes_has_no_phone_metric_and_says_so(tmp_path: Path) -> None:
    metrics = Metrics()
    corpus = make_ljspeech(tmp_path / "corpus", clips=2)
    add_phone_metric(metrics, corpus, prepare(str(corpus), settings(tmp_path / "cache"), workers=1), tmp_path)

    assert metrics.phones is None
    assert "phonemes.csv" in metrics.missing[0]


def test_a_recogniser_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    monkeypatch.setattr(metrics_module, "TRANSCRIBING_LIMIT_S", 0.2)

    with pytest.raises(RuntimeError, match=r"no answer in 0\.2 seconds"):
        Moonshine()
