"""`python -m tests.soak --steps 20000 --minutes 120`: long runs of tiny steps; memory, files and threads stay flat.

Each stage trains in a process of its own, watched from outside. Growth is the slope over the steps after the warm-up, a
fifth of them: the first steps trace functions and fill buffers. A run that itself warns of a leak has failed as well.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tests.corpus_maker import make_ljspeech
from tests.fork_server import ForkedProcess
from tests.training_processes import arguments, events, log_of, started

STAGES = ("codec", "gpt", "decoder")
WARM_UP = 0.2
MOST_MB_PER_1000_STEPS = 1.0
POLL_S = 1.0


@dataclass(frozen=True)
class Reading:
    """A process at some step."""

    step: int
    rss_mb: float
    files: int
    threads: int


def growth(readings: list[Reading]) -> tuple[float, int, int]:
    """MB for 1,000 steps, and by how many open files and threads the second half after the warm-up has more than the
    first, of the fewest in each: a checkpoint that is being written is open for a moment."""
    warm = [one for one in readings if one.step >= WARM_UP * readings[-1].step]
    steps = np.array([one.step for one in warm], float)
    slope = np.polyfit(steps, [one.rss_mb for one in warm], 1)[0] if len(set(steps)) > 1 else 0.0
    first, second = warm[: max(1, len(warm) // 2)], warm[len(warm) // 2 :]
    files, threads = (
        min(getattr(one, name) for one in second) - min(getattr(one, name) for one in first)
        for name in ("files", "threads")
    )
    return float(slope * 1000), files, threads


def size_of_events(run: Path) -> int:
    path = run / "events.jsonl"
    return path.stat().st_size if path.exists() else 0


def last_step(run: Path, since: int) -> int:
    """From the end of the event log, which grows long; 0 where none was written beyond so many bytes, in which the
    stages before have their steps."""
    if size_of_events(run) <= since:
        return 0
    with (run / "events.jsonl").open("rb") as file:
        file.seek(max(since, size_of_events(run) - 20_000))
        found = re.findall(rb'"event": "step".*?"step": (\d+)', file.read())
    return int(found[-1]) if found else 0


def read(process: ForkedProcess, step: int) -> Reading | None:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    except OSError:
        return None
    numbers = {name: int(value) for name, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", status)}
    return Reading(step, numbers["VmRSS"] / 1024, files, numbers["Threads"]) if "VmRSS" in numbers else None


def soak(command: list[str], run: Path, minutes: float) -> list[Reading]:
    """Readings of one stage, until it ends or the time is over."""
    began, readings = time.monotonic(), list[Reading]()
    since = size_of_events(run)
    process = started(command, run)
    while process.poll() is None:
        if time.monotonic() - began > 60 * minutes:
            process.send_signal(signal.SIGTERM)
            process.wait(600)
            break
        reading = read(process, last_step(run, since))
        if reading is not None and reading.step > (readings[-1].step if readings else 0):
            readings.append(reading)
        time.sleep(POLL_S)
    assert process.returncode == 0, log_of(run).read_text(encoding="utf-8")[-2000:]
    return readings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=120.0, help="for all stages together")
    parser.add_argument("--stages", nargs="*", default=list(STAGES), choices=STAGES)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="myxtts-soak-") as folder:
        run = Path(folder) / "run"
        corpus = make_ljspeech(Path(folder) / "corpus", 12)
        for stage in STAGES[: STAGES.index(options.stages[-1]) + 1]:
            wanted = options.steps if stage in options.stages else 1
            flags = ("--stage", stage, "--max-steps", str(wanted), "--epochs", str(wanted), "--samples", "0")
            every = ("--checkpoint-every", str(max(1, wanted // 20)), "--validate-every", str(max(1, wanted // 10)))
            # Discriminators that join later are a new function, and one stair of 24 MB in the middle.
            same = ("--text-frontend", "characters", "--alignment-weight", "0", "--discriminator-start", "0")
            command = arguments(corpus, run, *flags, *every, *same)
            readings = soak(command, run, options.minutes / len(options.stages))
            if stage not in options.stages or not readings:
                continue
            mb, files, threads = growth(readings)
            leaks = [event for event in events(run) if event["event"] == "leak" and event["stage"] == stage]
            figures = {
                "stage": stage,
                "steps": readings[-1].step,
                "mb_per_1000_steps": round(mb, 3),
                "files_grown": files,
                "threads_grown": threads,
                "leak_warnings": len(leaks),
                "last": asdict(replace(readings[-1], rss_mb=round(readings[-1].rss_mb, 1))),
            }
            print(json.dumps(figures), flush=True)
            failed |= mb > MOST_MB_PER_1000_STEPS or files > 0 or threads > 0 or bool(leaks)
    return failed


if __name__ == "__main__":
    sys.exit(main())
