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

_PRE_EMPHASIS = 0.95
"""Takes the hum of the mains out of the levels that find speech, and lifts soft consonants."""
_UNKNOWN_LENGTH = 1 << 62
_LOWEST_POWER = 10 ** (LOWEST_DB / 10)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a recording is cut, and what the pieces are measured with."""

    rate: int
    spans: list[Span]
    levels_db: NDArray[np.float32]
    floor_db: NDArray[np.float32]


def plan_cuts(path: Path, limits: CutLimits) -> Plan:
    """Read a recording once and decide its pieces; raises `DataError` for one without speech."""
    rate, plain_db, bright_db = _levels(path)
    if len(plain_db) == 0:
        raise DataError(f"{path} has no samples", hint="record or export it again, or leave it out")
    runs = speech_runs(bright_db)
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
    """The rate, and the level of every frame, as it is and with pre-emphasis."""
    plain, bright = [np.zeros(0, np.float32)], [np.zeros(0, np.float32)]
    with opened_audio(path) as sound:
        rate = int(sound.samplerate)
        rest, previous = np.zeros(0, np.float32), 0.0
        for block in mono_blocks(sound, _UNKNOWN_LENGTH):
            samples = np.concatenate([rest, block])
            if not np.isfinite(samples).all():
                raise DataError(f"{path} has samples that are not numbers (NaN or infinite)", hint="export it again")
            plain_db, bright_db = frame_levels(samples, rate, previous)
            whole = len(plain_db) * (rate // FRAMES_PER_S)
            rest = samples[whole:].copy()
            previous = float(samples[whole - 1]) if whole else previous
            plain.append(plain_db)
            bright.append(bright_db)
    return rate, np.concatenate(plain), np.concatenate(bright)


def frame_levels(
    samples: NDArray[np.float32], rate: int, previous: float = 0.0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The levels of the whole frames in the samples, as they are and with pre-emphasis; `previous` came before."""
    size = rate // FRAMES_PER_S
    samples = samples[: len(samples) // size * size]
    before = np.concatenate([np.full(1, previous, np.float32), samples])[: len(samples)]
    return _level(samples, size), _level(samples - np.float32(_PRE_EMPHASIS) * before, size)


def _level(samples: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    power = np.square(samples.reshape(-1, size)).mean(1)
    level: NDArray[np.float32] = 10 * np.log10(np.maximum(power, np.float32(_LOWEST_POWER)))
    return level


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
