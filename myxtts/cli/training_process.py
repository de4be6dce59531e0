"""A training that a command starts in a process of its own, within a time: the demos' side of `myxtts train`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from myxtts.errors import TrainingError
from myxtts.monitoring.events import read_events
from myxtts.monitoring.schema import RunEndEvent

STOP_GRACE_S = 120.0
"""How long training may take to finish its step and to save once it was asked to stop."""


def our_command() -> str:
    """How to call us from here: `make demo` runs in an environment that its user has not entered."""
    return "myxtts" if shutil.which("myxtts") else f"{os.path.relpath(sys.executable)} -m myxtts"


def train_within(arguments: list[str], run: Path, minutes: float) -> bool:
    """`myxtts ARGUMENTS` for at most so many minutes, unless the run is finished; `True` once all stages are done."""
    if is_finished(run):
        print("Training was finished before.")
        return True
    # A process of its own: TensorFlow's devices are configured once per process.
    code = run_training([sys.executable, "-m", "myxtts", *arguments], minutes)
    if code != 0:
        raise TrainingError(f"training ended with code {code}", hint="its own message stands above")
    return is_finished(run)


def run_training(command: list[str], minutes: float) -> int:
    """Run a process for at most `minutes`, then ask it to save and stop, also when this one is ended; its exit code."""
    with _ended_by_sigterm():
        child = subprocess.Popen(command)
        try:
            return child.wait(timeout=minutes * 60)
        except subprocess.TimeoutExpired:
            print(f"{minutes:g} minutes are over: training is asked to stop")
            code = _stop(child)
            if code == -signal.SIGTERM:  # which it can answer once it has begun
                raise TrainingError(
                    f"{minutes:g} minutes were over before training had begun",
                    hint="run the same command again with more --minutes: what is prepared is kept",
                ) from None
            return code
        except KeyboardInterrupt:
            # Ctrl-C reached the child too, which saves; a second one ends both.
            child.wait()
            raise
        except SystemExit:
            print("Terminated: training saves and stops. Run the same command again: it continues.", flush=True)
            _stop(child)
            raise


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Within, SIGTERM raises SystemExit: left alone, it would end this process at once and leave its child behind."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(child: subprocess.Popen[bytes]) -> int:
    child.send_signal(signal.SIGTERM)
    try:
        return child.wait(timeout=STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        raise TrainingError(
            f"training did not stop within {STOP_GRACE_S:g} s of being asked to",
            hint="run the same command again: it continues from the last checkpoint",
        ) from None


def is_finished(run: Path) -> bool:
    """Whether the last run in this folder has finished all of its stages."""
    log = run / "events.jsonl"
    ends = [event for event in read_events(log) if isinstance(event, RunEndEvent)] if log.is_file() else []
    return bool(ends) and ends[-1].reason == "finished"
