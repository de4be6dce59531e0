"""A kill in the middle of an epoch: the batches after the resume are those of an uninterrupted run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from myxtts.data.prepare import prepare
from tests.corpus_maker import make_ljspeech, settings

READ = """
import json, sys, time
from pathlib import Path
from myxtts.config.data import DataConfig
from myxtts.data.batching import batches
from myxtts.data.prepared import open_prepared
from tests.corpus_maker import batch_digest

def main():
    folder, state_path, count, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    source = batches(open_prepared(folder), config=DataConfig(batch_seconds=5.0, num_workers=workers), seed=11)
    if state_path.exists():
        source.set_state(json.loads(state_path.read_text()))
    for _ in range(count):
        digest = batch_digest(next(source))
        partial = state_path.with_suffix(".part")
        partial.write_text(json.dumps(source.get_state()))
        partial.replace(state_path)
        print(digest, flush=True)
    source.close()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("workers", "workers_after"), [(0, 0), (2, 1), (0, 2)])
def test_after_kill_9_in_an_epoch_the_very_next_batches_follow(
    tmp_path: Path, workers: int, workers_after: int
) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 60), settings(tmp_path), workers=1)
    script = tmp_path / "read.py"
    script.write_text(READ)

    def command(state: str, count: int, workers: int) -> list[str]:
        return [sys.executable, str(script), str(prepared.path), str(tmp_path / state), str(count), str(workers)]

    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    whole = subprocess.run(
        command("whole.json", 24, 0), env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    process = subprocess.Popen(
        command("state.json", 10_000, workers), env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    before = [process.stdout.readline().strip() for _ in range(5)]
    process.kill()
    rest = process.stdout.read().split()
    process.wait()
    before += rest
    seen = json.loads((tmp_path / "state.json").read_text())
    position = seen["epoch"] * seen["batches_per_epoch"] + seen["position"]

    after = subprocess.run(
        command("state.json", 9, workers_after),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.split()

    assert len(before) <= position <= len(before) + 1, "the state was saved with each batch"
    everything = subprocess.run(
        command("all.json", position + 9, 0), env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    assert everything[:24] == whole[: len(everything)]
    assert before == everything[: len(before)]
    assert after == everything[position:]
