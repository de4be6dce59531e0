"""The trainer's arithmetic: mirrored equals single, accumulation equals the mean, a bad batch changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processes import run_program


def answer(question: str) -> dict[str, Any]:
    output = run_program("trainer_exactness", question, few_steps=True, TF_NUM_INTRAOP_THREADS="1")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


FIGURES = {"codec": ("l1", "mse"), "gpt": ("text", "audio", "accuracy")}


@pytest.mark.slow
def test_mirrored_equals_single_over_ten_steps_and_in_validation_and_the_replicas_agree() -> None:
    for stage, seen in answer("mirrored_and_single").items():
        assert seen["replicas"] == 2, stage
        assert seen["replica_difference"] == 0.0, stage
        assert seen["difference"] < 1e-5, (stage, seen)
        assert set(FIGURES[stage]) < set(seen["shown"]), (stage, seen)
        before, after = seen["losses"]
        assert after < before, f"{stage} learns what it is shown"
        assert seen["validation_difference"] < 1e-5, (stage, seen)
        assert (stage == "gpt") == ("alignment" in seen["validated"])
        assert seen["validation_traces"] == 1, "rows and lengths of any size share one trace"


@pytest.mark.slow
def test_a_step_of_unlike_batches_is_the_mean_of_their_gradients_on_one_device_and_mirrored() -> None:
    for stage, seen in answer("accumulated").items():
        assert seen["replica_difference"] == 0.0, stage
        assert seen["mirrored"]["loss"] == pytest.approx(seen["single"]["loss"], rel=1e-5), stage
        for placement in ("single", "mirrored"):
            found, wanted = seen[placement]["norm"]
            assert found == pytest.approx(wanted, rel=1e-4), (stage, placement)
            assert seen[placement]["direction"] < 1e-5, (stage, placement)


def test_the_loss_scale_cancels_out_and_bad_batches_change_nothing() -> None:
    seen = answer("odd_batches")

    assert abs(seen["norms"][0] - seen["norms"][1]) < 1e-4
    assert seen["difference"] < 1e-6
    assert seen["unchanged"] is True
    assert seen["mixed"][0] == pytest.approx(seen["mixed"][1]), "the terms of all batches make the loss of all"
    assert seen["skipped_steps"] == 10
    assert seen["traces"] == [1], "rows and lengths of any size share one trace"
    assert "10 steps in a row had no finite gradient" in seen["stopped"]
    assert "--learning-rate" in seen["stopped"]
    assert "403 tokens is longer than the 402" in str(seen["refused"])
    assert "610 audio codes are more than the 605" in str(seen["refused"])


def test_the_conditioning_learns_at_a_third_of_the_gpts_rate() -> None:
    moved = answer("rates")

    # Adam's first step is the learning rate wherever there is a gradient, and weight decay next to nothing.
    assert moved["conditioning"] == pytest.approx(moved["gpt"] / 3, rel=0.05)


@pytest.mark.slow
def test_steps_and_validations_give_tensorflow_no_number_that_it_keeps() -> None:
    assert answer("numbers_kept") == {"learnt": 4, "new": [[], []]}
