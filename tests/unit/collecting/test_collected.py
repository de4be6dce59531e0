"""The folder of collected pieces, reviewed by hand: a piece changes its text and its side, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myxtts.data.collected import CollectedFolder, opened
from myxtts.errors import DataError
from tests.serving import make_collected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_collected(tmp_path / "collected")
    return tmp_path / "collected"


def review(folder: Path, own: str, text: str, *, kept: bool) -> None:
    with opened(folder) as collected:
        collected.review(own, text, kept=kept)


def sides(folder: Path) -> list[tuple[str, bool, str]]:
    return [(piece.id[-1], piece.kept, piece.text) for piece in CollectedFolder(folder).pieces()]


def test_a_piece_is_corrected_where_it_is(folder: Path) -> None:
    review(folder, "anna_00001", "The very first one.", kept=True)
    review(folder, "anna_00003", "The third one", kept=False)

    assert sides(folder) == [
        ("1", True, "The very first one."),
        ("2", True, "The second one."),
        ("3", False, "The third one"),
    ]


def test_a_dropped_piece_has_its_time_and_can_come_back(folder: Path) -> None:
    review(folder, "anna_00002", "The second one.", kept=False)

    aside = [json.loads(line) for line in (folder / "set_aside.jsonl").read_text().splitlines()]
    assert [(row["id"], row["reason"], row["start_s"]) for row in aside][1:] == [("anna_00002", "dropped by hand", 2.0)]
    review(folder, "anna_00002", "The second one.", kept=True)
    assert [kept for _, kept, _ in sides(folder)] == [True, True, False]


def test_what_cannot_be_kept_changes_nothing(folder: Path) -> None:
    before = sides(folder)

    with pytest.raises(DataError, match="without words"):
        review(folder, "anna_00003", " | ", kept=True)
    with pytest.raises(DataError, match="in arabic letters, which 'en' is not written in"):
        review(folder, "anna_00003", "سلام، دوست من.", kept=True)
    with pytest.raises(KeyError):
        review(folder, "anna_00009", "Hello.", kept=True)

    assert sides(folder) == before
