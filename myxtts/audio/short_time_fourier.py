"""Short-time Fourier transform of one clip and its least-squares inverse, in NumPy and single precision.

Shapes: S samples, T frames, W window samples, F frequency bins.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from myxtts.audio.mel import DVAE_MEL, analysis_window

Floats = NDArray[np.float32]
Complexes = NDArray[np.complex64]

OVERLAP = 4
"""Windows over each sample."""


class ShortTimeFourier:
    """Transform and least-squares inverse of one number of frames, three quarters of each in the next."""

    def __init__(self, frames: int, points: int) -> None:
        self._points, self._hop = points, points // OVERLAP
        self._window_W = _window(points)
        self._frames_TW: Any = np.empty((frames, points), np.float32)  # NumPy's types know no float32 transform
        self._frames_TW[:] = self._window_W
        self._share_S = np.float32(1) / np.maximum(self._shifted_and_added(), np.float32(1e-3))

    def forward(self, wave_S: Floats, *, out: Any) -> None:
        """Write the spectra of the windowed frames, [T, points / 2 + 1], divided by the number of points.

        So divided, NumPy transforms in single precision; without, in double precision and eight times as long.
        """
        frames_TW = sliding_window_view(wave_S, self._points)[:: self._hop]
        np.multiply(frames_TW, self._window_W, out=self._frames_TW)
        np.fft.rfft(self._frames_TW, norm="forward", out=out)

    def inverse(self, spectrum_TF: Complexes) -> Floats:
        """The wave [(T + 3) * hop] whose spectra come closest to these; bins that are not given are 0."""
        np.fft.irfft(spectrum_TF, self._points, out=self._frames_TW)
        wave_S = self._shifted_and_added()
        wave_S *= self._share_S
        return wave_S

    def _shifted_and_added(self) -> Floats:
        self._frames_TW *= self._window_W
        frames, hop = len(self._frames_TW), self._hop
        blocks = np.zeros((frames + OVERLAP - 1, hop), np.float32)
        for step in range(OVERLAP):
            blocks[step : step + frames] += self._frames_TW[:, step * hop : (step + 1) * hop]
        return blocks.reshape(-1)


@lru_cache(maxsize=2)
def _window(points: int) -> Floats:
    return analysis_window(replace(DVAE_MEL, n_fft=points, win_samples=points, hop_samples=points // OVERLAP))
