"""`myxtts.audio.mel` and `myxtts.audio.griffin_lim` of one clip in NumPy, for speaking without TensorFlow.

Same frames, filters and first phases; results are equal but for rounding. Shapes: S samples, T frames, W window
samples, F frequency bins, M mel channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from myxtts.audio.mel import DVAE_MEL, MelSettings, analysis_window, frame_count, mel_filterbank
from myxtts.runtime.philox import stateless_uniform

Floats = NDArray[np.float32]

_SPREAD_ITERATIONS = 30
_TINY = np.float32(1e-10)


def power_mel(wave_S: Floats, settings: MelSettings) -> Floats:
    """Mel power before the logarithm, [T, M]."""
    before = settings.n_fft // 2 - (settings.n_fft - settings.win_samples) // 2
    after = settings.win_samples - before
    padded = np.pad(wave_S, (before, after), mode="reflect")
    frames = frame_count(len(wave_S), settings.hop_samples)
    frames_TW = sliding_window_view(padded, settings.win_samples)[:: settings.hop_samples][:frames]
    spectrum_TF = np.fft.rfft(frames_TW * analysis_window(settings), settings.n_fft)
    power_TF = np.square(spectrum_TF.real) + np.square(spectrum_TF.imag)
    return np.asarray(power_TF.astype(np.float32) @ _filters(settings), np.float32)


def log_mel(wave_S: Floats, settings: MelSettings, channel_norms: Floats | None = None) -> Floats:
    """Log mels [T, M] of a whole clip in [-1, 1]."""
    log_TM = np.log(np.maximum(power_mel(wave_S, settings), np.float32(settings.floor)))
    return log_TM if channel_norms is None else np.asarray(log_TM / channel_norms, np.float32)


def griffin_lim(mel_TM: Floats, *, iterations: int = 32, momentum: float = 0.99, seed: int = 0) -> Floats:
    """The wave [(T - 1) * hop] of XTTS's own log mels at 22,050 samples a second."""
    settings = DVAE_MEL
    magnitude_TF = _linear_magnitude(mel_TM)
    frames, bins = magnitude_TF.shape
    whole = settings.n_fft // 2 + 1
    angle_TF = stateless_uniform(frames * whole, seed).reshape(frames, whole)[:, :bins] * np.float32(2 * np.pi)
    spectrum = np.empty((frames, bins), np.complex64)
    spectrum.real, spectrum.imag = magnitude_TF * np.cos(angle_TF), magnitude_TF * np.sin(angle_TF)
    weight_S = np.maximum(_shift_and_add(np.tile(_window() * _window(), (frames, 1))), np.float32(1e-3))
    before: Any = np.complex64(0)
    for _ in range(iterations):
        rebuilt = np.fft.rfft(_frames(_overlap_add(spectrum, weight_S)))[:, :bins].astype(np.complex64, copy=False)
        pushed = rebuilt + np.float32(momentum) * (rebuilt - before)
        square_TF = pushed.real * pushed.real + pushed.imag * pushed.imag
        gain_TF = magnitude_TF / np.sqrt(np.maximum(square_TF, np.float32(1e-20)))
        spectrum, before = pushed * gain_TF, rebuilt
    half = settings.n_fft // 2
    return _overlap_add(spectrum, weight_S)[half : half + (frames - 1) * settings.hop_samples]


def _linear_magnitude(mel_TM: Floats) -> Floats:
    """Non-negative linear bins whose mel is the given one: multiplicative updates from the transposed filters.

    Only the bins that a filter reads: the others are 0 from the first to the last iteration.
    """
    filters_FM = _filters(DVAE_MEL)
    used = int(np.flatnonzero(filters_FM.any(axis=1))[-1]) + 1
    filters_FM = np.ascontiguousarray(filters_FM[:used])
    filters_MF = np.ascontiguousarray(filters_FM.T)
    numerator_TF = np.exp(mel_TM) @ filters_MF
    power_TF = numerator_TF
    for _ in range(_SPREAD_ITERATIONS):
        back_TF = (power_TF @ filters_FM) @ filters_MF
        back_TF += _TINY
        power_TF = power_TF * numerator_TF
        power_TF /= back_TF
    return np.sqrt(power_TF)


def _overlap_add(spectrum_TF: NDArray[np.complex64], weight_S: Floats) -> Floats:
    """The signal [(T + steps - 1) * hop] whose frames come closest to these spectra, least squares."""
    frames_TW = np.fft.irfft(spectrum_TF, DVAE_MEL.n_fft).astype(np.float32, copy=False)
    frames_TW *= _window()
    return _shift_and_add(frames_TW) / weight_S


def _shift_and_add(frames_TW: Floats) -> Floats:
    hop, steps = DVAE_MEL.hop_samples, DVAE_MEL.win_samples // DVAE_MEL.hop_samples
    blocks = np.zeros((len(frames_TW) + steps - 1, hop), np.float32)
    for step in range(steps):
        blocks[step : step + len(frames_TW)] += frames_TW[:, step * hop : (step + 1) * hop]
    return blocks.reshape(-1)


def _frames(signal_S: Floats) -> Floats:
    hop, window = DVAE_MEL.hop_samples, DVAE_MEL.win_samples
    return sliding_window_view(signal_S, window)[::hop] * _window()


@lru_cache(maxsize=1)
def _window() -> Floats:
    return analysis_window(DVAE_MEL)


@lru_cache(maxsize=4)
def _filters(settings: MelSettings) -> Floats:
    return mel_filterbank(settings)
