"""Which codes the checks call a fault, and where they would cut."""

from __future__ import annotations

import numpy as np
import pytest

from myxtts.errors import ConfigError
from myxtts.synthesis.hallucinations import HallucinationChecks, check_codes, expected_limit, loop_start

CHECKS = HallucinationChecks(loop_codes=32, tail_codes=10, skip_tokens=4)


def speech(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1024, count)


@pytest.mark.parametrize("pattern", [[7], [7, 8], [1, 2, 3, 4, 5], list(range(16))])
def test_a_pattern_repeated_until_the_end_is_a_loop_cut_after_its_first_turn(pattern: list[int]) -> None:
    codes = np.concatenate([speech(50), np.tile(np.array(pattern) + 2000, 40)])

    assert loop_start(codes, CHECKS) == 50 + len(pattern)
    assert check_codes(codes, True, 100, CHECKS).fault == "loop"


def test_a_pause_and_a_repeat_in_the_middle_are_no_loop() -> None:
    pause_in_the_middle = np.concatenate([speech(40), np.full(60, 5), speech(40, 1)])
    short_pause_at_the_end = np.concatenate([speech(40), np.full(20, 5)])

    assert loop_start(pause_in_the_middle, CHECKS) is None
    assert loop_start(short_pause_at_the_end, CHECKS) is None
    assert loop_start(np.array([], np.int32), CHECKS) is None


def test_speech_that_did_not_stop_is_a_fault_and_keeps_all_codes() -> None:
    verdict = check_codes(speech(80), False, 20, CHECKS)

    assert (verdict.fault, verdict.keep) == ("no stop", 80)
    assert check_codes(speech(80), True, 20, CHECKS).good


def test_speech_that_wanders_and_does_not_stop_is_cut_where_it_stopped_getting_on() -> None:
    spoken_token = np.concatenate([np.arange(12).repeat(3), np.tile([4, 5, 6, 11], 30)])

    verdict = check_codes(speech(156), False, 20, CHECKS, spoken_token)

    # Token 11 of 20 is first looked at by code 33, and 10 more codes may follow.
    assert (verdict.fault, verdict.keep) == ("no stop", 43)


def test_a_tail_after_the_text_is_cut() -> None:
    spoken_token = np.concatenate([np.arange(20).repeat(3), np.full(60, 20)])

    verdict = check_codes(speech(120), True, 20, CHECKS, spoken_token)

    # The last token but one starts at code 54, and 10 more codes may follow.
    assert (verdict.fault, verdict.keep) == ("tail", 64)


def test_a_tail_is_heard_behind_the_last_sound_though_a_full_stop_follows_it() -> None:
    # 18 is the last phone of 20 tokens; the heads never look at the full stop behind it, and stay a token short of it.
    spoken_token = np.concatenate([np.arange(17).repeat(3), np.full(60, 17)])

    verdict = check_codes(speech(111), True, 20, CHECKS, spoken_token, last_sounding=18)

    assert (verdict.fault, verdict.keep) == ("tail", 61)


def test_speech_that_stops_in_the_middle_of_its_text_left_words_out() -> None:
    half, nearly_all = np.arange(36).repeat(2), np.arange(74).repeat(2)

    assert check_codes(speech(72), True, 80, CHECKS, half).fault == "skip"
    assert check_codes(speech(148), True, 80, CHECKS, nearly_all, last_sounding=77).good


def test_a_glimpse_of_the_end_decides_nothing() -> None:
    reading = np.arange(1, 79).repeat(3)
    glimpsing = reading.copy()
    glimpsing[[1, 100]] = 79

    assert check_codes(speech(234), True, 80, CHECKS, glimpsing).good
    assert check_codes(speech(234), False, 80, CHECKS, glimpsing) == check_codes(
        speech(234), False, 80, CHECKS, reading
    )
    assert check_codes(speech(234), False, 80, CHECKS, reading).keep == 234


def test_words_left_out_are_a_skip() -> None:
    smooth = np.arange(20).repeat(3)
    jumping = np.concatenate([smooth[:24], smooth[42:]])

    assert check_codes(speech(60), True, 20, CHECKS, smooth).good
    assert check_codes(speech(42), True, 20, CHECKS, jumping).fault == "skip"


def test_far_too_few_codes_for_the_text_are_no_speech_of_it() -> None:
    assert check_codes(speech(0), True, 1, CHECKS).fault == "short"
    assert check_codes(speech(7), True, 20, CHECKS).fault == "short"
    assert check_codes(speech(8), True, 20, CHECKS).good


def test_a_longer_text_may_take_longer() -> None:
    assert expected_limit(10, HallucinationChecks(codes_per_token=8, spare_codes=5)) == 85


def test_a_loop_shorter_than_a_word_is_refused_as_a_setting() -> None:
    with pytest.raises(ConfigError, match="loop_codes is 2"):
        HallucinationChecks(loop_codes=2)
