"""Source-filter vocoder: log mel and pitch to wave, in NumPy and without weights.

The source is a pulse train at the pitch below `VOICED_HZ` where speech is voiced, and noise elsewhere; the filter is
the mel's envelope with its minimum phase. A few rounds then correct what overlapping frames made of the envelope.
Harmonics come from the pitch, not from the mel, whose own are blurred where a network made it: that is what Griffin-Lim
turns into a rough voice. It needs no sound beyond a frame's own window, 46 ms.

Shapes: T frames, M mel channels, F frequency bins, S samples, W window samples.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from myxtts.audio.mel import DVAE_MEL, HOP, N_FFT, SAMPLE_RATE, analysis_window, mel_filterbank
from myxtts.audio.postfilter import cosines
from myxtts.audio.short_time_fourier import Complexes, Floats, ShortTimeFourier
from myxtts.runtime.philox import stateless_uniform

VOICED_HZ = 5000.0
"""Above, noise: a voice's own harmonics drown in its breath there."""
_BLEND_HZ = 500.0
ENVELOPE = 24
"""Cepstral coefficients of the mel that shape the sound; beyond them are harmonics, which the pitch knows better."""
ROUNDS = 4
_ABOVE_MEL = 6.0
"""Nats of power that are lost from the last mel channel, 8 kHz, to the highest frequency."""
_LARGEST_CORRECTION = 4.6
"""Nats of power in one round."""
_UNVOICED_HZ = 150.0


def source_filter(mel_TM: Floats, pitch_T: Floats, *, seed: int = 0) -> Floats:
    """The wave [(T - 1) * hop] of XTTS's own log mels and of their pitch in Hz, 0 where a frame is unvoiced."""
    frames, filters_FM, envelope_MF = len(mel_TM), mel_filterbank(), _envelope_matrix()
    fourier, points = ShortTimeFourier(frames, N_FFT), np.float32(N_FFT)
    samples = (frames + N_FFT // HOP - 1) * HOP
    spectrum_TF, noise_TF = np.empty((2, frames, N_FFT // 2 + 1), np.complex64)
    fourier.forward(_pulse_train(pitch_T, samples), out=spectrum_TF)
    fourier.forward((stateless_uniform(samples, seed) - np.float32(0.5)) * np.float32(12**0.5), out=noise_TF)
    voiced_TF = (pitch_T > 0)[:, None] * _voiced_share()
    spectrum_TF *= np.sqrt(voiced_TF)
    spectrum_TF += noise_TF * np.sqrt(1 - voiced_TF)

    log_power_TF = (mel_TM - np.log(filters_FM.sum(0) * np.square(analysis_window()).sum())) @ envelope_MF
    spectrum_TF *= _minimum_phase((log_power_TF + _beyond_mel()) / 2)
    spectrum_TF *= points
    wave_S = fourier.inverse(spectrum_TF)
    for _ in range(ROUNDS):
        fourier.forward(wave_S, out=spectrum_TF)
        power_TF = np.square(spectrum_TF.real) + np.square(spectrum_TF.imag)
        missing_TM = mel_TM - np.log(power_TF @ filters_FM * points**2 + np.float32(DVAE_MEL.floor))
        correction_TF = np.clip(missing_TM @ envelope_MF, -_LARGEST_CORRECTION, _LARGEST_CORRECTION)
        spectrum_TF *= np.exp(correction_TF / 2) * points
        wave_S = fourier.inverse(spectrum_TF)
    half = N_FFT // 2
    return wave_S[half : half + (frames - 1) * HOP]


def _pulse_train(pitch_T: Floats, samples: int) -> Floats:
    """All harmonics up to the end of the blend, each a cosine, with the power of white noise below it.

    Between two voiced frames the pitch goes on in a line, so that a wrong decision for one frame does not click.
    """
    voiced = np.flatnonzero(pitch_T > 0)
    centres_T = np.arange(len(pitch_T)) * HOP + N_FFT // 2
    known = pitch_T[voiced].astype(np.float64) if len(voiced) else np.array([_UNVOICED_HZ])
    pitch_S = np.interp(np.arange(samples), centres_T[voiced] if len(voiced) else centres_T[:1], known)
    half_phase_S = np.pi * np.cumsum(pitch_S) / SAMPLE_RATE
    harmonics_S = np.floor((VOICED_HZ + 6 * _BLEND_HZ) / pitch_S)
    # The sum of cos(k phase) for k from 1 to the number of harmonics, in closed form.
    sine_S = np.sin(half_phase_S)
    near_S = np.abs(sine_S) < 1e-4
    ratio_S = np.sin((2 * harmonics_S + 1) * half_phase_S) / np.where(near_S, 1.0, sine_S)
    sum_S = np.where(near_S, harmonics_S, 0.5 * (ratio_S - 1.0))
    return np.asarray(sum_S * np.sqrt(4.0 * pitch_S / SAMPLE_RATE), np.float32)


def _minimum_phase(log_amplitude_TF: Floats) -> Complexes:
    """The spectra of these amplitudes whose energy comes as early as can be, as a vocal tract's does."""
    half = N_FFT // 2
    cepstrum_TW: Any = np.empty((len(log_amplitude_TF), N_FFT), np.float32)
    # Multiplied here and divided by the transform: without its division NumPy transforms in double precision.
    np.fft.irfft((log_amplitude_TF * np.float32(N_FFT)).astype(np.complex64), N_FFT, out=cepstrum_TW)
    cepstrum_TW[:, 1:half] *= 2
    cepstrum_TW[:, half + 1 :] = 0
    log_TF = np.fft.rfft(cepstrum_TW, norm="forward").astype(np.complex64, copy=False)
    # By its parts: NumPy's complex exponential takes seven times as long.
    spectrum_TF = np.empty_like(log_TF)
    amplitude_TF = np.exp(log_TF.real)
    np.multiply(amplitude_TF, np.cos(log_TF.imag), out=spectrum_TF.real)
    np.multiply(amplitude_TF, np.sin(log_TF.imag), out=spectrum_TF.imag)
    return spectrum_TF


@lru_cache(maxsize=1)
def _voiced_share() -> Floats:
    """Of the power of a voiced frame, for every bin, what is pulses."""
    frequency_F = np.fft.rfftfreq(N_FFT, 1.0 / SAMPLE_RATE)
    return np.asarray(1.0 / (1.0 + np.exp((frequency_F - VOICED_HZ) / _BLEND_HZ)), np.float32)


@lru_cache(maxsize=1)
def _envelope_matrix() -> Floats:
    """[M, F]: the lower cepstral coefficients of a log mel, and lines between the centres of its channels."""
    filters_FM = mel_filterbank()
    bins_F = np.arange(len(filters_FM))
    centres_M = bins_F @ filters_FM / filters_FM.sum(0)
    lines_MF = np.stack([np.interp(bins_F, centres_M, row) for row in np.eye(len(centres_M))])
    smooth_MM = cosines()[:ENVELOPE].T @ cosines()[:ENVELOPE]
    return np.asarray(smooth_MM @ lines_MF, np.float32)


@lru_cache(maxsize=1)
def _beyond_mel() -> Floats:
    frequency_F = np.fft.rfftfreq(N_FFT, 1.0 / SAMPLE_RATE)
    share_F = (frequency_F - DVAE_MEL.f_max_hz) / (frequency_F[-1] - DVAE_MEL.f_max_hz)
    return np.asarray(-_ABOVE_MEL * np.maximum(share_F, 0.0), np.float32)
