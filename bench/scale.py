"""From a thousand clips to a million: what start-up, memory and a training step cost. Step time must stay flat.

A corpus of any size is made of one real shard: its file is linked under as many names as are needed, so that a
million clips take the disk of some hundred, and everything that grows with a corpus is as large as it would be. What
this cannot show is a disk that is slower than memory. All sizes train in turns, in processes that stay alive, stage
gpt, tiny.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Others, answer_turns, sides
from bench.report import Report, Row, at_most, finish, parser_for, run_main
from bench.speechlike import kathleen_lengths_s, make_corpus

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SHARD_CLIPS = 250
STEPS = 15
FLAT = 1.05


def main(argv: list[str]) -> int:
    parser = parser_for("scale", __doc__)
    parser.set_defaults(rounds=7)
    parser.add_argument("--ours-side", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.ours_side:
        ours_side(arguments.ours_side)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return finish(measure(arguments, Path(folder)), arguments.json)


def measure(arguments: argparse.Namespace, scratch: Path) -> Report:
    sizes = SIZES[::3] if arguments.quick else SIZES
    folders = {clips: link_corpus(one_shard(scratch), scratch / f"corpus-{clips}", clips) for clips in sizes}
    commands = {
        str(clips): [sys.executable, "-m", "bench.scale", "--ours-side", str(folder)]
        for clips, folder in folders.items()
    }
    with sides(commands) as living:
        started = {int(name): side.ready for name, side in living.items()}
        others = Others()
        made: dict[int, list[float]] = {clips: [] for clips in sizes}
        for number in range(1 if arguments.quick else arguments.rounds):
            # Every other round the other way round: what drifts over a round then cancels.
            for name in list(living)[:: 1 if number % 2 == 0 else -1]:
                made[int(name)].append(living[name].turn()["cpu_ms_per_padded_second"])
        others_cores = others.cores()
    return Report(
        name="scale",
        rows=rows_of(started, made),
        others_cores=others_cores,
        quick=arguments.quick,
        context={"clips in the linked shard": SHARD_CLIPS, "steps of a turn": STEPS},
    )


def rows_of(started: dict[int, dict[str, float]], made: dict[int, list[float]]) -> list[Row]:
    least = min(made)
    rows = []
    for clips, figures in made.items():
        flat = {} if clips == least else {"peer": made[least], "peer_name": f"{least:,} clips", "target": at_most(FLAT)}
        rows.append(Row(name=f"step, {clips:,} clips", unit="CPU-ms per padded audio second", ours=figures, **flat))
    for clips, ready in started.items():
        rows.append(Row(name=f"open and first batch, {clips:,}", unit="CPU-s", ours=[ready["open_cpu_s"]]))
        rows.append(Row(name=f"memory for the corpus, {clips:,}", unit="MB", ours=[ready["grown_mb"]]))
    return rows


def one_shard(scratch: Path) -> Path:
    """A prepared corpus of SHARD_CLIPS clips, made once."""
    from myxtts.config.data import DataConfig
    from myxtts.data.prepare import prepare

    corpus = scratch / "clips"
    if not corpus.exists():
        make_corpus(corpus, kathleen_lengths_s(SHARD_CLIPS))
    return prepare(corpus, DataConfig(cache_dir=str(scratch / "cache"), text_frontend="characters")).path


def link_corpus(prepared: Path, folder: Path, clips: int) -> Path:
    """A prepared corpus of `clips` clips whose shards are all the same file."""
    import numpy as np

    from myxtts.data.prepared import INDEX_TYPES, MANIFEST, REPORT, TOKENIZER, seal, write_index

    manifest: dict[str, Any] = json.loads((prepared / MANIFEST).read_text())
    own, copies = manifest["shards"], -(-clips // manifest["clips"])
    folder.mkdir()
    shards = []
    for copy in range(copies):
        for shard in own:
            name = f"{copy:05d}-{shard['file']}"
            os.link(prepared / shard["file"], folder / name)
            shards.append({**shard, "file": name})
    columns = {name: np.tile(np.fromfile(prepared / f"{name}.bin", kind), copies) for name, kind in INDEX_TYPES.items()}
    for name in (TOKENIZER, REPORT):
        os.link(prepared / name, folder / name)
    manifest |= {"clips": copies * manifest["clips"], "shards": shards, "index_crc32": write_index(folder, columns)}
    (folder / MANIFEST).write_text(json.dumps(seal(manifest, folder)))
    return folder


class Used:
    """CPU-seconds and memory that the blocks under it took together."""

    def __init__(self) -> None:
        self.cpu_s = self.rss_mb = 0.0
        self._process = psutil.Process()

    def __enter__(self) -> Used:
        self._before = time.process_time(), self._process.memory_info().rss
        return self

    def __exit__(self, *_: object) -> None:
        cpu_s, rss = self._before
        self.cpu_s += time.process_time() - cpu_s
        self.rss_mb += (self._process.memory_info().rss - rss) / 1e6


def ours_side(path: Path) -> None:
    """Trains in turns; says first what opening the corpus cost."""
    from bench.train import Training, even_alignments
    from myxtts.data.prepared import open_prepared

    # TensorFlow, the model and its traces are there before the corpus is: only what the corpus costs is left.
    warm = Training(open_prepared(next(one for one in path.parent.glob("cache/*") if one.is_dir())), size="tiny")
    with warm.pipeline:
        for _ in range(6):
            warm.step()
    used = Used()
    with used:
        prepared = open_prepared(path)
    # Made up, and not counted: the aligner's own have 2 bytes a code.
    alignments = even_alignments(prepared)
    with used:
        training = Training(prepared, size="tiny", trainer=warm.trainer, alignments=alignments)
        training.pipeline.start()
        next(training.pipeline)
    with contextlib.closing(training.pipeline):
        ready = {"open_cpu_s": used.cpu_s, "grown_mb": used.rss_mb}
        for _ in range(3):
            training.step()
        answer_turns(ready, lambda _order: turn(training))


def turn(training: Any) -> dict[str, float]:
    """Steps at their cost for a padded second, so that turns with longer batches do not look slower."""
    began = time.process_time()
    padded_s = sum(training.step() for _ in range(STEPS))
    return {"cpu_ms_per_padded_second": 1000 * (time.process_time() - began) / padded_s}


if __name__ == "__main__":
    raise SystemExit(run_main(main))
