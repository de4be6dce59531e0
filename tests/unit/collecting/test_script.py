"""Pieces aligned to a script: each gets the script's own words, or a poor match."""

from __future__ import annotations

import numpy as np

from myxtts.collecting.collect import decide
from myxtts.collecting.script import align, match_pieces, script_words
from myxtts.data.collected import Heard

SCRIPT = "It was 5 o'clock, and Mr. Steele slept. Nobody knew why!\nThe “old” house — a ruin — stood empty. All left."


def texts(heard: list[str], script: str = SCRIPT, language: str = "en") -> list[str]:
    return [match.text for match in match_pieces(heard, script_words(script, language), language)]


def test_misheard_words_become_the_scripts() -> None:
    heard = [
        "it was five a clock and mister steals slept",
        "nobody new why",
        "the old house a ruin stood emptied",
        "all left",
    ]

    assert texts(heard) == [
        "It was 5 o'clock, and Mr. Steele slept.",
        "Nobody knew why!",
        "The “old” house — a ruin — stood empty.",
        "All left.",
    ]


def test_a_recording_may_be_a_part_of_the_script() -> None:
    assert texts(["the old house", "a ruin stood empty"]) == ["The “old” house —", "a ruin — stood empty."]


def test_a_word_that_was_not_heard_goes_to_the_piece_whose_letters_miss_it() -> None:
    script = "one two three four five six seven eight"

    assert texts(["one two three", "for five six", "eight"], script) == ["one two three", "four five six", "eight"]


def test_a_sentence_that_was_not_read_belongs_to_no_piece() -> None:
    script = "the cat sat on the mat. an entirely different sentence was skipped. dogs bark at night."

    assert texts(["the cat sat on the mat", "dogs bark at night"], script) == [
        "the cat sat on the mat.",
        "dogs bark at night.",
    ]


def test_speech_that_is_not_in_the_script_matches_badly() -> None:
    heard = ["nobody knew why", "excuse me could you close that door please", "the old house a ruin"]

    matches = match_pieces(heard, script_words(SCRIPT, "en"), "en")

    assert [match.problem is not None for match in matches] == [False, True, False]


def test_persian_and_chinese_scripts_are_matched_too() -> None:
    assert texts(["سلام دوست من", "هوا خوب است"], "سلام، دوست من! هوا خوب است.", "fa") == [
        "سلام، دوست من!",
        "هوا خوب است.",
    ]
    assert texts(["今天天气很号", "我们去公园"], "今天天气很好。我们去公园。", "zh-cn") == [
        "今天天气很好。",
        "我们去公园。",
    ]


def test_alignment_of_thousands_of_words_is_that_of_the_words() -> None:
    rng = np.random.default_rng(0)
    script = rng.integers(0, 800, 3000)
    places = np.delete(np.arange(500, 2500), rng.choice(2000, 60, replace=False))
    heard = script[places]
    heard[rng.choice(len(heard), 100, replace=False)] = 900

    found = align(heard, script, free_ends=True)

    assert np.mean(found == places) > 0.97
    assert (np.diff(found[found >= 0]) > 0).all()


def test_pieces_that_match_badly_are_set_aside_with_what_was_heard() -> None:
    pieces = [Heard(0, 0, 2, None, "nobody new why"), Heard(1, 3, 6, None, "close that door over there please")]
    matches = match_pieces([piece.text for piece in pieces], script_words(SCRIPT, "en"), "en")

    (text, reason), (heard, poor) = (decide(*both, "en") for both in zip(pieces, matches, strict=True))

    assert (text, reason) == ("Nobody knew why!", None)
    assert heard == "close that door over there please"
    assert poor is not None
    assert poor.startswith("not the script:")
