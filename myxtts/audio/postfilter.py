"""Global-variance postfilter: log mels of a trained decoder get back the variance that a regression loss smooths away.

The gains are measured on held-out speech: for each of the lower cepstral coefficients over the channels, how much more
the real mels vary than the generated ones. Pure numpy; the decoders apply it.

Shapes: T frames, M mel channels, and as many cepstral coefficients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import N_MELS

ENVELOPE = 20
"""Coefficients that are changed: the spectral envelope. Beyond it are pitch and noise; changing those too costs
speaker similarity."""
SHARE = 0.5
"""Of the missing variance, as an exponent: more is livelier still, and costs speaker similarity."""
LARGEST_GAIN = 3.0

Mel = NDArray[np.float32]


def measured_gains(pairs: Iterable[tuple[Any, Any]], shift_M: Any, scale_M: Any) -> list[float]:
    """What each cepstral coefficient is to be multiplied by, from (real, made) log mels of the same frames.

    Never below 1: variance is added, never removed.
    """
    real_M, made_M = np.full(N_MELS, 1e-9), np.full(N_MELS, 1e-9)
    for real_TM, made_TM in pairs:
        real_M += _squares(real_TM, shift_M, scale_M)
        made_M += _squares(made_TM, shift_M, scale_M)
    gains_M = np.clip((real_M / made_M) ** (SHARE / 2), 1.0, LARGEST_GAIN)
    gains_M[ENVELOPE:] = 1.0
    return [round(float(gain), 4) for gain in gains_M]


class Scaled(Protocol):
    """A part that makes mels: scaled mel = (log mel - shift) / scale."""

    mel_shift_M: Any
    mel_scale_M: Any


class Postfilter:
    """Measured gains as one matrix over the channels."""

    @classmethod
    def of(cls, part: Scaled, gains_M: Sequence[float] | None) -> Postfilter:
        """The postfilter of a part; it changes nothing where no gains were measured."""
        return cls(np.ones(N_MELS) if gains_M is None else gains_M, part.mel_shift_M.numpy(), part.mel_scale_M.numpy())

    def __init__(self, gains_M: Sequence[float] | NDArray[Any], shift_M: Any, scale_M: Any) -> None:
        scale_M = np.asarray(scale_M, np.float64)
        self._shift_M = np.asarray(shift_M, np.float32)
        over_channels_MM = (cosines().T * np.asarray(gains_M, np.float64)) @ cosines()
        self._change_MM = (over_channels_MM / scale_M[:, None] * scale_M).astype(np.float32)

    def apply(self, mel_TM: Mel) -> Mel:
        return np.asarray((mel_TM - self._shift_M) @ self._change_MM + self._shift_M, np.float32)


def _squares(mel_TM: Any, shift_M: Any, scale_M: Any) -> NDArray[np.float64]:
    scaled_TM = (np.asarray(mel_TM, np.float64) - np.asarray(shift_M)) / np.asarray(scale_M)
    squares_M: NDArray[np.float64] = np.sum((scaled_TM @ cosines().T) ** 2, axis=0)
    return squares_M


@lru_cache(maxsize=1)
def cosines() -> NDArray[np.float64]:
    """The orthonormal discrete cosine transform, a coefficient a row."""
    angles_MM = np.pi / N_MELS * np.outer(np.arange(N_MELS), np.arange(N_MELS) + 0.5)
    rows_MM: NDArray[np.float64] = np.cos(angles_MM) * np.sqrt(2.0 / N_MELS)
    rows_MM[0] /= np.sqrt(2.0)
    return rows_MM
