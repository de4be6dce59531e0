"""Telemetry's arithmetic, on a clock that the test turns."""

from __future__ import annotations

import json

import pytest

from myxtts.monitoring.parsing import event_of
from myxtts.monitoring.schema import WindowEvent
from myxtts.pipeline.batches import BatchSize
from myxtts.pipeline.telemetry import Activity, PhaseClock, Telemetry, oscillation


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


def two_devices(clock: Clock) -> Telemetry:
    telemetry = Telemetry(data_devices=["/GPU:0"], model_devices=["/GPU:1"], now=clock)
    telemetry.buffer_capacity = 10
    return telemetry


def step(telemetry: Telemetry, clock: Clock, *, wait_s: float, busy_s: float, depth: int = 0) -> None:
    """One training step as the pipeline reports it."""
    train = telemetry.clock("train")
    train.switch(Activity.WAITING)
    clock.forward(wait_s)
    telemetry.batch_delivered(depth, BatchSize(audio_seconds=6.0, padded_seconds=8.0))
    train.switch(Activity.BUSY)
    clock.forward(busy_s)
    telemetry.step_finished()


def test_a_phase_s_time_is_split_by_what_it_did() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    for activity, seconds in [(Activity.WAITING, 1.0), (Activity.BUSY, 2.0), (Activity.BLOCKED, 4.0)]:
        phase.switch(activity)
        clock.forward(seconds)

    reading = phase.read()

    assert [reading.of(activity) for activity in Activity] == [0.0, 2.0, 1.0, 4.0]
    assert phase.current() == (Activity.BLOCKED, 4.0)


def test_a_window_says_how_much_the_model_device_worked_and_waited() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    for depth in (2, 4):
        step(telemetry, clock, wait_s=1.0, busy_s=3.0, depth=depth)

    window = telemetry.window()

    assert (window.steps, window.seconds, window.step_ms) == (2, 8.0, 4000.0)
    assert window.stall_share == pytest.approx(0.25)
    assert window.device_busy == {"/GPU:0": 0.0, "/GPU:1": pytest.approx(0.75)}
    assert window.buffer_depth == 3.0
    assert window.audio_seconds_per_s == pytest.approx(12 / 8)
    assert window.padding_share == pytest.approx(0.25)


def test_a_window_that_is_read_after_a_step_has_it_and_the_next_one_has_not() -> None:
    """A pipeline hears that a step is over only when the next batch is asked for."""
    clock = Clock()
    telemetry = two_devices(clock)
    seen = []
    for _ in range(3):
        telemetry.batch_delivered(0, None)
        clock.forward(2.0)
        seen.append(telemetry.window().step_ms)
        telemetry.step_finished()

    assert seen == [2000.0, 2000.0, 2000.0]


def test_efficiency_is_the_slowest_phase_s_batch_over_the_step() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    process = telemetry.clock("process")
    process.switch(Activity.BUSY)
    step(telemetry, clock, wait_s=1.0, busy_s=3.0)
    process.finished_batch()
    process.switch(Activity.WAITING)

    window = telemetry.window()

    assert window.bottleneck == "process"
    assert window.phases["process"].ms_per_batch == pytest.approx(4000)
    assert window.efficiency == pytest.approx(1.0)


def test_each_of_two_data_devices_has_its_own_share_and_they_halve_what_a_batch_costs() -> None:
    clock = Clock()
    telemetry = Telemetry(data_devices=["/GPU:0", "/GPU:1"], model_devices=["/GPU:2"], now=clock)
    telemetry.overlapped = True
    first, second = (telemetry.clock(telemetry.producer_of(index)) for index in (0, 1))
    first.switch(Activity.BUSY)
    second.switch(Activity.BUSY)
    step(telemetry, clock, wait_s=1.0, busy_s=1.0)
    second.finished_batch()
    second.switch(Activity.WAITING)
    step(telemetry, clock, wait_s=1.0, busy_s=1.0)
    first.finished_batch()

    window = telemetry.window()

    assert window.device_busy == {"/GPU:0": 1.0, "/GPU:1": pytest.approx(0.5), "/GPU:2": pytest.approx(0.5)}
    assert window.data_busy == window.phases["process"].busy == pytest.approx(0.75)
    assert window.phases["process"].ms_per_batch == pytest.approx(3000), "of one device"
    assert window.bottleneck == "process"
    assert window.efficiency == pytest.approx(0.75), "1.5 s a batch of both, 2 s a step"


def test_overlapped_phases_on_one_device_are_not_counted_as_one_after_the_other() -> None:
    clock = Clock()
    telemetry = Telemetry(data_devices=["/GPU:0"], model_devices=["/GPU:0"], now=clock)
    telemetry.overlapped = True
    telemetry.clock("process").switch(Activity.BUSY)
    step(telemetry, clock, wait_s=0.0, busy_s=2.0)
    telemetry.clock("process").finished_batch()

    window = telemetry.window()

    assert window.efficiency == pytest.approx(1.0)
    assert window.device_busy == {"/GPU:0": 1.0}


def test_efficiency_on_one_device_counts_both_kinds_of_work() -> None:
    clock = Clock()
    telemetry = Telemetry(data_devices=["/GPU:0"], model_devices=["/GPU:0"], now=clock)
    train, process = telemetry.clock("train"), telemetry.clock("process")
    train.switch(Activity.BLOCKED)
    process.switch(Activity.BUSY)
    clock.forward(1.0)
    process.finished_batch()
    process.switch(Activity.WAITING)
    telemetry.batch_delivered(0, None)
    train.switch(Activity.BUSY)
    clock.forward(2.0)
    telemetry.step_finished()
    train.switch(Activity.WAITING)
    clock.forward(1.0)

    window = telemetry.window()

    assert window.device_busy == {"/GPU:0": pytest.approx(0.75)}
    assert window.efficiency == pytest.approx(0.75)
    assert window.stall_share == pytest.approx(0.25)


def test_a_phase_in_the_middle_of_a_batch_counts_up_to_now() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    telemetry.clock("process").switch(Activity.BUSY)
    step(telemetry, clock, wait_s=0.0, busy_s=2.0)

    assert telemetry.window().device_busy["/GPU:0"] == pytest.approx(1.0)


def test_a_wait_of_the_window_before_leaves_no_device_busy_less_than_never() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    telemetry.clock("process").switch(Activity.BUSY)
    step(telemetry, clock, wait_s=0.0, busy_s=5.0)
    telemetry.window()
    step(telemetry, clock, wait_s=0.0, busy_s=1.0)
    telemetry.clock("process").was_waiting(6.0)

    assert telemetry.window().device_busy["/GPU:0"] == 0.0


def test_windows_do_not_overlap() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    step(telemetry, clock, wait_s=3.0, busy_s=1.0)
    telemetry.window()
    step(telemetry, clock, wait_s=0.0, busy_s=1.0)

    second = telemetry.window()

    assert (second.steps, second.seconds, second.stall_share) == (1, 1.0, 0.0)


def test_a_pause_for_validation_is_left_out_of_every_figure() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    step(telemetry, clock, wait_s=1.0, busy_s=3.0)
    telemetry.clock("process").switch(Activity.BUSY)
    with telemetry.pause():
        clock.forward(100.0)
    step(telemetry, clock, wait_s=1.0, busy_s=3.0)

    window = telemetry.window()

    assert window.seconds == pytest.approx(8.0)
    assert window.device_busy["/GPU:1"] == pytest.approx(0.75)
    assert window.device_busy["/GPU:0"] == pytest.approx(0.5)


def test_a_window_read_inside_a_pause_ends_where_the_pause_began() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    step(telemetry, clock, wait_s=1.0, busy_s=3.0)
    with telemetry.pause():
        clock.forward(50.0)
        first = telemetry.window()
        clock.forward(50.0)
    step(telemetry, clock, wait_s=0.0, busy_s=2.0)
    second = telemetry.window()

    assert (first.seconds, second.seconds) == (pytest.approx(4.0), pytest.approx(2.0))


def test_a_window_without_steps_has_no_step_figures_and_does_not_fail() -> None:
    clock = Clock()
    window = two_devices(clock).window()

    assert (window.steps, window.step_ms, window.efficiency, window.bottleneck) == (0, None, None, None)
    assert window.padding_share is None


def test_steady_work_does_not_oscillate_and_stop_and_go_does() -> None:
    clock = Clock()
    steady, swinging = two_devices(clock), two_devices(clock)
    clock.forward(30.0)
    steady.begin()
    for _ in range(10):
        step(steady, clock, wait_s=0.25, busy_s=1.75)
    swinging.begin()
    for number in range(10):
        wait_s = 1.75 if number % 2 else 0.25
        step(swinging, clock, wait_s=wait_s, busy_s=2.0 - wait_s)

    assert steady.window().oscillation == pytest.approx(0.0, abs=1e-9)
    assert swinging.window().oscillation == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("shares", "expected"), [([], None), ([0.5, 0.5], None), ([0.0, 0.0, 0.0], None), ([1.0, 1.0, 1.0], 0.0)]
)
def test_oscillation_needs_three_slices_and_some_work(shares: list[float], expected: float | None) -> None:
    assert oscillation(shares) == expected


def test_figures_survive_the_event_log() -> None:
    clock = Clock()
    telemetry = two_devices(clock)
    step(telemetry, clock, wait_s=1.0, busy_s=3.0)
    window = telemetry.window()

    event = json.loads(json.dumps(window.to_event()))

    line = event | {"event": "window", "time": 1.0, "stage": "gpt", "step": 1, "added_later": 1}
    assert event_of(line) == WindowEvent(time=1.0, stage="gpt", step=1, figures=window, more={"added_later": 1})
