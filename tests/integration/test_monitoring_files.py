"""What monitoring writes survives a kill, and TensorBoard can read its part."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from myxtts.monitoring.events import read_events
from myxtts.monitoring.schema import StepEvent
from tests.processes import ROOT, run_program


def test_a_writer_killed_at_any_moment_leaves_a_log_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "tests.programs", "monitoring", "write_events", str(path)]
    for wait_ms in (3, 11, 29):
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(wait_ms / 1000)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()

    steps = [event.step for event in read_events(path) if isinstance(event, StepEvent)]
    assert steps == list(range(len(steps)))
    assert len(steps) > 3


@pytest.mark.slow
def test_scalars_mels_and_audio_are_read_back_by_tensorboard(tmp_path: Path) -> None:
    run_program("monitoring", "tensorboard", str(tmp_path), fresh=True, TF_CPP_MIN_LOG_LEVEL="3")


@pytest.mark.slow
def test_tensorboard_takes_no_memory_for_each_step(tmp_path: Path) -> None:
    grown_mb = float(run_program("monitoring", "tensorboard_memory", str(tmp_path)).splitlines()[-1])

    assert grown_mb < 2.0, "TensorFlow keeps 0.7 kB for each Python number that is made a tensor: 8 MB here"
