"""A run as people see it: the state folded from events, the console, the report, the driver's figures."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from myxtts.cli import monitor
from myxtts.errors import DataError, OutputError
from myxtts.monitoring.charts import Series, line_chart, range_behind_start, smooth, thin, ticks
from myxtts.monitoring.console import LiveConsole, duration, render, snapshot_lines, sparkline
from myxtts.monitoring.events import EventLog, read_events
from myxtts.monitoring.figures import PhaseFigures, WindowFigures
from myxtts.monitoring.report import _unbroken_flags, audio_player, render_report, write_report
from myxtts.monitoring.run_state import RunState, StageHistory, read_state
from myxtts.monitoring.schema import (
    Event,
    MemoryEvent,
    MemoryReading,
    RunStartEvent,
    StepEvent,
    TrainingStartEvent,
    ValidationEvent,
    WarningEvent,
    WindowEvent,
)
from myxtts.monitoring.tensorboard import event_scalars, mel_picture
from tests.processes import run_program

HOSTILE = '<script>alert(1)</script> [bold]x[/bold] "quoted"'


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def figures(stall_share: float = 0.02) -> WindowFigures:
    phase = PhaseFigures(busy=0.5, waiting=0.2, blocked=0.3, ms_per_batch=250.0)
    return WindowFigures(
        seconds=10.0,
        steps=40,
        step_ms=250.0,
        phases=dict.fromkeys(("source", "process", "transfer", "train"), phase),
        data_devices=("/GPU:0",),
        model_devices=("/GPU:1",),
        device_busy={"/GPU:0": 0.5, "/GPU:1": 0.94},
        stall_share=stall_share,
        buffer_depth=47.0,
        buffer_capacity=50,
        efficiency=0.95,
        bottleneck="train",
        oscillation=0.03,
        audio_seconds_per_s=210.0,
        padding_share=0.06,
    )


def write_run(run_dir: Path, *, ended: bool = False, text: str = "hello") -> Path:
    clock = Clock()
    with EventLog(run_dir / "events.jsonl", now=clock) as log:
        log.write("run_start", version="0.1.0", command=f"train {text}", mode="dual", stages=["codec", "gpt"])
        log.write("devices", mode="dual", lines=[f"data {text}"])
        log.write("training_start", stage="gpt", step=1, total_steps=100)
        for step in range(1, 21):
            clock.seconds += 0.5
            log.write("step", stage="gpt", step=step, loss=5.0 - step / 10, learning_rate=1e-4)
        log.write("window", stage="gpt", step=20, **figures().to_event())
        log.write(
            "memory",
            devices={
                "data": {"device": "/GPU:0", "current_mb": None, "source": None},
                "model": {
                    "device": "/GPU:1",
                    "current_mb": 11264.0,
                    "peak_mb": 12000.0,
                    "limit_mb": 16384.0,
                    "source": "tensorflow",
                },
            },
        )
        log.write("validation", stage="gpt", step=20, loss=3.3)
        log.write("sample", stage="gpt", step=20, path="samples/a.wav", text=text)
        log.write("warning", message=text, hint="raise --num-workers")
        log.write("checkpoint", stage="gpt", step=20, path="checkpoints/gpt-20")
        if ended:
            log.write("run_end", reason="finished", message="done")
    return run_dir


def state_of(run_dir: Path) -> RunState:
    return RunState(read_events(run_dir / "events.jsonl"))


JUNK = (
    None,
    True,
    0,
    1e-300,
    -1,
    2.5,
    10**400,
    1e308,
    float("nan"),
    "",
    "x",
    [],
    ["x"],
    {},
    {"x": {}},
    [[[[[[[[[]]]]]]]]],
)


def broken(event: dict[str, Any]) -> Iterator[str]:
    """The event without each of its fields, and with junk in the place of each, of those within them too."""
    for name, value in event.items():
        yield json.dumps({other: kept for other, kept in event.items() if other != name})
        inner = value.items() if isinstance(value, dict) else ()
        for junk in JUNK:
            yield json.dumps(event | {name: junk})
            for key, entry in inner:
                yield json.dumps(event | {name: value | {key: junk}})
                if isinstance(entry, dict):
                    yield from (json.dumps(event | {name: value | {key: entry | {one: junk}}}) for one in entry)


def test_no_line_of_a_log_keeps_a_run_from_being_shown(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", ended=True) / "events.jsonl"
    lines = whole.read_text(encoding="utf-8").splitlines()
    kinds = {json.loads(line)["event"]: place for place, line in enumerate(lines)}
    tried = 0

    for place in kinds.values():
        for line in broken(json.loads(lines[place])):
            log = tmp_path / "events.jsonl"
            log.write_text("\n".join([*lines[:place], line, *lines[place:]]) + "\n", encoding="utf-8")
            state = read_state(log)
            Console(file=io.StringIO(), width=100).print(render(state, 100))
            assert snapshot_lines(state)
            assert render_report(state, tmp_path)
            tried += 1

    assert tried > 1000


def test_a_line_that_nests_without_end_is_skipped_and_counted(tmp_path: Path) -> None:
    log = write_run(tmp_path, ended=True) / "events.jsonl"
    with log.open("a") as file:
        file.write("[" * 100_000 + "\n" + json.dumps({"event": "step", "time": 1.0, "stage": "gpt"}) + "\n")

    words = "2 line(s) of events.jsonl are no events and were left out"
    assert read_state(log).skipped == 2
    assert words in snapshot_lines(read_state(log))
    assert words in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_run_that_resumes_says_which_lines_it_cannot_read_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_run(tmp_path) / "events.jsonl"
    with path.open("a") as file:
        file.write('{"event": "step", "time": 1.0}\n')

    with EventLog(path) as log, LiveConsole(plain=True, stream=io.StringIO()) as console:
        console.follow(log)
        log.write("step", stage="gpt", step=21, loss=1.0)

    assert console.state.step == 21
    assert "1 line(s) of events.jsonl are no events" in caplog.text


def test_what_a_log_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    said = io.StringIO()
    console = LiveConsole(plain=True, stream=said)
    hostile = "\x1b]0;owned\x07\x9b2J"
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.subscribe(console.on_event)
        log.write("run_start", version=hostile, mode=hostile, stages=[hostile])
        log.write("training_start", stage=hostile, step=1, total_steps=5)
        log.write("step", stage=hostile, step=1, loss=1.0, **{hostile: 1})
        log.write("warning", message=hostile, hint=hostile)
        log.write("checkpoint", stage=hostile, step=1, path=hostile)
        log.write("run_end", reason=hostile, message=hostile)
    shown = io.StringIO()
    Console(file=shown, width=200).print(render(read_state(path), 200))

    for text in (said.getvalue(), shown.getvalue(), "".join(snapshot_lines(read_state(path)))):
        assert r"\x1b]0;owned\x07\x9b2J" in text
        assert not set(text) & {"\x1b", "\x07", "\x9b"}


def test_a_run_s_state_follows_its_events(tmp_path: Path) -> None:
    state = state_of(write_run(tmp_path))

    assert (state.stage, state.step, state.total_steps, state.loss) == ("gpt", 20, 100, 3.0)
    assert state.steps_per_s == 2.0, "20 steps of the optimiser in 10 s, though they took 40 batches"
    assert state.eta_s == 40.0
    assert state.elapsed_s == 10.0
    assert state.step_fields == {"learning_rate": 1e-4}
    assert state.history["gpt"].validations == [(20, 3.3)]


def test_speed_is_known_from_the_steps_before_the_first_window() -> None:
    state = RunState()
    for number in range(5):
        state.apply(StepEvent(time=10.0 + number / 4, stage="gpt", step=number, loss=1.0))

    assert state.steps_per_s == 4.0


def test_steps_that_a_resumed_run_repeats_replace_the_lost_ones() -> None:
    history = StageHistory()
    for step, loss in [(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0), (3, 5.0)]:
        history.add_step(step, loss)

    assert [(point.step, point.loss) for point in history.points] == [(1, 9.0), (2, 6.0), (3, 5.0)]


def test_a_resumed_run_is_no_longer_ended(tmp_path: Path) -> None:
    state = state_of(write_run(tmp_path, ended=True))
    assert state.ended is not None

    state.apply(RunStartEvent(time=2000.0, version="0.1.0"))

    assert state.ended is None


def test_events_of_a_newer_version_are_passed_over() -> None:
    state = RunState([Event(time=5.0, more={"value": 1})])

    assert state.last_at == 5.0


@pytest.mark.parametrize("width", [40, 63, 80, 140])
def test_the_console_fits_its_width_and_shows_what_matters(tmp_path: Path, width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(render(state_of(write_run(tmp_path, text=HOSTILE)), width))
    shown = stream.getvalue()

    assert max(len(line) for line in shown.splitlines()) <= width
    for text in ("stage gpt (2 of 2)", "20 / 100", "94 %", "/GPU:1", "47/50", "210.0 audio-s/s", "11.0 GB of 16.0"):
        assert text in shown, text
    assert "[bold]" in shown, "what comes from the run is not markup"


def test_the_console_has_a_bar_for_each_of_several_data_devices_and_names_its_role() -> None:
    devices = {"/GPU:0": 0.31, "/GPU:1": 0.32, "/GPU:2": 0.94, "/GPU:3": 0.93}
    window = replace(
        figures(), data_devices=("/GPU:0", "/GPU:1"), model_devices=("/GPU:2", "/GPU:3"), device_busy=devices
    )
    state = RunState([WindowEvent(time=1.0, stage="gpt", step=20, figures=window)])
    shown = io.StringIO()
    Console(file=shown, width=100).print(render(state, 100))

    rows = [line.split() for line in shown.getvalue().splitlines()]
    for device, share in devices.items():
        role = "data" if share < 0.5 else "model"
        assert any({role, f"{share * 100:.0f}", device} <= set(row) for row in rows), (device, shown.getvalue())


def test_a_console_without_events_says_that_it_starts() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(render(RunState(), 80))

    assert "starting" in stream.getvalue()


def test_plain_lines_come_without_a_terminal_and_not_for_every_step(tmp_path: Path) -> None:
    write_run(tmp_path, ended=True)
    stream = io.StringIO()
    with LiveConsole(stream=stream) as console:
        for event in read_events(tmp_path / "events.jsonl"):
            console.on_event(event)
    lines = stream.getvalue().splitlines()

    assert lines[0] == "training starts: gpt from step 1 of 100"
    assert "\x1b" not in stream.getvalue()
    assert len([line for line in lines if line.startswith("gpt ") and "loss" in line]) < 5
    assert "warning: hello: raise --num-workers" in lines
    assert lines[-1] == "finished: done"


def test_a_warning_that_the_run_has_logged_is_not_said_twice() -> None:
    warning = WarningEvent(time=1.0, message="it starves", hint="raise --num-workers")
    seen = {}
    for logged in (False, True):
        stream = io.StringIO()
        LiveConsole(stream=stream, plain=True, warnings_logged=logged).on_event(warning)
        seen[logged] = stream.getvalue()

    assert "it starves: raise --num-workers" in seen[False]
    assert seen[True] == ""


def test_log_lines_go_through_the_live_panel_and_come_back_afterwards() -> None:
    import logging

    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(handler)
    stream_before = handler.stream
    try:
        with LiveConsole(stream=io.StringIO(), plain=False):
            assert handler.stream is not stream_before
        assert handler.stream is stream_before
    finally:
        logging.getLogger().removeHandler(handler)


def test_a_snapshot_says_unavailable_and_never_zero_for_memory_that_is_not_known(tmp_path: Path) -> None:
    lines = snapshot_lines(state_of(write_run(tmp_path)))

    assert "memory of /GPU:0: unavailable" in lines
    assert "memory of /GPU:1: 11.0 GB of 16.0" in lines


def test_memory_of_a_simulated_device_is_found_by_its_role_and_labelled_as_the_process_s() -> None:
    state = RunState()
    reading = MemoryReading(device="/GPU:1 (simulated by /CPU:2)", current_mb=2048.0, source="process RSS")
    state.apply(MemoryEvent(time=1.0, devices={"model": reading}))

    assert state.memory_of("/CPU:2", "model") == reading
    assert state.memory_of("/CPU:1", "data") is None
    assert snapshot_lines(state)[1] == "memory of /GPU:1 (simulated by /CPU:2): 2.0 GB (process RSS)"


def test_the_smoothed_loss_forgets_where_it_began() -> None:
    state = RunState()
    for step, loss in enumerate([10.0, 2.0, 2.0, 2.0], 1):
        state.apply(StepEvent(time=float(step), stage="gpt", step=step, loss=loss))

    assert state.smooth_loss == pytest.approx((10 * 0.9**3 + 2 * (0.81 + 0.9 + 1)) / (0.9**3 + 0.81 + 0.9 + 1))


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (7325, "2:02:05")]
)
def test_durations_read_as_a_clock(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_sparkline_falls_with_its_values_and_keeps_its_width() -> None:
    assert sparkline([3.0, 2.0, 1.0], 10) == "█▅▁"
    assert len(sparkline(list(range(1000)), 24)) <= 24
    assert sparkline([], 10) == ""
    assert sparkline([1.0, 1.0], 10) == "▁▁"


def test_axis_ticks_are_round_and_inside() -> None:
    assert ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert ticks(0.0, 0.83) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert ticks(5, 5) == [5]


def test_labels_of_an_axis_say_what_they_stand_at() -> None:
    chart = line_chart([Series("loss", [(0.0, 1.0), (20_000.0, 1.0)], 0)], x_label="step")

    assert [label for label in ("2,500", "10k", "12.5k", "15k", "17.5k", "20k") if f">{label}<" not in chart] == []


def test_thinning_keeps_the_mean_and_smoothing_does_not_lag() -> None:
    line = [(float(x), 2.0 * x) for x in range(3000)]

    assert len(thin(line)) <= 600
    assert np.mean([y for _, y in thin(line)]) == pytest.approx(np.mean([y for _, y in line]), rel=1e-3)
    middle = smooth(line)[1500]
    assert middle == pytest.approx(line[1500])


def test_a_line_is_broken_where_a_run_was_interrupted() -> None:
    points = [(float(x), 1.0) for x in [0, 1, 2, 3, 4, 100, 101, 102]]

    assert line_chart([Series("busy", points, 0)], x_label="minutes").count("M") == 2


def test_a_stage_whose_windows_take_longer_than_those_of_the_one_before_is_a_line_too() -> None:
    points = [(float(x), 1.0) for x in [*range(300), *range(300, 2_300, 20)]]

    assert line_chart([Series("busy", points, 0)], x_label="minutes").count("M") <= 2


def test_how_a_loss_began_leaves_room_for_what_follows() -> None:
    falls = [(1.0, 8.0), *((500.0 * n, 2.0 - n / 20) for n in range(1, 21))]

    low, high = range_behind_start(falls) or (0.0, 0.0)

    assert 0.9 < low < 1.0
    assert 1.95 <= high < 2.1
    assert range_behind_start([(1.0, 8.0)]) == pytest.approx((7.6, 8.4))
    assert range_behind_start([]) is None


def test_every_held_out_loss_is_within_the_chart() -> None:
    low, high = range_behind_start([(20.0 * n, 3.0 - n / 20) for n in range(20)], [(0.0, 6.9), (100.0, 0.5)]) or (0, 0)

    assert low <= 0.5
    assert high >= 6.9


def test_a_short_curve_is_smoothed_too() -> None:
    zigzag = [(float(x), 1.0 + (-1) ** x) for x in range(16)]

    assert [y for _, y in smooth(zigzag)[2:-2]] == pytest.approx([1.0] * 12, abs=0.21)


def test_a_flag_in_a_report_is_not_broken_over_lines() -> None:
    assert _unbroken_flags("(--data-gpu)") == '(<span class="flag">--data-gpu</span>)'
    assert _unbroken_flags("myxtts train --seed 0 --run-dir a-b") == (
        'myxtts train <span class="flag">--seed</span> 0 <span class="flag">--run-dir</span> a-b'
    )


def test_a_chart_of_one_point_or_none_does_not_fail() -> None:
    assert "nothing was recorded" in line_chart([Series("loss", [], 0)], x_label="step")
    assert "<svg" in line_chart([Series("loss", [(1.0, 2.0)], 0)], x_label="step")


def test_what_goes_on_before_a_stage_is_shown_and_gone_when_it_trains(tmp_path: Path) -> None:
    with EventLog(write_run(tmp_path) / "events.jsonl") as log:
        log.write("progress", task="aligning clips", done=1200, total=4000)

    state = state_of(tmp_path)
    shown = Console(file=io.StringIO(), width=80, record=True)
    shown.print(render(state, 80))

    assert "aligning clips: 1,200 of 4,000" in shown.export_text()
    assert "aligning clips: 1,200 of 4,000" in snapshot_lines(state)
    state.apply(TrainingStartEvent(time=2000.0, stage="gpt", step=1, total_steps=9))
    assert state.task is None


def test_the_report_is_one_page_that_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "a.wav").write_bytes(b"RIFFdata")
    page = write_report(write_run(tmp_path, ended=True)).read_text()

    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert 'src="data:audio/wav;base64,UklGRmRhdGE="' in page
    assert "prefers-color-scheme: dark" in page
    for text in ("Loss, stage gpt", "Devices over time", "Memory", "training does not wait for data", "finished"):
        assert text in page
    assert "/GPU:0: memory is unavailable" in page


def test_the_report_s_figures_are_the_running_stage_s_and_warnings_stand_before_the_charts(tmp_path: Path) -> None:
    write_run(tmp_path)
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write("training_start", stage="decoder", step=1, total_steps=9)
        log.write("step", stage="decoder", step=1, loss=1.0)
        faster = dataclasses.replace(figures(), seconds=1.0, steps=100, step_ms=10.0)
        log.write("window", stage="decoder", step=1, **faster.to_event())

    page = write_report(tmp_path).read_text()

    assert "<b>100</b><span>batches/s</span>" in page
    assert page.index("<h2>Warnings</h2>") < page.index("<h2>Loss, stage gpt</h2>")


def test_the_report_escapes_whatever_comes_from_the_run(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, text=HOSTILE)).read_text()

    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_report_reads_no_file_outside_the_run(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(b"SECRET")
    run_dir = tmp_path / "run"
    with EventLog(run_dir / "events.jsonl") as log:
        log.write("sample", stage="gpt", step=1, path="../secret.wav")
        log.write("sample", stage="gpt", step=2, path=str(secret))

    page = write_report(run_dir).read_text()

    assert "U0VDUkVU" not in page
    assert page.count("is not there") == 2


def test_a_sample_that_cannot_be_read_is_said_in_the_report(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write("sample", stage="gpt", step=1, path=f"{'a' * 300}.wav")

    assert "a.wav cannot be read: File name too long" in write_report(tmp_path).read_text()


def test_a_run_that_has_only_started_has_a_report(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write("run_start", version="0.1.0")

    assert "no end recorded" in write_report(tmp_path).read_text()


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no events\.jsonl"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="not the folder of a run"):
        monitor.main([str(tmp_path)])


def test_a_run_that_is_not_there_lists_those_that_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in enumerate(("older", "newer")):
        log = tmp_path / "runs" / name / "events.jsonl"
        log.parent.mkdir(parents=True)
        log.touch()
        os.utime(log, (place, place))
    monkeypatch.chdir(tmp_path)

    for name in ("runs/none", "none", "runs"):
        with pytest.raises(DataError, match="not the folder of a run") as raised:
            monitor.main([name])
        assert raised.value.hint.endswith("; there are: runs/newer, runs/older")


def test_a_report_that_cannot_be_written_or_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / "report.html").mkdir()
    with pytest.raises(OutputError, match=r"report\.html cannot be written: Is a directory"):
        monitor.main([str(run_dir), "--report"])
    with pytest.raises(DataError, match=r"events\.jsonl cannot be read: File name too long"):
        monitor.main([str(tmp_path / ("a" * 300))])


def test_monitor_once_prints_what_is_known_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert monitor.main([str(write_run(tmp_path)), "--once"]) == 0

    shown = capsys.readouterr().out
    assert "gpt 20/100" in shown
    assert "the run may have been stopped or killed" in shown
    assert "training does not wait for data" in shown


def test_monitor_follows_a_run_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert monitor.main([str(write_run(tmp_path, ended=True))]) == 0

    assert re.search(r"finished: done \(ended \d{4}-\d\d-\d\d \d\d:\d\d\)", capsys.readouterr().out)


def test_monitor_writes_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert monitor.main([str(write_run(tmp_path)), "--report"]) == 0

    assert Path(capsys.readouterr().out.strip()).is_file()


def test_neither_monitor_nor_pipeline_imports_tensorflow() -> None:
    modules = ("myxtts.cli.monitor", "myxtts.pipeline", "myxtts.monitoring.tensorboard")
    run_program("commands", "importing", *modules, fresh=True)


def test_tensorboard_scalars_are_grouped_by_stage_and_leave_out_what_is_unknown() -> None:
    step = StepEvent(time=1.0, stage="gpt", step=3, more={"learning_rate": 1e-4, "note": "x"})
    window = WindowEvent(time=1.0, stage="gpt", step=3, figures=figures())

    assert event_scalars(step) == {"gpt/learning_rate": 1e-4}
    assert event_scalars(ValidationEvent(time=1.0, stage="gpt", step=3, loss=2.0)) == {"gpt_validation/loss": 2.0}
    assert event_scalars(window)["gpt_busy/GPU_1"] == 0.94
    assert event_scalars(window)["gpt_pipeline/stall_share"] == 0.02
    assert not event_scalars(window).keys() & event_scalars(dataclasses.replace(window, stage="codec")).keys()


def test_a_mel_picture_has_low_frequencies_at_the_bottom() -> None:
    mel_TM = np.zeros((5, 80), np.float32)
    mel_TM[:, 0] = 1.0

    picture = mel_picture(mel_TM)

    assert picture.shape == (80, 5, 3)
    assert picture.dtype == np.uint8
    assert picture[-1, 0].tolist() == [253, 231, 37]
    assert picture[0, 0].tolist() == [68, 1, 84]
    assert mel_picture(np.zeros((2, 80))).max() <= 84


def test_a_chart_of_numbers_too_large_to_tell_apart_is_drawn() -> None:
    series = Series("loss", [(1e300, 2.0), (1e300, 3.0)], 1)

    assert "<svg" in line_chart([series], x_label="step")


def test_a_sample_whose_name_no_file_can_have_is_named_as_unreadable(tmp_path: Path) -> None:
    assert "cannot be read" in audio_player(tmp_path, "a\0b.wav")
