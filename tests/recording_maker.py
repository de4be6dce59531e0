"""Made-up recordings: bursts of tones stand for speech, noise for the room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RATE = 16000


def spoken(seconds: float, *, rate: int = RATE, level: float = 0.3) -> NDArray[np.float32]:
    """Something as loud and uneven as speech: tones whose loudness moves four times a second, never silent."""
    time = np.arange(int(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * pitch * time) for pitch in (180, 560, 1700)) / 3
    return (level * tones * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * time))).astype(np.float32)


def recording(
    speech_s: Sequence[float], pauses_s: Sequence[float], *, rate: int = RATE, noise: float = 0.001, level: float = 0.3
) -> NDArray[np.float32]:
    """A pause, speech, a pause, and so on; one pause more than speech."""
    parts = [np.zeros(int(pauses_s[0] * rate), np.float32)]
    for seconds, pause in zip(speech_s, pauses_s[1:], strict=True):
        parts += [spoken(seconds, rate=rate, level=level), np.zeros(int(pause * rate), np.float32)]
    whole = np.concatenate(parts)
    return (whole + noise * np.random.default_rng(0).standard_normal(len(whole))).astype(np.float32)
