"""Figures into words: a starving model device names the flag to change."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from myxtts.monitoring.figures import PhaseFigures, WindowFigures, average
from myxtts.monitoring.verdict import diagnose, diagnose_stage


def phase(busy: float) -> PhaseFigures:
    return PhaseFigures(busy=busy, waiting=0.0, blocked=1 - busy, ms_per_batch=100 * busy)


def window(
    *, source: float = 0.2, process: float = 0.5, transfer: float = 0.05, train: float = 0.95, **changes: Any
) -> WindowFigures:
    figures: dict[str, Any] = {
        "seconds": 10.0,
        "steps": 20,
        "step_ms": 500.0,
        "phases": {
            "source": phase(source),
            "process": phase(process),
            "transfer": phase(transfer),
            "train": phase(train),
        },
        "data_devices": ("/GPU:0",),
        "model_devices": ("/GPU:1",),
        "device_busy": {"/GPU:0": process, "/GPU:1": train},
        "stall_share": 1 - train,
        "buffer_depth": 45.0,
        "buffer_capacity": 50,
        "efficiency": 0.95,
        "bottleneck": "train",
        "oscillation": 0.02,
        "audio_seconds_per_s": 200.0,
        "padding_share": 0.05,
    }
    return WindowFigures(**(figures | changes))


def late_now_and_then() -> WindowFigures:
    """As measured with a buffer of 2 and every twentieth batch 0.6 s late: full whenever nothing is late."""
    figures = window(source=0.43, process=0.27, train=0.82, buffer_depth=1.85, buffer_capacity=2)
    late = PhaseFigures(busy=0.0, waiting=0.2, blocked=0.8, ms_per_batch=1.0)
    return replace(figures, phases={**figures.phases, "transfer": late})


def test_a_busy_model_device_is_well() -> None:
    verdict = diagnose(window(train=0.96))

    assert (verdict.level, verdict.advice) == ("good", "")
    assert "model device 96 % busy, data device 50 %" in str(verdict)


@pytest.mark.parametrize(
    ("figures", "blamed", "flag"),
    [
        (window(source=0.97, process=0.4, train=0.6, buffer_depth=0.5), "reading batches", "--num-workers"),
        (window(source=0.3, process=0.98, train=0.6, buffer_depth=0.5), "the data device", "--data-gpu"),
        (window(transfer=0.95, process=0.4, train=0.6, buffer_depth=0.5), "the transfer", "--batch-size"),
        (window(source=0.4, process=0.6, train=0.7, buffer_depth=3.0), "unevenly", "--buffer-size"),
        (window(source=0.45, process=0.3, train=0.8, buffer_depth=3.0), "unevenly", "--buffer-size (now 50)"),
        (late_now_and_then(), "unevenly", "--buffer-size (now 2)"),
        (window(source=0.2, process=0.5, train=0.8, buffer_depth=48.0), "handing over", "--batch-size"),
        (window(train=0.95, oscillation=0.4, stall_share=0.02), "swings", "--buffer-size"),
        (window(train=0.97, padding_share=0.4), "40 % of what it computes is padding", "--batch-seconds"),
    ],
)
def test_a_problem_names_who_is_to_blame_and_the_flag_to_change(figures: WindowFigures, blamed: str, flag: str) -> None:
    verdict = diagnose(figures)

    assert verdict.level == "warning"
    assert blamed in verdict.problem
    assert flag in verdict.advice


def test_a_window_without_a_step_is_not_called_well() -> None:
    assert diagnose(window(steps=0, step_ms=None)).level == "warning"


def test_data_work_on_the_only_device_is_no_stall_and_points_to_a_second_gpu() -> None:
    verdict = diagnose(
        window(
            process=0.4,
            train=0.58,
            data_devices=("/GPU:0",),
            model_devices=("/GPU:0",),
            device_busy={"/GPU:0": 0.98},
            stall_share=0.02,
        )
    )

    assert verdict.level == "good"
    assert "40 % of the time with data work" in verdict.problem
    assert "--data-gpu" in verdict.problem


def test_every_figure_of_two_windows_is_averaged_but_those_that_have_no_mean() -> None:
    """A new figure is averaged by itself; what cannot be is an error until it is named."""
    numbers = {item.name for item in dataclasses.fields(WindowFigures) if "float" in str(item.type)}
    numbers -= {"seconds", "step_ms", "device_busy"}
    one, two = (WindowFigures(seconds=1.0, steps=1, **dict.fromkeys(numbers, value)) for value in (1.0, 3.0))

    mean = average([one, two])

    assert {name: getattr(mean, name) for name in numbers} == dict.fromkeys(numbers, 2.0)
    assert (mean.seconds, mean.steps, mean.step_ms) == (2.0, 2, 1000.0)


def test_a_bad_stretch_is_not_hidden_by_a_good_average() -> None:
    good, bad = window(train=0.97), window(source=0.95, process=0.3, train=0.6, buffer_depth=0.0)

    verdicts = diagnose_stage([good] * 19 + [bad])

    assert [verdict.level for verdict in verdicts] == ["good", "warning"]
    assert "in 5 % of the time" in verdicts[1].problem
    assert "--num-workers" in verdicts[1].advice
    assert diagnose_stage([good] * 100 + [bad]) == [diagnose(average([good] * 100 + [bad]))]


def test_an_average_weighs_windows_by_their_time() -> None:
    mean = average([window(seconds=30.0, steps=30, train=1.0), window(seconds=10.0, steps=10, train=0.6)])

    assert (mean.seconds, mean.steps, mean.step_ms) == (40.0, 40, 1000.0)
    assert mean.model_busy == pytest.approx(0.9)
    assert mean.stall_share == pytest.approx(0.1)


def test_an_average_batch_is_all_busy_time_over_all_batches() -> None:
    def one(seconds: float, ms_per_batch: float | None) -> WindowFigures:
        busy = PhaseFigures(busy=1.0, waiting=0.0, blocked=0.0, ms_per_batch=ms_per_batch)
        return window(seconds=seconds, phases=dict.fromkeys(("source", "process", "transfer", "train"), busy))

    # Ten batches of 1 s and a hundred of 0.1 s.
    mean = average([one(10.0, 1000.0), one(10.0, 100.0), one(5.0, None)])

    assert mean.phases["train"].ms_per_batch == pytest.approx(20_000 / 110)


def test_an_average_leaves_out_what_was_not_measured() -> None:
    mean = average(
        [window(oscillation=None, audio_seconds_per_s=None), window(oscillation=0.5, audio_seconds_per_s=None)]
    )

    assert mean.oscillation == 0.5
    assert mean.audio_seconds_per_s is None
