"""The placement benchmark's advice: the fastest, single unless another is clearly faster, honest when simulated."""

from __future__ import annotations

import pytest

from myxtts.cli.bench import PLACEMENTS, Measured, advice, failure, main
from myxtts.errors import TrainingError


def measured(**audio_per_s: float) -> list[Measured]:
    by_name = {placement.name: placement for placement in PLACEMENTS}
    return [Measured(by_name[name], 1.0, rate, "", 0.0, None) for name, rate in audio_per_s.items()]


def test_the_fastest_placement_is_named_with_its_flags() -> None:
    text = advice(measured(single=100, dual=160, mirrored=150), simulated=False)

    assert text == "Use --data-gpu 0 --model-gpu 1: 1.60 times a single device."


def test_a_gain_below_5_percent_is_not_worth_a_flag() -> None:
    assert "no device flags" in advice(measured(single=100, dual=104), simulated=False)
    assert "no device flags" in advice(measured(single=100, dual=60), simulated=False)


def test_simulated_figures_are_not_sold_as_gpu_figures() -> None:
    assert "measure on the GPUs themselves" in advice(measured(single=100, dual=160), simulated=True)


def test_a_comparison_that_there_is_not_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["anything", "--train-data", "nowhere"])

    assert ended.value.code == 2
    assert "placement" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_one_error_with_its_own_hint() -> None:
    with pytest.raises(TrainingError) as raised:
        main(["placement", "--train-data", "nowhere"])

    assert raised.value.problem == "the single run failed: --train-data nowhere is not there"
    assert raised.value.hint == "give the folder that holds metadata.csv and wavs/"


def test_a_run_that_fails_without_a_hint_can_be_repeated_by_hand() -> None:
    arguments = ["train", "--run-dir", "/tmp/gone/dual", "--max-steps", "2"]

    error = failure(PLACEMENTS[1], "a warning\nKilled\n", arguments)

    assert error.problem == "the dual run failed: Killed"
    assert error.hint.endswith("train --run-dir runs/bench-dual --max-steps 2")
