"""How a run ends: its log always says so, and nothing that fails on the way out hides why."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from myxtts.cli import train
from myxtts.cli.main import INTERRUPTED, main
from myxtts.config.config import XTTSConfig
from myxtts.data.prepare import PreparingStopped
from myxtts.errors import CheckpointError, OutputError
from myxtts.files import writing
from myxtts.monitoring.events import EventLog, ProgressEvents, read_events
from myxtts.monitoring.schema import ProgressEvent, RunEndEvent
from myxtts.runtime.inventory import Inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.voice import find_voice
from myxtts.training.out_of_memory import out_of_memory
from myxtts.training.run import TrainingRun, tell_what_follows
from myxtts.training.run_ends import run_and_record_end, stop_signals
from myxtts.training.run_folder import RunFolder, disk_full_hint


def ended(run: Callable[[], bool], folder: Path) -> bool:
    with EventLog(folder / "events.jsonl") as events:
        return run_and_record_end(run, events, RunFolder(folder))


def raising(error: BaseException) -> Callable[[], bool]:
    def run() -> bool:
        raise error

    return run


def last_event(folder: Path) -> tuple[str, str]:
    *_, event = read_events(folder / "events.jsonl")
    assert isinstance(event, RunEndEvent)
    return event.reason, event.message


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (CheckpointError("no space", hint="make some"), "failed", "no space"),
        (ValueError("a fault of ours"), "failed", "ValueError: a fault of ours"),
        (KeyboardInterrupt(), "interrupted", ""),
    ],
)
def test_every_end_is_in_the_log_and_in_the_report(
    tmp_path: Path, error: BaseException, reason: str, message: str
) -> None:
    with pytest.raises(type(error)):
        ended(raising(error), tmp_path)

    assert last_event(tmp_path) == (reason, message or str(tmp_path))
    assert reason in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_that_was_stopped_while_preparing_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(run: TrainingRun) -> None:
        raise PreparingStopped

    monkeypatch.setattr(TrainingRun, "prepare", prepare)
    plan = plan_devices(DeviceRequest(), Inventory())
    with EventLog(tmp_path / "events.jsonl") as events:
        run = TrainingRun(XTTSConfig(), plan, RunFolder(tmp_path), events, lambda: True)

        assert not run_and_record_end(run.whole, events, RunFolder(tmp_path))

    assert last_event(tmp_path)[0] == "interrupted"


def test_a_report_that_cannot_be_written_is_a_warning_beside_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "report.html").mkdir()

    with pytest.raises(CheckpointError, match="checkpoint of step 5"):
        ended(raising(CheckpointError("checkpoint of step 5 cannot be written", hint="make room")), tmp_path)

    assert "report.html cannot be written" in caplog.text
    assert last_event(tmp_path) == ("failed", "checkpoint of step 5 cannot be written")


def test_a_full_disk_is_an_error_that_says_what_was_not_written_and_where_to_go_on(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=f"{tmp_path} cannot be written: No space left") as caught,
        writing(tmp_path, hint=disk_full_hint()),
    ):
        Path("/dev/full").write_text("x")

    assert "--run-dir" in caught.value.hint
    assert "continues from the last checkpoint" in caught.value.hint


def test_progress_is_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    times_s = iter([0.0, 1.0, 6.0, 7.0, 8.0])
    with EventLog(tmp_path / "events.jsonl") as events:
        progress = ProgressEvents(events, now=lambda: next(times_s))
        for done in range(1, 6):
            progress("preparing clips", done, 5)

    written = read_events(tmp_path / "events.jsonl")
    assert [event.done for event in written if isinstance(event, ProgressEvent)] == [1, 3, 5]


@contextmanager
def hangups(handled: signal.Handlers) -> Iterator[None]:
    """A process as its terminal or `nohup` started it, however the tests themselves were started."""
    before = signal.signal(signal.SIGHUP, handled)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_asks_to_stop_as_sigterm_does() -> None:
    with hangups(signal.SIG_DFL), stop_signals() as asked_to_stop:
        assert not asked_to_stop()
        os.kill(os.getpid(), signal.SIGHUP)

        assert asked_to_stop()


def test_a_run_under_nohup_does_not_stop_when_its_terminal_is_closed() -> None:
    with hangups(signal.SIG_IGN):
        with stop_signals() as asked_to_stop:
            os.kill(os.getpid(), signal.SIGHUP)

            assert not asked_to_stop()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_full_disk_that_tensorflow_finds_is_not_called_a_full_memory() -> None:
    error = RuntimeError("{{node FlushSummaryWriter}} /runs/a/tensorboard/events.1; No space left on device")

    said = out_of_memory(error, plan_devices(DeviceRequest(), Inventory()), "a batch of 8 clips")

    assert "a disk is full" in said.problem
    assert "/runs/a/tensorboard/events.1; No space left" in said.problem
    assert "free disk space" in said.hint
    assert "--batch-size" not in said.hint


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train"], "run the same command again: it continues"),
        (["train", "--fresh"], "run the same command again without --fresh: it continues"),
    ],
)
def test_the_way_on_after_a_fresh_start_is_not_another_one(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "main", interrupted)

    assert main(arguments) == INTERRUPTED
    assert hint in capsys.readouterr().err


def test_an_error_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", str(tmp_path / "\x1b]0;owned\x07corpus\x9b2J")]) == 1

    said = capsys.readouterr().err
    assert r"\x1b]0;owned\x07corpus\x9b2J" in said
    assert not set(said) & {"\x1b", "\x07", "\x9b"}


@pytest.mark.parametrize("line", ['{"event": "step", "time": 1.0, "stage": "gpt"}', "[" * 100_000])
def test_what_a_run_ended_with_is_said_whatever_its_log_holds(tmp_path: Path, line: str) -> None:
    (tmp_path / "events.jsonl").write_text(f"{line}\n")

    with pytest.raises(CheckpointError, match="the true one"):
        ended(raising(CheckpointError("the true one", hint="mend it")), tmp_path)

    assert last_event(tmp_path) == ("failed", "the true one")
    assert "the true one" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_made_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def run() -> bool:
        (tmp_path / "events.jsonl").unlink()  # by somebody who tidies up
        raise CheckpointError("the true one", hint="mend it")

    with pytest.raises(CheckpointError, match="the true one"):
        ended(run, tmp_path)

    assert "report.html cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("finished", "said"),
    [
        (True, 'To hear it: myxtts synth "TEXT" --voice {path} --out hello.wav'),
        (False, "Stopped and saved. To continue, run the same command again."),
    ],
)
def test_the_last_line_is_the_command_that_comes_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, finished: bool, said: str
) -> None:
    folder = RunFolder(tmp_path)
    folder.voice.symlink_to(find_voice("base").resolve())

    with caplog.at_level("INFO", logger="myxtts"):
        tell_what_follows(folder, finished=finished, fresh=False)

    assert caplog.messages == [said.format(path=tmp_path)]


def test_a_codec_alone_is_not_said_to_speak(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="myxtts"):
        tell_what_follows(RunFolder(tmp_path), finished=True, fresh=False)

    assert caplog.messages == []
