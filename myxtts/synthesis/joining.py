"""Spoken pieces into one wave: silence cut off the ends, short fades, a pause that fits the border, another speed.

NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.synthesis.splitting import Border

Wave = NDArray[np.float32]

PAUSE_SECONDS = {
    Border.PARAGRAPH: 0.5,
    Border.SENTENCE: 0.28,
    Border.CLAUSE: 0.14,
    Border.WORD: 0.03,
    Border.CHARACTER: 0.0,
}
SILENCE_DB = -45.0
"""Frames this far below the loudest one count as silence."""
SILENCE_PEAK = 1e-4
"""A wave that never gets louder is silence as a whole."""
FRAME_SECONDS = 0.01
MARGIN_SECONDS = 0.04
FADE_SECONDS = 0.006


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A wave without the silence at its ends, and how many samples were cut off its front."""

    wave: Wave
    start: int


def trim_silence(wave: Wave, sample_rate: int) -> Trimmed:
    """Cut silence off both ends, but for a margin. A silent wave becomes empty."""
    frame = max(1, int(FRAME_SECONDS * sample_rate))
    if len(wave) == 0 or float(np.max(np.abs(wave))) <= SILENCE_PEAK:
        return Trimmed(wave[:0], len(wave))
    padded = np.pad(wave, (0, -len(wave) % frame)).reshape(-1, frame)
    loudness = np.sqrt(np.mean(np.square(padded, dtype=np.float64), axis=1))
    loud = np.flatnonzero(loudness > loudness.max() * 10 ** (SILENCE_DB / 20))
    margin = int(MARGIN_SECONDS * sample_rate)
    start = max(0, int(loud[0]) * frame - margin)
    end = min(len(wave), (int(loud[-1]) + 1) * frame + margin)
    return Trimmed(wave[start:end], start)


def faded(wave: Wave, sample_rate: int, *, rising: bool = True, falling: bool = True) -> Wave:
    """The wave with a fade-in and a fade-out of 6 ms, so that it makes no click beside its neighbours."""
    count = min(int(FADE_SECONDS * sample_rate), len(wave) // 2)
    if count == 0:
        return np.zeros_like(wave)
    ramp = (0.5 - 0.5 * np.cos(np.pi * np.arange(count) / count)).astype(np.float32)
    made: Wave = wave.copy()
    if rising:
        made[:count] *= ramp
    if falling:
        made[-count:] *= ramp[::-1]
    return made


class GrowingTrim:
    """`trim_silence` and `faded` of a wave that comes in parts: silence waits until it is known what follows.

    Loud is what is loud beside all that came so far: of a wave that grows much louder, more of a soft beginning stays
    than `trim_silence` leaves of the whole.
    """

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._wave: Wave = np.zeros(0, np.float32)
        self._given: int | None = None
        self.start = 0
        """Samples that were cut off the front."""

    def add(self, part: Wave, *, last: bool) -> Wave:
        """The samples that are final now: none, or at least two fades, so that both fit."""
        self._wave = np.concatenate([self._wave, part])
        trimmed = trim_silence(self._wave, self._sample_rate)
        fade = int(FADE_SECONDS * self._sample_rate)
        first = self._given is None
        begin = trimmed.start if self._given is None else self._given
        end = trimmed.start + len(trimmed.wave)
        if not last:
            # A fade waits behind the end, in case nothing follows.
            end -= 2 * fade
            if end - begin < 2 * fade:
                return self._wave[:0]
        elif not first:
            end = max(end, begin + 2 * fade)
        if first:
            self.start = begin
        self._given = end
        return faded(self._wave[begin:end], self._sample_rate, rising=first, falling=last)


def pause(border: Border, sample_rate: int, speed: float = 1.0) -> Wave:
    """The silence that stands for a border."""
    return np.zeros(int(PAUSE_SECONDS[border] / speed * sample_rate), np.float32)


def stretched(rows_TC: NDArray[np.float32], speed: float) -> NDArray[np.float32]:
    """The rows in time divided by `speed`, linear between neighbours: faster or slower speech at the same pitch."""
    count = len(rows_TC)
    if speed == 1.0 or count == 0:
        return rows_TC
    made = max(1, round(count / speed))
    where = np.clip((np.arange(made) + 0.5) * count / made - 0.5, 0, count - 1)
    low = np.floor(where).astype(np.int64)
    share = (where - low)[:, None].astype(np.float32)
    return np.asarray(rows_TC[low] * (1 - share) + rows_TC[np.minimum(low + 1, count - 1)] * share, np.float32)
