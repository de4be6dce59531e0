"""The event log: what is written is read back, whatever happened to the writer."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myxtts.monitoring.events import EventFollower, EventLog, read_events
from myxtts.monitoring.figures import WindowFigures
from myxtts.monitoring.parsing import event_of
from myxtts.monitoring.schema import (
    SCHEMA,
    CheckpointEvent,
    Event,
    MemoryEvent,
    MemoryReading,
    RunEndEvent,
    RunStartEvent,
    StepEvent,
    TrainingStartEvent,
    WindowEvent,
)
from tests.limits import no_file_larger_than


def steps_in(events: Iterable[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, StepEvent)]


def test_the_only_data_device_of_an_earlier_version_s_log_is_read() -> None:
    line = {"event": "window", "time": 1.0, "stage": "gpt", "step": 1, "data_device": "/GPU:0"}

    assert event_of(line) == WindowEvent(time=1.0, stage="gpt", step=1, figures=WindowFigures(data_devices=("/GPU:0",)))


def write_steps(path: Path, steps: range) -> None:
    with EventLog(path) as log:
        for step in steps:
            log.write("step", stage="gpt", step=step, loss=1.0 / step)


def test_events_are_read_back_in_order_with_name_and_time(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.jsonl"
    with EventLog(path, now=lambda: 12.3456) as log:
        log.write("run_start", version="0.1.0", command="train")
        log.write("step", stage="gpt", step=1, loss=0.5)

    assert list(read_events(path)) == [
        RunStartEvent(time=12.346, version="0.1.0", command="train"),
        StepEvent(time=12.346, stage="gpt", step=1, loss=0.5),
    ]
    assert json.loads(path.read_text().splitlines()[1]) == {
        "event": "step", "time": 12.346, "stage": "gpt", "step": 1, "loss": 0.5,
    }  # fmt: skip


def test_a_path_that_is_no_text_is_written_as_far_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write("run_start", version="0.1.0", command="train " + os.fsdecode(b"m\xfcnchen"))

    assert [event.command for event in read_events(path) if isinstance(event, RunStartEvent)] == ["train m?nchen"]


def test_a_log_that_was_torn_by_a_kill_loses_only_the_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_steps(path, range(1, 4))
    path.write_bytes(path.read_bytes()[:-9])
    assert steps_in(read_events(path)) == [1, 2]

    write_steps(path, range(3, 5))

    assert steps_in(read_events(path)) == [1, 2, 3, 4]


def test_lines_that_are_not_events_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    end = '{"event": "run_end", "time": 1.0}'
    path.write_text(f'{{"event": "step"\n[1, 2]\n{{"loss": 1}}\n\x00\x00\n\n{end}\n')
    follower = EventFollower(path)

    assert [event.name for event in follower.poll()] == ["run_end"]
    assert follower.skipped == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_a_follower_sees_every_event_once_however_the_file_grows(tmp_path: Path, cuts: list[int]) -> None:
    whole, growing = tmp_path / "whole.jsonl", tmp_path / "growing.jsonl"
    whole.unlink(missing_ok=True)
    write_steps(whole, range(1, 6))
    data = whole.read_bytes()
    growing.write_bytes(b"")
    follower, seen, written = EventFollower(growing), [], 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        with growing.open("ab") as file:
            file.write(data[written:cut])
        written = cut
        seen += follower.poll()

    assert steps_in(seen) == [1, 2, 3, 4, 5]


def test_a_follower_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = EventFollower(path)
    assert follower.poll() == []

    write_steps(path, range(1, 2))

    assert len(follower.poll()) == 1


def test_a_follower_begins_again_when_a_run_is_started_afresh(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_steps(path, range(1, 9))
    follower = EventFollower(path)
    follower.poll()
    path.unlink()
    write_steps(path, range(1, 3))

    assert steps_in(follower.poll()) == [1, 2]


def test_numbers_that_json_does_not_know_become_null_and_numpy_ones_plain(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write(
            "step",
            stage="gpt",
            step=np.int64(3),
            loss=np.float32("nan"),
            more=[float("inf"), np.float32(0.5)],
            shape=np.arange(2),
            where=Path("a/b"),
        )

    (event,) = read_events(path)
    assert "NaN" not in path.read_text()
    assert isinstance(event, StepEvent)
    assert (event.step, event.loss) == (3, None)
    assert event.more == {"more": [None, 0.5], "shape": [0, 1], "where": "a/b"}


def test_an_event_without_a_field_that_readers_rely_on_is_refused(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        with pytest.raises(ValueError, match=r"'step' lacks \['loss'\]"):
            log.write("step", stage="gpt", step=1)
        with pytest.raises(ValueError, match="not in the schema"):
            log.write("stepp", stage="gpt", step=1, loss=1.0)


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)

    def write(number: int) -> None:
        for step in range(200):
            log.write("step", stage=f"t{number}", step=step, loss=0.0, text="x" * 500)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()

    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == 800
    for number in range(4):
        assert [event["step"] for event in events if event["stage"] == f"t{number}"] == list(range(200))


def test_subscribers_see_what_a_reader_of_the_file_would(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    seen: list[Event] = []
    with EventLog(path) as log:
        log.subscribe(seen.append)
        log.write("step", stage="gpt", step=1, loss=np.float64("inf"))

    assert seen == list(read_events(path))


def test_a_subscriber_that_fails_is_said_once_and_left_out_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def fails(event: Event) -> None:
        raise BrokenPipeError("nobody reads")

    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(fails)
        log.subscribe(lambda event: seen.extend(steps_in([event])))
        for step in range(3):
            log.write("step", stage="gpt", step=step, loss=1.0)

    assert seen == [0, 1, 2]
    assert steps_in(read_events(log.path)) == [0, 1, 2]
    assert len([record for record in caplog.records if "nobody reads" in record.message]) == 1


def test_ctrl_c_in_a_subscriber_is_still_ctrl_c(tmp_path: Path) -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.write("run_end", reason="finished", message="")


def test_a_full_disk_is_said_once_and_does_not_stop_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with EventLog(Path("/dev/full")) as log, caplog.at_level(logging.WARNING):
        for step in range(3):
            log.write("step", stage="gpt", step=step, loss=1.0)

    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1


def test_a_line_that_a_full_disk_cut_off_costs_no_other_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log, caplog.at_level(logging.WARNING):
        log.write("step", stage="gpt", step=1, loss=1.0)
        with no_file_larger_than(path.stat().st_size + 9):
            for step in (2, 3, 4):
                log.write("step", stage="gpt", step=step, loss=1.0)
        assert path.read_bytes().split(b"\n")[-1] != b"", "the line was to be cut"
        log.write("step", stage="gpt", step=5, loss=1.0)
        log.write("run_end", reason="finished", message="")

    assert steps_in(read_events(path)) == [1, 5]
    assert [event.name for event in read_events(path)][-1] == "run_end"
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1


def test_a_disk_that_has_room_for_the_line_end_only_costs_one_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        for room in (9, 10):
            with no_file_larger_than(room):
                log.write("step", stage="gpt", step=room, loss=1.0)
        log.write("step", stage="gpt", step=11, loss=1.0)

    assert steps_in(read_events(path)) == [11]
    assert path.read_bytes().count(b"\n") == 2


def test_a_log_that_was_torn_is_opened_on_a_full_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "st')
    with no_file_larger_than(path.stat().st_size):
        log = EventLog(path)
    with log:
        log.write("step", stage="gpt", step=1, loss=1.0)

    assert steps_in(read_events(path)) == [1]


@pytest.mark.timeout(20)
def test_a_subscriber_may_answer_an_event_with_another_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.subscribe(
            lambda event: log.write("warning", message="slow", hint="raise it") if event.name == "step" else None
        )
        log.write("step", stage="gpt", step=1, loss=1.0)

    assert [event.name for event in read_events(path)] == ["step", "warning"]


EARLIER = Path(__file__).parent.parent / "fixtures" / "v0_1"


@pytest.mark.parametrize("run", ["mel", "stopped"])
def test_a_log_of_the_earlier_version_is_read_whole(run: str) -> None:
    path = EARLIER / run / "events.jsonl"
    follower = EventFollower(path)

    events = follower.poll()

    assert follower.skipped == 0
    assert [event.name for event in events] == [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert all(event.figures.phases for event in events if isinstance(event, WindowEvent))
    assert all("gradient_norm" in event.numbers for event in events if isinstance(event, StepEvent))


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    assert event_of({"event": "step", "time": 1, "stage": "gpt", "step": 3}) == StepEvent(
        time=1.0, stage="gpt", step=3, loss=None
    )
    assert event_of({"event": "training_start", "time": 1, "stage": "gpt", "step": 3}) == TrainingStartEvent(
        time=1.0, stage="gpt", step=3, total_steps=None
    )
    assert event_of({"event": "run_end", "time": 1}) == RunEndEvent(time=1.0, reason="failed", message="")
    assert event_of({"event": "checkpoint", "time": 1, "stage": "gpt", "step": 3}) == CheckpointEvent(
        time=1.0, stage="gpt", step=3, path=""
    )
    assert event_of({"event": "window", "time": 1, "stage": "gpt", "step": 3, "phases": {"train": {}}}) is not None
    assert event_of({"event": "memory", "time": 1, "devices": {"model": {"current_mb": 3}}}) == MemoryEvent(
        time=1.0, devices={"model": MemoryReading(current_mb=3.0)}
    )


def test_what_a_newer_version_adds_is_kept_beside_the_schema() -> None:
    window = {"event": "window", "time": 1.0, "stage": "gpt", "step": 3, "steps": 2, "added": [1]}

    assert event_of(window) == WindowEvent(
        time=1.0, stage="gpt", step=3, figures=WindowFigures(steps=2), more={"added": [1]}
    )
    unknown = event_of({"event": "added_later", "time": 5.0, "value": 1})
    assert type(unknown) is Event
    assert (unknown.time, unknown.more) == (5.0, {"value": 1})


@pytest.mark.parametrize(
    "broken",
    [
        {"step": "3"},
        {"step": None},
        {"step": -1},
        {"step": True},
        {"step": 3.0},
        {"stage": 7},
        {"loss": "low"},
        {"loss": [1.0]},
        {"time": None},
        {"time": -1},
        {"time": 1e12},
        {"event": 5},
        {"deep": [[[[[[[1]]]]]]]},
    ],
)
def test_a_field_of_another_type_makes_a_line_that_cannot_be_read(broken: dict[str, object]) -> None:
    good = {"event": "step", "time": 1.0, "stage": "gpt", "step": 3, "loss": 1}

    assert event_of(good) == StepEvent(time=1.0, stage="gpt", step=3, loss=1.0)
    assert event_of(good | broken) is None


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e300, 10**400])
def test_a_loss_that_cannot_be_drawn_is_read_as_one_that_is_not_finite(loss: float) -> None:
    event = event_of({"event": "step", "time": 1.0, "stage": "gpt", "step": 3, "loss": loss})

    assert isinstance(event, StepEvent)
    assert event.loss is None


def test_every_event_says_when_it_is_written() -> None:
    assert len(SCHEMA) == 17
    assert len({cls.__doc__ for cls in SCHEMA.values()}) == 17
