"""Training runs as processes that a test starts, watches by their events, and kills."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.fork_server import ForkedProcess
from tests.processes import start_forked
from tests.small_model import size_flags

ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1"}
"""Sums in one order: what two runs compute is then the same to the last bit."""


def arguments(corpus: Path, run_dir: Path, *more: str) -> list[str]:
    """`train_main.py` with a tiny model and a codec that no aligner helps, every step in the log; later flags win."""
    return [
        *("train_main.py", "--train-data", str(corpus), "--run-dir", str(run_dir), "--model-size", "tiny"),
        *(*size_flags(), "--batch-size", "2", "--log-every", "1", "--cache-dir", str(corpus.parent / "cache")),
        *("--ctc-loss-weight", "0"),
        *more,
    ]


def started(command: list[str], run_dir: Path) -> ForkedProcess:
    """The run in the background; what it says is in a file beside its folder."""
    with log_of(run_dir).open("a") as log:
        return start_forked(*command, stdout=log, stderr=log, **ONE_THREAD)


def log_of(run_dir: Path) -> Path:
    return run_dir.parent / f"{run_dir.name}.log"


def events(run_dir: Path) -> list[dict[str, Any]]:
    """Whole events so far; a torn line of a killed run is passed over."""
    path = run_dir / "events.jsonl"
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def losses(run_dir: Path) -> dict[int, set[float]]:
    """Every loss that was ever written for a step: more than one where a resumed run came to another result."""
    found: dict[int, set[float]] = {}
    for event in events(run_dir):
        if event["event"] == "step":
            found.setdefault(event["step"], set()).add(event["loss"])
    return found


def wait_for_step(process: ForkedProcess, run_dir: Path, step: int) -> None:
    """Returns when the step is in the log, or the run has ended well before it."""
    for _ in range(4800):
        if max(losses(run_dir), default=0) >= step:
            return
        if process.poll() is not None:
            assert process.returncode == 0, log_of(run_dir).read_text()
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} was not reached")
