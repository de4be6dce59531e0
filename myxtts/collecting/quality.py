"""Whether a piece is good enough to learn from: length, loudness, noise, clipping, and what its transcript says. Pure.

Every check gives the reason for setting a piece aside, "kind: value and limit", or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.collecting.pauses import CutLimits
from myxtts.evaluation.scoring import spoken_words
from myxtts.text.languages import find_language, foreign_script

QUIETEST_DB = -45.0
"""Of the speech, RMS below full scale; amplified, 16 bits leave less than 50 dB."""
LEAST_SNR_DB = 15.0
"""Below this the noise is learnt with the voice."""
MOST_CLIPPED = 0.002
_CLIPPED_LEVEL = 0.985
_CLIPPED_RUN = 3
_FEWEST_LETTERS_PER_S, _MOST_LETTERS_PER_S = 3.0, 28.0
_LETTERS_OF = {"han": 3.0, "kana": 2.0, "hangul": 2.5}
"""A sign of these scripts stands for about so many letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """What was measured of a piece."""

    seconds: float
    loudness_db: float
    snr_db: float
    clipped: float
    """Share of the samples that stand at full scale, three or more in a row."""


def measured(samples: NDArray[np.float32], levels_db: NDArray[np.float32], floor_db: float, rate: int) -> Quality:
    """Measure a piece: its samples, its frames' levels, and the noise floor of the recording around it."""
    loud = levels_db[levels_db >= np.percentile(levels_db, 50)]
    loudness = 10 * float(np.log10(np.mean(10 ** (loud / 10))))
    return Quality(
        seconds=len(samples) / rate,
        loudness_db=loudness,
        snr_db=loudness - floor_db,
        clipped=clipped_share(samples),
    )


def clipped_share(samples: NDArray[np.float32]) -> float:
    """Share of the samples in runs at the piece's own highest level, where that is near full scale."""
    at_top = np.abs(samples) >= _CLIPPED_LEVEL
    edges = np.flatnonzero(np.diff(np.concatenate([[False], at_top, [False]]).astype(np.int8)))
    lengths = edges[1::2] - edges[::2]
    return float(lengths[lengths >= _CLIPPED_RUN].sum() / max(1, len(samples)))


def sound_problem(quality: Quality, limits: CutLimits) -> str | None:
    """Why the sound of a piece is not good enough; None where it is."""
    if quality.seconds > limits.longest_s:
        return f"too long: no pause in {quality.seconds:.1f} s, more than {limits.longest_s:g} s"
    if quality.seconds < limits.shortest_s:
        return f"too short: {quality.seconds:.2f} s, less than {limits.shortest_s:g} s"
    if quality.clipped > MOST_CLIPPED:
        return f"clipped: {quality.clipped:.1%} of the samples are at full scale, more than {MOST_CLIPPED:.1%}"
    if quality.loudness_db < QUIETEST_DB:
        return f"too quiet: speech at {quality.loudness_db:.0f} dB, below {QUIETEST_DB:.0f} dB"
    if quality.snr_db < LEAST_SNR_DB:
        return f"noisy: speech {quality.snr_db:.0f} dB above the noise, less than {LEAST_SNR_DB:.0f} dB"
    return None


def text_problem(text: str, seconds: float, language: str) -> str | None:
    """Why a transcript cannot be that of a piece so long; None where it can."""
    words = spoken_words(text, language)
    if not words:
        return "no words: nothing was recognised"
    script, own = foreign_script(text, language), find_language(language).script
    if script is not None:
        return f"other script: the transcript is in {script} letters, and {language!r} is written in {own} ones"
    rate = _LETTERS_OF.get(own, 1.0) * sum(map(len, words)) / seconds
    if not _FEWEST_LETTERS_PER_S <= rate <= _MOST_LETTERS_PER_S:
        slow = "few" if rate < _FEWEST_LETTERS_PER_S else "many"
        return f"odd pace: {rate:.1f} letters a second in {seconds:.1f} s, too {slow} for speech"
    return None
