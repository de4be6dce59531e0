"""Long recordings, read twice and block by block: once for the levels that decide the cuts, once for the pieces.

Memory holds one block, one piece and eight bytes for each hundredth of a second: 3 MB an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import mono_blocks, opened_audio
from myxtts.collecting.pauses import FRAMES_PER_S, LOWEST_DB, CutLimits, Span, cut, noise_floor, speech_runs
from myxtts.errors import DataError

_SPEECH_BAND_HZ = (200, 5000)
"""Most of what tells speech from a room lies here: hum and wind below, hiss above."""
_UNKNOWN_LENGTH = 1 << 62
_LOWEST_POWER = 10 ** (LOWEST_DB / 10)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a recording is cut, and what the pieces are measured with."""

    rate: int
    spans: list[Span]
    levels_db: NDArray[np.float32]
    floor_db: NDArray[np.float32]

    def seconds(self, frame: int) -> float:
        """When a frame begins; a hundredth of a second is no whole number of samples at every rate."""
        return frame * (self.rate // FRAMES_PER_S) / self.rate


def plan_cuts(path: Path, limits: CutLimits) -> Plan:
    """Read a recording once and decide its pieces; raises `DataError` for one without speech."""
    rate, plain_db, band_db = _levels(path)
    if len(plain_db) == 0:
        raise DataError(f"{path} has no samples", hint="record or export it again, or leave it out")
    runs = speech_runs(band_db)
    if not runs:
        raise DataError(
            f"{path} has no speech: its loudest tenth of a second is at {_loudest(plain_db):.0f} dB",
            hint="it is silence or steady noise; check the recording, or leave it out",
        )
    return Plan(rate, cut(runs, len(plain_db), limits), plain_db, noise_floor(plain_db)[0])


def _loudest(levels_db: NDArray[np.float32]) -> float:
    tenths = 10 ** (levels_db[: len(levels_db) // 10 * 10].reshape(-1, 10) / 10)
    return float(10 * np.log10(tenths.mean(1).max(initial=_LOWEST_POWER)))


def _levels(path: Path) -> tuple[int, NDArray[np.float32], NDArray[np.float32]]:
    """The rate, and the level of every frame, whole and of the speech band."""
    whole, band = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
    with opened_audio(path) as sound:
        rate = int(sound.samplerate)
        rest = np.zeros(0, np.float32)
        for block in mono_blocks(sound, _UNKNOWN_LENGTH):
            samples = np.concatenate([rest, block])
            if not np.isfinite(samples).all():
                raise DataError(f"{path} has samples that are not numbers (NaN or infinite)", hint="export it again")
            whole_db, band_db = frame_levels(samples, rate)
            rest = samples[len(whole_db) * (rate // FRAMES_PER_S) :].copy()
            whole.append(whole_db)
            band.append(band_db)
    return rate, np.concatenate(whole), np.concatenate(band)


def frame_levels(samples: NDArray[np.float32], rate: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The levels of the whole frames in the samples, and what of them is in the speech band."""
    size = rate // FRAMES_PER_S
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    window = np.hanning(size).astype(np.float32)
    spectrum = np.fft.rfft(frames * (window / np.sqrt(np.square(window).mean())))
    pitches_hz = np.arange(spectrum.shape[1]) * rate / size
    lowest, highest = _SPEECH_BAND_HZ
    band = spectrum[:, (pitches_hz >= lowest) & (pitches_hz <= highest)]
    power = 2 * (np.square(band.real) + np.square(band.imag)).sum(1) / size**2
    return _decibels(np.square(frames).mean(1)), _decibels(power)


def _decibels(power: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(10 * np.log10(np.maximum(power, _LOWEST_POWER)), np.float32)


def read_pieces(path: Path, plan: Plan, wanted: Sequence[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The samples of the wanted pieces, by number and in order.

    Read from the start without seeking, which is not exact in every format.
    """
    size = plan.rate // FRAMES_PER_S
    with opened_audio(path) as sound:
        at = 0
        for number in wanted:
            first, last = (frame * size for frame in plan.spans[number])
            for _ in mono_blocks(sound, first - at):
                pass
            samples = np.concatenate([np.zeros(0, np.float32), *mono_blocks(sound, last - first)])
            at = last
            yield number, np.clip(samples, -1.0, 1.0)
