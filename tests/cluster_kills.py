"""Kills workers of a run over Ray at random, again and again, and compares its losses with one machine's.

    python -m tests.cluster_kills --kills 100 --seed 0 --out /tmp/kills

Each kill is of a data worker, a model worker or the driver, kill -9, some steps after the last one. The run is begun
again where its driver was killed, and ends when all kills are done and all steps are. One line a kill.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import run
from tests.ray_nodes import RayNodes, command, started, wait_for_step, workers
from tests.training_processes import ONE_THREAD, arguments, events, losses

STEPS_PER_KILL = 6
VICTIMS = ("DataWorkerActor", "ModelWorkerActor", "driver")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, which is removed first")
    options = parser.parse_args(argv)
    shutil.rmtree(options.out, ignore_errors=True)
    corpus = options.out / "demo"
    write_demo_corpus(corpus, DemoSettings(minutes=0.5), workers=1)
    steps = (options.kills + 1) * STEPS_PER_KILL
    flags = ("--stage", "codec", "--max-steps", str(steps), "--samples", "0", "--checkpoint-every", "4")
    whole = run(*arguments(corpus, options.out / "one", *flags), timeout_s=36_000, **ONE_THREAD)
    if whole.returncode:
        print(whole.stderr)
        return 1
    nodes = RayNodes(3)
    try:
        kill_and_go_on(corpus, options.out / "run", nodes, random.Random(options.seed), options.kills, flags)
    finally:
        nodes.close()
    expected, found = losses(options.out / "one"), losses(options.out / "run")
    wrong = [step for step in expected if found.get(step) != expected[step]]
    print(f"{options.kills} kills, {len(expected)} steps, {len(wrong)} with other losses {wrong[:5]}")
    return 1 if wrong else 0


def kill_and_go_on(
    corpus: Path, folder: Path, nodes: RayNodes, rng: random.Random, kills: int, flags: tuple[str, ...]
) -> None:
    line = command(corpus, folder, nodes.address, *flags, "--data-workers", "2")
    done = 0
    while True:
        with started(line, folder) as driver:
            while done < kills and driver.poll() is None:
                wait_for_step(driver, folder, max(losses(folder), default=0) + 1, timeout_s=1800)
                wait_for_step(driver, folder, (done + 1) * STEPS_PER_KILL - rng.randrange(STEPS_PER_KILL - 1), 1800)
                victim = rng.choice(VICTIMS)
                done += 1
                print(f"kill {done}: {victim} at step {max(losses(folder), default=0)}", flush=True)
                if victim == "driver":
                    driver.send_signal(signal.SIGKILL)
                    break
                # None, for a moment, while Ray starts one again.
                while not (alive := workers(victim)):
                    assert driver.poll() is None
                    time.sleep(0.2)
                rng.choice(alive).kill()
            code = driver.wait(3600)
        if code == 0:
            assert events(folder)[-1]["reason"] == "finished"
            return
        assert code == -signal.SIGKILL, (folder.parent / f"{folder.name}.log").read_text()[-3000:]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
