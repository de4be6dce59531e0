"""A line that cannot be written is lost: nothing that people read may end what it tells of."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from myxtts.monitoring.console import LiveConsole
from myxtts.monitoring.log import setup_logging
from myxtts.monitoring.schema import StageDoneEvent, StepEvent
from myxtts.monitoring.tensorboard import TensorBoardWriter

STAGE_DONE = StageDoneEvent(time=1.0, stage="gpt", step=3)


@contextlib.contextmanager
def pipe_into(descriptor: int) -> Iterator[TextIO]:
    stream = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")
    yield stream
    with contextlib.suppress(BrokenPipeError):
        stream.close()


@pytest.fixture
def pipe_without_reader() -> Iterator[TextIO]:
    reader, writer = os.pipe()
    os.close(reader)
    with pipe_into(writer) as stream:
        yield stream


@pytest.fixture
def log() -> logging.Logger:
    return setup_logging()


def closed() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


def test_a_log_that_nobody_reads_any_more_takes_lines_to_its_end(
    log: logging.Logger, pipe_without_reader: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", pipe_without_reader)
    for number in range(3):
        log.info("line %d", number)

    pipe_without_reader.flush()  # as Python does at exit, where a failure changes the exit code


@pytest.mark.parametrize("stream", [closed(), None], ids=["closed", "none"])
def test_a_log_without_a_stream_loses_its_lines(
    log: logging.Logger, stream: TextIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)

    log.info("line")


def test_a_log_line_cannot_command_the_terminal(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("speaker %s", "\x1b]0;owned\x07anna\r\x9b2J\x7f\tسلام")

    assert capsys.readouterr().err.endswith("speaker \\x1b]0;owned\\x07anna\\x0d\\x9b2J\\x7f\tسلام\n")


def test_a_line_that_cannot_be_made_is_shown_where_it_was_written(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for handler in log.handlers[:]:
        if handler.__module__ != "myxtts.monitoring.log":
            log.removeHandler(handler)  # pytest's own, which raise here
    log.info("%d steps", "many")

    assert "test_monitoring_log.py" in capsys.readouterr().err


def test_a_console_says_that_its_reader_is_gone_instead_of_ending_the_process(pipe_without_reader: TextIO) -> None:
    with pytest.raises(BrokenPipeError):
        LiveConsole(stream=pipe_without_reader, plain=True).on_event(STAGE_DONE)


def test_a_panel_whose_terminal_is_gone_lets_its_run_end_as_it_does() -> None:
    stderr = sys.stderr
    reader, writer = os.pipe()
    with pipe_into(writer) as stream, LiveConsole(stream=stream, plain=False) as console:
        os.close(reader)
        console.on_event(STAGE_DONE)

    assert sys.stderr is stderr


def test_tensorboard_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with TensorBoardWriter(tmp_path) as writer:
        for step in (1, 2):
            writer.on_event(StepEvent(time=1.0, stage="gpt", step=step, loss=1.0))
        writer.audio("gpt/sample_1", [0.0], 22050, 2)

    (warning,) = caplog.records
    assert "TensorBoard is not installed" in warning.message
    assert "pip install tensorboard" in warning.message
