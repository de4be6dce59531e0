"""Kills workers of a run over Ray at random, again and again, and compares its losses with one machine's.

    python -m tests.cluster_kills --kills 100 --seed 0 --out /tmp/kills

Each kill is of a data worker, a model worker or the driver, kill -9, some steps after the last one. The run is begun
again where its driver was killed, and is stopped when it has gone on from the last kill; the one machine then does as
many steps. One line a kill, with what came of it; then how many of each kind went on how.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from subprocess import Popen

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.ray_nodes import RayNodes, command, nothing_is_left, started, wait_for_step, workers
from tests.training_processes import arguments, events, losses

STEPS_PER_KILL = 6
"""At most, between the run's going on and the next kill."""
MOST_STEPS_PER_KILL = 100
"""More than any machine takes while one is hit and another starts."""
VICTIMS = ("DataWorkerActor", "ModelWorkerActor", "driver")
PATIENCE_S = 1800.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, which is removed first")
    options = parser.parse_args(argv)
    shutil.rmtree(options.out, ignore_errors=True)
    corpus = options.out / "demo"
    write_demo_corpus(corpus, DemoSettings(minutes=0.5), workers=1)
    steps = MOST_STEPS_PER_KILL * (options.kills + 1)
    flags = ("--stage", "codec", "--max-steps", str(steps), "--samples", "0", "--checkpoint-every", "4")
    nodes = RayNodes(3)
    folder = options.out / "run"
    try:
        line = command(corpus, folder, nodes.address, *flags, "--data-workers", "2")
        ends = kill_and_go_on(line, folder, random.Random(options.seed), options.kills)
    finally:
        nodes.close()
    found = losses(folder)
    one = options.out / "one"
    with started(arguments(corpus, one, *flags), one) as alone:
        wait_for_step(alone, one, max(found), PATIENCE_S)
        stop(alone)
    expected = {step: loss for step, loss in losses(one).items() if step <= max(found)}
    wrong = [step for step in expected if found.get(step) != expected[step]]
    for (victim, end), count in sorted(ends.items()):
        print(f"{count:4} {victim}: {end}")
    print(f"{options.kills} kills, {len(expected)} steps, {len(wrong)} with other losses {wrong[:5]}")
    return 1 if wrong else 0


def kill_and_go_on(line: list[str], folder: Path, rng: random.Random, kills: int) -> Counter[tuple[str, str]]:
    """How many kills of whom went on how."""
    ends: Counter[tuple[str, str]] = Counter()
    killed: Killed | None = None
    done = 0
    while True:
        with started(line, folder) as driver:
            while True:
                wait_for_step(driver, folder, max(losses(folder), default=0) + 1, PATIENCE_S)
                if killed is not None:
                    ends[killed.victim, killed.went_on(folder)] += 1
                if done == kills:
                    stop(driver)
                    return ends
                wait_for_step(driver, folder, max(losses(folder)) + rng.randrange(STEPS_PER_KILL), PATIENCE_S)
                done += 1
                killed = Killed(done, rng.choice(VICTIMS), folder)
                kill(killed.victim, driver, rng)
                if killed.victim == "driver":
                    break
            driver.wait(PATIENCE_S)
        nothing_is_left(PATIENCE_S)


def stop(run: Popen[bytes]) -> None:
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE_S) == 0


class Killed:
    """A kill, and where the run was."""

    def __init__(self, number: int, victim: str, folder: Path) -> None:
        self.number, self.victim, self._killed_at = number, victim, time.monotonic()
        self._step, self._starts = max(losses(folder), default=0), len(starts_of(folder))

    def went_on(self, folder: Path) -> str:
        """Once there is a step that was not there before: with the same model worker, or from a checkpoint."""
        starts = starts_of(folder)[self._starts :]
        end = "went on from the last checkpoint" if starts else "went on, no step lost"
        took_s = time.monotonic() - self._killed_at
        print(
            f"kill {self.number}: {self.victim} at step {self._step}: {end} {starts} after {took_s:.0f} s", flush=True
        )
        return end


def starts_of(folder: Path) -> list[int]:
    return [event["step"] for event in events(folder) if event["event"] == "training_start"]


def kill(victim: str, driver: Popen[bytes], rng: random.Random) -> None:
    if victim == "driver":
        driver.send_signal(signal.SIGKILL)
        return
    # None, for a moment, while Ray starts one again.
    while not (alive := workers(victim)):
        assert driver.poll() is None
        time.sleep(0.2)
    rng.choice(alive).kill()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
