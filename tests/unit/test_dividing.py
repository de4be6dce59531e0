"""A piece that cannot be spoken whole is spoken in parts."""

from __future__ import annotations

import pytest

from myxtts import open_voice
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voice import BASE

TEXT = "The old man walked slowly home, and all of the children followed him. Then it rained."
# Two seconds and a half at most, which the first sentence is too long for.
BRIEF = HallucinationChecks(codes_per_token=0.1, spare_codes=50, retries=0)


@pytest.fixture(scope="module")
def base() -> Synthesizer:
    return open_voice(BASE)


def test_no_text_and_no_fault_is_left(base: Synthesizer) -> None:
    spoken = base.speak(TEXT, candidates=2, checks=BRIEF)

    pieces = spoken.report.pieces
    assert len(pieces) == 3
    assert "".join(piece.text for piece in pieces) == TEXT
    assert [piece.fault for piece in pieces] == [None] * 3
    assert [word.word for word in spoken.words] == TEXT.split()
    starts = [word.start_s for word in spoken.words]
    assert starts == sorted(starts)
    assert spoken.words[-1].end_s <= spoken.seconds + 0.001, "times are in whole milliseconds"


def test_what_is_too_short_to_divide_is_reported(base: Synthesizer) -> None:
    none = HallucinationChecks(codes_per_token=0.1, spare_codes=1, retries=0)

    [piece] = base.speak("Hello there.", candidates=1, checks=none).report.pieces

    assert piece.fault == "no stop"


def test_without_checks_nothing_is_divided(base: Synthesizer) -> None:
    [first, _] = base.speak(TEXT, candidates=1, checks=None).report.pieces

    assert first.text == TEXT[: TEXT.index("Then")]


def test_parts_are_not_divided_again(base: Synthesizer) -> None:
    none = HallucinationChecks(codes_per_token=0.1, spare_codes=1, retries=0)

    assert len(base.speak(TEXT[: TEXT.index("Then")], candidates=1, checks=none).report.pieces) == 2
