"""Runs of weeks, and runs that were resumed: every part of them counts as much as the last."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from myxtts.monitoring import curves
from myxtts.monitoring.console import LiveConsole, render
from myxtts.monitoring.events import EventLog, read_events
from myxtts.monitoring.figures import average
from myxtts.monitoring.report import render_report, write_report
from myxtts.monitoring.run_state import RunState, StageHistory
from myxtts.monitoring.schema import SCHEMA, Event, MemoryReading
from tests.unit.test_monitoring_views import Clock, figures

DAY_S = 86_400.0


def event(name: str, time: float, **fields: Any) -> Event:
    return SCHEMA[name](time=time, **fields)


def window(time: float, step: int, stage: str = "gpt", **changes: Any) -> Event:
    return event("window", time, stage=stage, step=step, figures=dataclasses.replace(figures(), **changes))


def reading(step: int) -> MemoryReading:
    return MemoryReading(device="/CPU:0", source="process RSS", current_mb=float(step))


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(curves, "KEPT_POINTS", 100)
    return 100


@pytest.mark.parametrize("count", [99, 101, 250, 1_000, 12_345])
def test_every_part_of_a_long_run_is_kept_equally_fine(few_points: int, count: int) -> None:
    history = StageHistory()
    for step in range(1, count + 1):
        history.add_step(step, float(step))
    steps = [point.step for point in history.points]
    gaps = [after - before for before, after in itertools.pairwise([0, *steps])]

    assert len(steps) <= few_points
    assert len(set(gaps[:-1])) == 1
    assert gaps[-1] <= gaps[0], "the last point may be of fewer steps"
    assert steps[-1] == count


def test_a_point_of_a_long_curve_is_the_mean_of_its_steps_and_counts_losses_that_are_no_numbers(
    few_points: int,
) -> None:
    history = StageHistory()
    for step in range(1, 1_001):
        history.add_step(step, None if step % 10 == 0 else 3.0 if step % 2 else 1.0)

    # Of ten steps 5 are odd and 4 are even numbers.
    assert sum(point.unknown for point in history.points) == 100
    total, known = sum(point.total for point in history.points), sum(point.known for point in history.points)
    assert (total, known) == (500 * 3.0 + 400 * 1.0, 900)


def test_steps_that_a_resumed_run_repeats_replace_the_lost_ones_of_a_long_curve(few_points: int) -> None:
    history = StageHistory()
    for step in range(1, 1_001):
        history.add_step(step, 1.0)
    for step in range(501, 601):
        history.add_step(step, 2.0)
    points = history.points

    assert points[-1].step == 600
    assert all(point.loss == 1.0 for point in points if point.step <= 500)
    assert all(point.loss == 2.0 for point in points if point.step > 500)


def test_the_loss_curve_of_a_long_run_is_drawn_from_its_first_step_without_a_break(
    few_points: int, tmp_path: Path
) -> None:
    state = RunState(event("step", float(step), stage="gpt", step=step, loss=5.0) for step in range(1, 5_000))

    paths = re.findall(r'<path class="s0 \w+" d="([^"]*)"', render_report(state, tmp_path))

    assert len(paths) == 2
    assert [path.count("M") for path in paths] == [1, 1]


def test_figures_of_a_long_stage_weigh_its_beginning_as_much_as_its_end(few_points: int) -> None:
    state = RunState()
    for number in range(400):
        state.apply(window(10.0 * number, number, stall_share=0.4 if number < 200 else 0.0))
    kept = [figures for _, stage, figures in state.windows if stage == "gpt"]

    assert len(kept) <= few_points
    assert average(kept).stall_share == pytest.approx(0.2)
    assert average(kept).seconds == pytest.approx(4_000.0)


def test_figures_of_two_stages_are_not_mixed_and_stay_in_the_order_of_time(few_points: int) -> None:
    state = RunState([event("run_start", 0.0, version="1")])
    for number in range(150):
        stage = "codec" if number < 75 else "gpt"
        state.apply(window(float(number), number, stage, stall_share=0.4 if stage == "codec" else 0.0))

    assert {(stage, figures.stall_share) for _, stage, figures in state.windows} == {("codec", 0.4), ("gpt", 0.0)}
    assert [at for at, _, _ in state.windows] == sorted(at for at, _, _ in state.windows)


def resumed() -> list[Event]:
    """An hour, and three days later a minute more."""
    later = 3 * DAY_S
    return [
        event("run_start", 0.0, version="1"),
        event("training_start", 1.0, stage="gpt", step=1, total_steps=1_000),
        window(3_000.0, 400),
        event("step", 3_600.0, stage="gpt", step=500, loss=2.0),
        event("run_end", 3_600.0, reason="interrupted", message="x"),
        event("run_start", later, version="1"),
        event("training_start", later + 10, stage="gpt", step=501, total_steps=1_000),
        event("warning", later + 30, message="slow", hint="raise it"),
        window(later + 30, 505),
        event("step", later + 60, stage="gpt", step=510, loss=2.0),
    ]


def test_the_pause_before_a_run_was_resumed_is_not_time_that_it_took(tmp_path: Path) -> None:
    state = RunState(resumed())
    page = render_report(state, tmp_path)

    assert state.elapsed_s == 3_660.0
    assert [at for at, _, _ in state.windows] == [3_000.0, 3_630.0]
    assert "<b>1.0 h</b><span>elapsed</span>" in page
    assert '<td class="n">60.5 min</td>' in page


def test_a_run_that_is_resumed_by_a_machine_whose_clock_is_behind_loses_no_time() -> None:
    state = RunState(resumed()[:5])
    state.apply(event("run_start", -500.0, version="1"))
    state.apply(event("training_start", -440.0, stage="gpt", step=501, total_steps=1_000))

    assert state.elapsed_s == 3_660.0


def test_figures_of_before_are_not_shown_as_those_of_a_run_that_was_resumed() -> None:
    state = RunState(resumed()[:6])

    assert state.window is None
    assert state.eta_s is None


def test_the_console_of_a_resumed_run_counts_on_and_says_nothing_again(tmp_path: Path) -> None:
    clock, stream = Clock(), io.StringIO()
    with EventLog(tmp_path / "events.jsonl", now=clock) as log:
        log.write("run_start", version="1")
        clock.seconds += 3_600.0
        log.write("checkpoint", stage="gpt", step=500, path="x")
    clock.seconds += DAY_S
    with EventLog(tmp_path / "events.jsonl", now=clock) as log:
        console = LiveConsole(stream=stream, plain=True)
        console.follow(log)
        log.write("run_start", version="1")
        clock.seconds += 60.0
        log.write("run_end", reason="finished", message="done")

    assert stream.getvalue().splitlines() == ["finished: done"]
    assert console.state.elapsed_s == RunState(read_events(log.path)).elapsed_s == 3_660.0


def test_the_eta_is_the_stage_s_and_counts_validation_and_checkpoints() -> None:
    state = RunState([event("training_start", 0.0, stage="gpt", step=1, total_steps=100)])
    state.apply(window(10.0, 20))
    state.apply(window(30.0, 40))  # of which ten seconds are a validation
    state.apply(event("step", 30.0, stage="gpt", step=40, loss=1.0))
    shown = Console(file=io.StringIO(), width=80, record=True)
    shown.print(render(state, 80))

    assert state.steps_per_s == 2.0
    assert state.eta_s == pytest.approx(60 / 2.0 * 30 / 20)
    assert "stage ETA 0:45" in shown.export_text()


def test_a_run_that_ended_before_its_first_stage_has_no_step_and_no_loss_in_its_report(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write("run_start", version="1")
        log.write("run_end", reason="failed", message="no clip is left")

    page = write_report(tmp_path).read_text(encoding="utf-8")

    assert re.findall(r"<span>([^<]*)</span></div>", page) == ["elapsed"]


def test_the_state_of_a_long_run_takes_little_memory() -> None:
    """A run that logs each of 20,000 steps; found by the soak, for points were kept by the ten thousand: 46 MB."""
    tracemalloc.start()
    state = RunState()
    for step in range(1, 20_001):
        state.apply(event("step", float(step), stage="gpt", step=step, loss=1.0 / step))
        state.apply(window(float(step), step))
        state.apply(event("memory", float(step), devices={"model": reading(step)}))
    taken_mb = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()

    assert len(state.windows) > 500
    assert taken_mb < 10
