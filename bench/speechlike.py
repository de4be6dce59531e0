"""Corpora for the benchmarks: clips of noise with a voice's envelope, with the lengths that real corpora have.

What a clip sounds like costs nothing; how long clips are, and how unequal, decides padding. From a clean clone the
benchmarks need no recordings.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 22050
KATHLEEN_QUANTILES_S = (
    *(0.76, 1.70, 1.97, 2.14, 2.28, 2.42, 2.60, 2.70, 2.79, 2.89, 2.99),
    *(3.09, 3.20, 3.36, 3.47, 3.59, 3.72, 3.90, 4.11, 4.38, 6.47),
)
"""Every 5 % of the 592 clips of rhasspy/dataset-voice-kathleen (CMU Arctic prompts), 3.0 s on average."""
WORDS = "in being comparatively modern the press of this city was printing books for all people who could read".split()
CHARACTERS_A_SECOND = 16.0


def kathleen_lengths_s(clips: int, seed: int = 0) -> NDArray[np.float64]:
    """Lengths in seconds, distributed as Kathleen's, in random order; the same share of long clips at every count."""
    at = (np.arange(clips) + 0.5) / clips
    lengths = np.interp(at, np.linspace(0, 1, len(KATHLEEN_QUANTILES_S)), KATHLEEN_QUANTILES_S)
    return np.random.default_rng(seed).permutation(lengths)


def ljspeech_lengths_s(clips: int, seed: int = 0) -> NDArray[np.float64]:
    """Lengths in seconds as LJSpeech has them: most between 4 and 9."""
    return 1.1 + 9.0 * np.random.default_rng(seed).beta(3.2, 2.0, clips)


def make_wave(seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    at = np.arange(int(SAMPLE_RATE * seconds)) / SAMPLE_RATE
    voiced = 0.2 * np.sin(2 * np.pi * 180 * at) * (1 + 0.5 * np.sin(2 * np.pi * 4 * at))
    return np.asarray(voiced + 0.01 * rng.standard_normal(len(at)))


def make_text(seconds: float, rng: np.random.Generator) -> str:
    """About as many words as are spoken in that time."""
    wanted, words = seconds * CHARACTERS_A_SECOND, [str(rng.choice(WORDS))]
    while sum(map(len, words)) + len(words) < wanted:
        words.append(str(rng.choice(WORDS)))
    return " ".join(words)


def make_corpus(folder: Path, lengths_s: NDArray[np.float64]) -> Path:
    """A folder in LJSpeech's form."""
    import soundfile

    rng = np.random.default_rng(0)
    (folder / "wavs").mkdir(parents=True)
    lines = []
    for number, seconds in enumerate(lengths_s):
        soundfile.write(folder / "wavs" / f"c{number}.wav", make_wave(seconds, rng), SAMPLE_RATE)
        lines.append(f"c{number}|{make_text(seconds, rng)}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return folder
