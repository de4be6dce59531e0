"""The mel beside librosa's on the same clips in the same run: clips a CPU-second.

One clip after the other is how librosa is used; our mel takes the same clips in padded batches, padding counted.
Both run on one thread: with more, BLAS's idle threads would be counted as librosa's CPU time and flatter us fourfold.
"""

from __future__ import annotations

import os

from bench.measure import ONE_THREAD, Others, cpu_seconds
from bench.report import Report, Row, at_least, finish, parser_for, run_main

os.environ.update(ONE_THREAD)

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


def measure(rounds: int, *, quick: bool) -> Report:
    """Both sides in turns, so that a busy machine hurts both."""
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

    for _ in range(2):
        ours()
        theirs()
    others = Others()
    with threadpool_limits(1, user_api="blas"):
        pairs = [(CLIPS / cpu_seconds(ours), CLIPS / cpu_seconds(theirs)) for _ in range(rounds)]
    mine, their = (list(side) for side in zip(*pairs, strict=True))
    row = Row(name="mel", unit="clips per CPU-s", ours=mine, peer=their, peer_name="librosa", target=at_least(2.0))
    audio_s = sum(map(len, clips)) / SAMPLE_RATE
    context = {"audio seconds in a round": round(audio_s, 1), "clips": CLIPS}
    return Report(name="mel", rows=[row], others_cores=others.cores(), quick=quick, context=context)


def main(argv: list[str]) -> int:
    parser = parser_for("mel", __doc__)
    parser.set_defaults(rounds=ROUNDS)
    arguments = parser.parse_args(argv)
    return finish(measure(1 if arguments.quick else arguments.rounds, quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
