"""The placement benchmark's advice: the fastest, single unless another is clearly faster, honest when simulated."""

from __future__ import annotations

import pytest

from myxtts.cli.bench import PLACEMENTS, Measured, advice, main


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
