"""Reading sentences aloud, with a sound card and a person that are not there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from myxtts.cli.record import main
from myxtts.collecting.reading_aloud import builtin_sentences, meter, record_sentences
from myxtts.data.collected import opened
from myxtts.data.corpora import list_corpus
from myxtts.errors import MissingDependencyError, UsageError, how_to_install
from tests.recording_maker import RATE, recording

GOOD = recording([2], [1, 1])
SILENT = np.zeros(RATE, np.float32)
SENTENCES = ["One sentence.", "Another one.", "The last."]


class FakeCard:
    """Plays the takes that it is given, in blocks, as a sound card would hand them over."""

    sample_rate = RATE

    def __init__(self, *takes: np.ndarray) -> None:
        self._takes = list(takes)

    def start(self, on_block: Callable[[np.ndarray], None]) -> None:
        for block in np.array_split(self._takes.pop(0), 7):
            on_block(block)

    def stop(self) -> str | None:
        return None


class Reader:
    """Answers from a list; ends the session when it has no more."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.shown: list[str] = []
        self.levels: list[float] = []

    def show(self, line: str) -> None:
        self.shown.append(line)

    def ask(self, question: str) -> str:
        return self._answers.pop(0) if self._answers else "q"

    def level(self, peak_db: float) -> None:
        self.levels.append(peak_db)


def session(out: Path, card: FakeCard, reader: Reader) -> int:
    with opened(out) as folder:
        return record_sentences(folder, SENTENCES, card, reader, speaker="anna", language="en")


def texts(out: Path) -> list[str]:
    return [entry.text for entry in list_corpus(out, language="en").entries]


def test_kept_takes_are_a_corpus_and_the_next_session_goes_on(tmp_path: Path) -> None:
    assert session(tmp_path / "out", FakeCard(GOOD), Reader("", "", "k")) == 1
    reader = Reader("", "", "", "", "", "")

    assert session(tmp_path / "out", FakeCard(GOOD, GOOD), reader) == 2

    assert texts(tmp_path / "out") == SENTENCES
    assert reader.shown[0].endswith("2 of 3:  Another one.")


def test_a_take_may_be_read_again_or_skipped(tmp_path: Path) -> None:
    reader = Reader("", "", "r", "", "", "k", "s", "what?", "s")

    assert session(tmp_path / "out", FakeCard(GOOD, GOOD), reader) == 1

    assert texts(tmp_path / "out") == SENTENCES[:1]


def test_a_take_without_speech_is_read_again_unless_one_insists_and_then_too(tmp_path: Path) -> None:
    reader = Reader("", "", "", "", "", "k", "q")

    assert session(tmp_path / "out", FakeCard(SILENT, SILENT), reader) == 0

    assert "there is nothing to keep" in reader.shown
    assert any("no speech" in line for line in reader.shown)


def test_the_pauses_around_a_take_are_cut(tmp_path: Path) -> None:
    session(tmp_path / "out", FakeCard(recording([2], [3, 4])), Reader("", "", "k"))

    (entry,) = list_corpus(tmp_path / "out", language="en").entries
    assert entry.audio is not None
    seconds = len(next(iter((tmp_path / "out" / "wavs").iterdir())).read_bytes()) / 2 / RATE
    assert 2.3 < seconds < 2.9


def test_the_meter_shows_the_level(tmp_path: Path) -> None:
    reader = Reader("", "", "k")
    session(tmp_path / "out", FakeCard(GOOD), reader)

    assert max(reader.levels) > -12
    assert meter(-30).count("#") == 15
    assert "too loud" in meter(0.0)


def test_without_sounddevice_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)

    with pytest.raises(MissingDependencyError, match=re.escape(how_to_install("record"))):
        main(["--out", str(tmp_path / "out"), "--speaker", "anna"])


def test_sentences_of_ours_are_there_in_two_languages() -> None:
    assert len(set(builtin_sentences("fa", 30))) == 30
    with pytest.raises(UsageError, match="--texts"):
        builtin_sentences("de", 3)
