"""Data: utterances a CPU-second for preparing and for reading batches, beside soundfile with librosa's mel in one run;
start-up and memory for indexes of a thousand, a hundred thousand and a million clips. `python -m bench.data [CORPUS]`.

Without a corpus it speaks one of tones with LJSpeech's lengths. CPU-seconds count every thread and process of ours.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before NumPy starts: waiting BLAS threads burn CPU-seconds, which would flatter us.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from myxtts.config.data import DataConfig  # noqa: E402

ROUNDS = 3
LIBROSA_CLIPS = 100
READ_EPOCHS = 4
"""More than one epoch a round, so that what Grain reads ahead weighs little."""
SYNTHETIC_CLIPS = 300
INDEX_SIZES = (1_000, 100_000, 1_000_000)
CLIPS_PER_SHARD = 2048


def cpu_seconds(work: Callable[[], Any]) -> float:
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def make_corpus(folder: Path) -> Path:
    """Tones of LJSpeech's lengths with texts to match."""
    import soundfile

    rng = np.random.default_rng(0)
    words = (
        "in being comparatively modern the press of this city was printing books for all people who could read".split()
    )
    (folder / "wavs").mkdir(parents=True)
    lines = []
    for number, seconds in enumerate(1.1 + 9.0 * rng.beta(3.2, 2.0, SYNTHETIC_CLIPS)):
        at = np.arange(int(22050 * seconds)) / 22050
        wave = 0.2 * np.sin(2 * np.pi * 180 * at) * (1 + 0.5 * np.sin(2 * np.pi * 4 * at)) + 0.01 * rng.standard_normal(
            len(at)
        )
        soundfile.write(folder / "wavs" / f"c{number}.wav", wave, 22050)
        lines.append(f"c{number}|{' '.join(rng.choice(words, max(1, int(seconds * 2.5))))}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return folder


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


def bench_reading(corpus: Path, prepared: Any) -> dict[str, float]:
    """Batches from shards against files through soundfile and librosa's mel: same clips, turn by turn."""
    import librosa
    import soundfile

    from myxtts.data.batching import batches, padding_share
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
    rounds = [(cpu_seconds(ours), cpu_seconds(theirs), cpu_seconds(decoding_only)) for _ in range(ROUNDS)]
    read, librosa_mel, decode = (statistics.median(side) for side in zip(*rounds, strict=True))
    ours_per_second = READ_EPOCHS * len(prepared) / read
    shares = [padding_share(next(source)) for _ in range(source.batches_per_epoch)]
    source.close()
    return {
        "batches_clips_per_cpu_second": round(ours_per_second),
        "soundfile_librosa_mel_clips_per_cpu_second": round(len(paths) / librosa_mel),
        "soundfile_alone_clips_per_cpu_second": round(len(paths) / decode),
        "times_librosa": round(ours_per_second / (len(paths) / librosa_mel), 1),
        "times_soundfile_alone": round(ours_per_second / (len(paths) / decode), 1),
        "padding_share": round(source.wave_padding_share, 4),
        "padding_share_worst_batch": round(max(shares), 4),
    }


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


OPEN_INDEX = """
import json, sys, time
import psutil
from myxtts.config.data import DataConfig
from myxtts.data.batching import batches
from myxtts.data.prepared import open_prepared
process = psutil.Process()
before = process.memory_info().rss
started, cpu = time.perf_counter(), time.process_time()
prepared = open_prepared(sys.argv[1])
opened = time.perf_counter() - started
source = batches(prepared, config=DataConfig(), seed=0)
source._source.planner.plan(0)
planned = time.perf_counter() - started
print(json.dumps({
    "open_seconds": round(opened, 3),
    "open_and_plan_seconds": round(planned, 3),
    "open_and_plan_cpu_seconds": round(time.process_time() - cpu, 3),
    "rss_growth_mb": round((process.memory_info().rss - before) / 1e6, 1),
    "rss_mb": round(process.memory_info().rss / 1e6, 1),
    "padding_share": round(source.wave_padding_share, 4),
    "batches": source.batches_per_epoch,
}))
"""


def bench_index(scratch: Path, clips: int) -> dict[str, float]:
    """Open an index and plan an epoch in a fresh process."""
    folder = scratch / f"index-{clips}"
    make_index(folder, clips)
    output = subprocess.run(
        [sys.executable, "-c", OPEN_INDEX, str(folder)], check=True, capture_output=True, text=True
    ).stdout
    size = sum(path.stat().st_size for path in folder.iterdir())
    result: dict[str, float] = {"bytes_per_clip_on_disk": round(size / clips, 1), **json.loads(output)}
    return result


def bench_mel() -> dict[str, float]:
    """Our mel beside librosa's, by `bench.mel`: a process of its own, because it holds both to one thread."""
    result = subprocess.run([sys.executable, "-m", "bench.mel"], capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


def run(corpus: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = corpus if corpus is not None else make_corpus(scratch / "tones")
        results: dict[str, Any] = {}
        for frontend in ("characters", "phonemes"):
            results[f"prepare, {frontend}"], prepared = bench_prepare(source, scratch, frontend)
        results["read"] = bench_reading(source, prepared)
        for clips in INDEX_SIZES:
            results[f"index of {clips} clips"] = bench_index(scratch, clips)
        results["mel"] = bench_mel()
    return results


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]) if len(sys.argv) > 1 else None), indent=1))
