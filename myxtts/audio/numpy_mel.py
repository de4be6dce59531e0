"""`myxtts.audio.mel` of one clip in NumPy, for speaking without TensorFlow: equal but for rounding.

Shapes: S samples, T frames, W window samples, F frequency bins, M mel channels.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from myxtts.audio.mel import MelSettings, analysis_window, frame_count, mel_filterbank

Floats = NDArray[np.float32]


def power_mel(wave_S: Floats, settings: MelSettings) -> Floats:
    """Mel power before the logarithm, [T, M]."""
    before = settings.n_fft // 2 - (settings.n_fft - settings.win_samples) // 2
    after = settings.win_samples - before
    padded = np.pad(wave_S, (before, after), mode="reflect")
    frames = frame_count(len(wave_S), settings.hop_samples)
    frames_TW = sliding_window_view(padded, settings.win_samples)[:: settings.hop_samples][:frames]
    # Divided by the number of points NumPy transforms in single precision, without it in double.
    spectrum_TF = np.fft.rfft(frames_TW * analysis_window(settings), settings.n_fft, norm="forward")
    power_TF = np.square(spectrum_TF.real) + np.square(spectrum_TF.imag)
    power_TF *= np.float32(settings.n_fft**2)
    return np.asarray(power_TF @ _filters(settings), np.float32)


def log_mel(wave_S: Floats, settings: MelSettings, channel_norms: Floats | None = None) -> Floats:
    """Log mels [T, M] of a whole clip in [-1, 1]."""
    log_TM = np.log(np.maximum(power_mel(wave_S, settings), np.float32(settings.floor)))
    return log_TM if channel_norms is None else np.asarray(log_TM / channel_norms, np.float32)


@lru_cache(maxsize=4)
def _filters(settings: MelSettings) -> Floats:
    return mel_filterbank(settings)
