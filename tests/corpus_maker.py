"""Small corpora for tests: tones with a syllable-like envelope, written in the forms that users have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import soundfile

from myxtts.config.data import DataConfig

WORDS = "the cat sat on a mat and saw two red birds in the old tree by our house".split()


def tone(seconds: float, rate: int = 22050, *, pitch: float = 200.0, level: float = 0.3) -> np.ndarray:
    """A voiced-sounding clip: a few harmonics under a slow envelope, never silent, never clipped."""
    at = np.arange(int(seconds * rate)) / rate
    voice = sum(np.sin(2 * np.pi * pitch * k * at) / k for k in range(1, 4))
    return (level * voice * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * at)) / 2).astype(np.float32)


def sentence(number: int) -> str:
    return " ".join(WORDS[(number * 7 + k) % len(WORDS)] for k in range(3 + number % 6)).capitalize() + "."


def make_ljspeech(
    folder: Path, clips: int = 6, *, seconds: Iterable[float] | None = None, lines: Iterable[str] | None = None
) -> Path:
    """`folder/metadata.csv` and `folder/wavs/`; clip n is called `clip_n`."""
    (folder / "wavs").mkdir(parents=True)
    lengths = list(seconds) if seconds is not None else [0.6 + 0.1 * (n % 9) for n in range(clips)]
    for number, length in enumerate(lengths):
        soundfile.write(folder / "wavs" / f"clip_{number}.wav", tone(length, pitch=150 + 5 * number), 22050)
    text = lines if lines is not None else [f"clip_{n}|{sentence(n)}|{sentence(n)}" for n in range(len(lengths))]
    (folder / "metadata.csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder


def settings(cache: Path, **changes: object) -> DataConfig:
    """Settings for a test: a cache of its own and the front end that starts fastest."""
    return DataConfig(**{"cache_dir": str(cache), "text_frontend": "characters", **changes})  # type: ignore[arg-type]


def batch_digest(batch: dict[str, np.ndarray]) -> str:
    """Equal for equal batches: names, types, shapes and every value."""
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def folder_digest(folder: Path) -> dict[str, str]:
    """A digest for each file of a prepared folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
