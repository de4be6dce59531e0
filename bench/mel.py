"""The mel beside librosa's on the same clips in the same run: CPU-seconds for a second of audio. `python -m bench.mel`.

One clip after the other is how librosa is used; our mel takes the same clips in padded batches, padding counted.
Both run on one thread: with more, BLAS's idle threads would be counted as librosa's CPU time and flatter us fourfold.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CLIPS, BATCH, ROUNDS = 160, 16, 7
SECONDS = (2.0, 9.0)


def make_clips(seed: int = 0) -> list[np.ndarray]:
    """Noise of LJSpeech-like lengths; what it sounds like costs nothing."""
    from myxtts.audio.mel import SAMPLE_RATE

    rng = np.random.default_rng(seed)
    lengths = sorted(int(SAMPLE_RATE * seconds) for seconds in rng.uniform(*SECONDS, CLIPS))
    return [(0.1 * rng.standard_normal(length)).astype(np.float32) for length in lengths]


def batches_of(clips: list[np.ndarray]) -> list[tuple[np.ndarray, list[int]]]:
    """Neighbours in length together, as the batch planner does."""
    result = []
    for start in range(0, len(clips), BATCH):
        part = clips[start : start + BATCH]
        lengths = [len(clip) for clip in part]
        padded = np.zeros((len(part), max(lengths)), np.int16)
        for row, clip in zip(padded, part, strict=True):
            row[: len(clip)] = np.clip(clip * 32768, -32768, 32767)
        result.append((padded, lengths))
    return result


def cpu_seconds(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def run() -> dict[str, float]:
    """Medians of both sides, taken in turns so that a busy machine hurts both."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    import librosa
    from threadpoolctl import threadpool_limits

    from myxtts.audio.mel import SAMPLE_RATE, MelSpectrogram

    clips = make_clips()
    batches = batches_of(clips)
    mel = MelSpectrogram()

    def ours() -> None:
        for padded, lengths in batches:
            mel(padded, lengths)[0].numpy()

    def theirs() -> None:
        for clip in clips:
            power = librosa.feature.melspectrogram(
                y=clip, sr=SAMPLE_RATE, n_fft=1024, hop_length=256, n_mels=80, fmax=8000, htk=True, norm="slaney"
            )
            np.log(np.maximum(power, 1e-5))

    ours()
    theirs()
    with threadpool_limits(1, user_api="blas"):
        pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(ROUNDS)]
    audio_seconds = sum(map(len, clips)) / SAMPLE_RATE
    ours_s, theirs_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {
        "audio_seconds": round(audio_seconds, 1),
        "ours_cpu_ms_per_audio_second": round(1000 * ours_s / audio_seconds, 3),
        "librosa_cpu_ms_per_audio_second": round(1000 * theirs_s / audio_seconds, 3),
        "ours_clips_per_cpu_second": round(CLIPS / ours_s, 1),
        "librosa_clips_per_cpu_second": round(CLIPS / theirs_s, 1),
        "times_faster": round(theirs_s / ours_s, 2),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
