"""The parts of `myxtts validate`: what a failing one says."""

from __future__ import annotations

import math

import pytest

from myxtts.cli.validate import main, require_falling, started
from myxtts.errors import DeviceError, UsageError


@pytest.mark.parametrize(
    ("losses", "problem"),
    [
        ([2.0, 1.0, 2.0], "stage gpt: the loss did not fall: 2.000 to 2.000 in 3 steps"),
        ([2.0, math.nan], "stage gpt: the loss is no longer a number: 2.000 to nan in 2 steps"),
        ([math.nan, 1.0], "stage gpt: the loss is no longer a number: nan to 1.000"),
        ([math.inf, 1.0], "stage gpt: the loss is no longer a number: inf to 1.000"),
    ],
)
def test_a_loss_that_does_not_fall_or_is_no_number_fails(losses: list[float], problem: str) -> None:
    with pytest.raises(DeviceError) as error:
        require_falling(losses, "gpt")

    assert error.value.problem.startswith(problem)


def test_a_loss_that_falls_passes() -> None:
    require_falling([2.0, 3.0, 1.9], "gpt")


@pytest.mark.parametrize("flag", ["--data-gpu", "--model-gpu"])
def test_several_gpus_of_a_role_are_refused_in_words(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag} is '1,2': validate takes one GPU for each role") as error:
        main([flag, "1,2"])

    assert "--data-gpu 0 --model-gpu 1" in error.value.hint


def test_a_buffer_that_is_still_empty_is_not_called_ready() -> None:
    assert started(2.0, 0) == "started after 2.0 s, buffer still empty"
    assert started(0.4, 4) == "buffer ready after 0.4 s with 4 batches"
