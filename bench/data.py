"""Data: clips a CPU-second for preparing and for reading batches, beside soundfile with librosa's mel and beside
soundfile alone, in one run; start-up and memory for indexes of a thousand, a hundred thousand and a million clips.

Without `--corpus DIR` it makes one of LJSpeech's lengths. CPU-seconds count every thread and process of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Before NumPy starts: waiting BLAS threads burn CPU-seconds, which would flatter us.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from bench.measure import Others, cpu_seconds  # noqa: E402
from bench.report import Report, Row, at_least, finish, parser_for, run_main  # noqa: E402
from bench.speechlike import ljspeech_lengths_s, make_corpus  # noqa: E402
from myxtts.config.data import DataConfig  # noqa: E402

LIBROSA_CLIPS = 100
READ_EPOCHS = 4
"""More than one epoch a round, so that what Grain reads ahead weighs little."""
SYNTHETIC_CLIPS = 300
INDEX_SIZES = (1_000, 100_000, 1_000_000)
CLIPS_PER_SHARD = 2048


def bench_prepare(corpus: Path, scratch: Path, frontend: str) -> tuple[dict[str, float], Any]:
    """A fresh preparation with all cores; processes and the vocabulary's training included."""
    from myxtts.data.prepare import prepare

    config = DataConfig(cache_dir=str(scratch), text_frontend=frontend, max_refused_share=0.5)  # type: ignore[arg-type]
    prepared = prepare(corpus, config, force=True)  # imports and the page cache are warm after this one
    wall = time.perf_counter()
    cpu = cpu_seconds(lambda: prepare(corpus, config, force=True))
    wall = time.perf_counter() - wall
    started = time.perf_counter()
    prepare(corpus, config)
    return {
        "clips": len(prepared),
        "clips_per_cpu_second": round(len(prepared) / cpu, 1),
        "clips_per_second": round(len(prepared) / wall, 1),
        "second_call_seconds": round(time.perf_counter() - started, 3),
    }, prepared


def bench_reading(corpus: Path, prepared: Any, rounds: int) -> dict[str, Any]:
    """Batches from shards against files through soundfile, with librosa's mel and without: same clips, turn by turn.

    Ours has no mel in it: a step takes it on its data device. So the row with theirs is what a loader that makes mels
    costs the CPU, and the row without is reading against reading.
    """
    import librosa
    import soundfile

    from myxtts.data.batching import batches
    from myxtts.data.corpora import list_corpus

    paths = [entry.audio.path for entry in list_corpus(corpus).entries][:LIBROSA_CLIPS]
    config = DataConfig()
    source = batches(prepared, config=config, seed=0)

    def ours() -> None:
        for _ in range(READ_EPOCHS * source.batches_per_epoch):
            next(source)

    def theirs() -> None:
        for path in paths:
            wave, rate = soundfile.read(path, dtype="float32")
            mel = librosa.feature.melspectrogram(y=wave, sr=rate, n_fft=1024, hop_length=256, n_mels=80, fmax=8000)
            np.log(np.maximum(mel, 1e-5))

    def decoding_only() -> None:
        for path in paths:
            soundfile.read(path, dtype="float32")

    ours(), theirs()
    sides = {"ours": [], "librosa": [], "soundfile": []}
    for _ in range(rounds):
        sides["ours"].append(READ_EPOCHS * len(prepared) / cpu_seconds(ours))
        sides["librosa"].append(len(paths) / cpu_seconds(theirs))
        sides["soundfile"].append(len(paths) / cpu_seconds(decoding_only))
    worst = max(_padding_share(next(source)) for _ in range(source.batches_per_epoch))
    source.close()
    return {**sides, "padding_share": source.wave_padding_share, "padding_share_worst_batch": worst}


def _padding_share(batch: dict[str, np.ndarray]) -> float:
    return 1.0 - float(batch["wave_lengths"].sum()) / batch["wave"].size


def make_index(folder: Path, clips: int) -> None:
    """A prepared folder with an index of LJSpeech's lengths; its shards are empty files, which nothing opens."""
    from myxtts.data.prepared import FORMAT_VERSION, MANIFEST, write_index

    folder.mkdir()
    rng = np.random.default_rng(0)
    seconds = 1.1 + 9.0 * rng.beta(3.2, 2.0, clips)
    columns = {
        "wave_samples": (seconds * 22050).astype(np.uint32),
        "text_tokens": np.maximum(2, seconds * 14 * rng.normal(1, 0.15, clips)).astype(np.uint32),
        "speaker": rng.integers(0, 100, clips),
        "language": np.zeros(clips),
    }
    shards = []
    for number, first in enumerate(range(0, clips, CLIPS_PER_SHARD)):
        name = f"shard-{number:05d}.array_record"
        (folder / name).touch()
        shards.append({"file": name, "clips": min(CLIPS_PER_SHARD, clips - first), "size_bytes": 0})
    manifest = {
        "version": FORMAT_VERSION,
        "fingerprint": "synthetic",
        "clips": clips,
        "speakers": [f"speaker {number}" for number in range(100)],
        "languages": ["en"],
        "index_crc32": write_index(folder, columns),
        "shards": shards,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))


def bench_index(scratch: Path, clips: int) -> dict[str, float]:
    """Open an index and plan an epoch in a fresh process."""
    folder = scratch / f"index-{clips}"
    make_index(folder, clips)
    output = subprocess.run(
        [sys.executable, "-m", "bench.open_index", str(folder)], check=True, capture_output=True, text=True
    ).stdout
    size = sum(path.stat().st_size for path in folder.iterdir())
    result: dict[str, float] = {"bytes_per_clip_on_disk": round(size / clips, 1), **json.loads(output)}
    return result


def main(argv: list[str]) -> int:
    parser = parser_for("data", __doc__)
    parser.add_argument("--corpus", type=Path, help="a folder of recordings instead of noise of LJSpeech's lengths")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        return finish(measure(arguments, Path(folder)), arguments.json)


def measure(arguments: Any, scratch: Path) -> Report:
    others = Others()
    clips = SYNTHETIC_CLIPS // 5 if arguments.quick else SYNTHETIC_CLIPS
    source = arguments.corpus or make_corpus(scratch / "clips", ljspeech_lengths_s(clips))
    context: dict[str, Any] = {}
    rows = []
    for frontend in ("characters", "phonemes"):
        context[f"prepare, {frontend}"], prepared = bench_prepare(source, scratch, frontend)
        rate = context[f"prepare, {frontend}"]["clips_per_cpu_second"]
        rows.append(Row(name=f"prepare, {frontend}", unit="clips per CPU-s", ours=[rate]))
    read = bench_reading(source, prepared, 1 if arguments.quick else arguments.rounds)
    common: dict[str, Any] = {"unit": "clips per CPU-s", "ours": read["ours"]}
    mel = "soundfile and librosa's mel"
    rows.append(
        Row(name="reading, theirs with a mel", peer=read["librosa"], peer_name=mel, target=at_least(10), **common)
    )
    rows.append(Row(name="reading, both without a mel", peer=read["soundfile"], peer_name="soundfile", **common))
    context["padding share"] = {name: round(read[name], 4) for name in ("padding_share", "padding_share_worst_batch")}
    for count in INDEX_SIZES[: 1 if arguments.quick else None]:
        context[f"index of {count} clips"] = index = bench_index(scratch, count)
        rows.append(Row(name=f"open and plan {count:,} clips", unit="CPU-s", ours=[index["open_and_plan_cpu_seconds"]]))
    return Report(name="data", rows=rows, others_cores=others.cores(), quick=arguments.quick, context=context)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
