"""From log mels back to waves without a neural vocoder: the inverse of `mel`, as far as phases can be guessed.

Mel power goes to the linear bins without ever going negative. Phases begin where a single pass puts them (a running sum
of the frequency of the nearest peak: Beauregard, Harish and Wyse, 2015) in the bins that tell harmonics apart, and as
noise above; a few rounds of fast Griffin-Lim then fit them to each other.
NumPy alone, one clip at a time, in every runtime; the same mel gives the same samples.

Shapes: S samples, T frames, W window samples, F frequency bins, M mel channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import DVAE_MEL, HOP, N_FFT, mel_filterbank
from myxtts.audio.short_time_fourier import OVERLAP, Complexes, Floats, ShortTimeFourier
from myxtts.runtime.philox import stateless_uniform

ROUNDS = 12
MOMENTUM = np.float32(0.9)
_POINTS = 768
"""Of an FFT while phases are sought: the mel ends at 8 kHz, bin 371 of 513, so that three quarters of the rate hold all
of it."""
_TONAL_BINS = 128
"""Up to 2.75 kHz; above, the mel's filters are wider than the distance of harmonics, and a peak means nothing."""
_NOISE_FRAMES = 128
_SPREAD_ROUNDS = 12
_FILTER_GROUPS = 4
_TINY = np.float32(1e-10)


def griffin_lim(mel_TM: Floats, *, rounds: int = ROUNDS) -> Floats:
    """The wave [(T - 1) * hop] of XTTS's own log mels (without channel norms) at 22,050 samples a second."""
    magnitude_TF = linear_magnitude(mel_TM)
    frames = len(magnitude_TF)
    spectrum_TF = magnitude_TF * _first_phases(magnitude_TF)
    fourier = ShortTimeFourier(frames, _POINTS)
    before_S = np.zeros((frames + OVERLAP - 1) * _POINTS // OVERLAP, np.float32)
    length_TF = np.empty_like(magnitude_TF)
    for _ in range(rounds):
        wave_S = fourier.inverse(spectrum_TF)
        # Momentum of the spectrum is that of the wave, which has a quarter of the numbers.
        before_S -= wave_S
        before_S *= -MOMENTUM
        before_S += wave_S
        fourier.forward(before_S, out=spectrum_TF)
        np.abs(spectrum_TF, out=length_TF)
        length_TF += _TINY
        spectrum_TF *= np.divide(magnitude_TF, length_TF, out=length_TF)
        before_S = wave_S
    half = N_FFT // 2
    return ShortTimeFourier(frames, N_FFT).inverse(spectrum_TF)[half : half + (frames - 1) * HOP]


def linear_magnitude(mel_TM: Floats) -> Floats:
    """Non-negative linear bins whose mel is the given one: multiplicative updates from the transposed filters.

    Each update goes on by half of the last one, which takes 12 of them as far as 30.
    """
    target_TM = np.exp(mel_TM)
    wanted_TF = _through(target_TM, to_mel=False)
    power_TF = wanted_TF.copy()
    step_TF = np.ones_like(power_TF)
    for _ in range(_SPREAD_ROUNDS):
        there_TF = _through(_through(power_TF, to_mel=True), to_mel=False)
        there_TF += _TINY
        np.sqrt(step_TF, out=step_TF)
        step_TF *= wanted_TF
        step_TF /= there_TF
        power_TF *= step_TF
    return np.asarray(np.sqrt(power_TF), np.float32)


def _first_phases(magnitude_TF: Floats) -> Complexes:
    """Numbers of length 1: of the bins of harmonics by their peaks, of the others by chance."""
    frames, bins = magnitude_TF.shape
    angle_TF = _tonal_cycles(magnitude_TF) * np.float32(2 * np.pi)
    first_TF = np.empty((frames, bins), np.complex64)
    tonal = first_TF[:, :_TONAL_BINS]
    np.cos(angle_TF, out=tonal.real)
    np.sin(angle_TF, out=tonal.imag)
    for begin in range(0, frames, _NOISE_FRAMES):
        first_TF[begin : begin + _NOISE_FRAMES, _TONAL_BINS:] = _noise()[: frames - begin]
    return first_TF


def _tonal_cycles(magnitude_TF: Floats) -> Floats:
    """Phases of the lowest bins in cycles: from frame to frame each goes on as the sinusoid of its nearest peak."""
    padded = np.pad(magnitude_TF[:, : _TONAL_BINS + 1], ((0, 0), (1, 0)))
    left, middle, right = padded[:, :-2], padded[:, 1:-1], padded[:, 2:]
    peak_TF = (middle > left) & (middle >= right)
    curve_TF = np.where(peak_TF, left - 2 * middle + right, np.float32(-1))
    frequency_TF = np.arange(_TONAL_BINS, dtype=np.float32) + np.where(peak_TF, (left - right) / curve_TF / 2, 0)
    nearest_TF = _nearest(peak_TF)
    # Half of a hop's cycles before the border of two frames, half behind it.
    half_TF = np.take_along_axis(frequency_TF, nearest_TF, axis=1) / np.float32(2 * OVERLAP) % np.float32(1)
    cycles_TF = np.empty((len(magnitude_TF), _TONAL_BINS), np.float32)
    cycles_TF[0] = 0
    for frame in range(1, len(cycles_TF)):
        reached_F = cycles_TF[frame - 1] + half_TF[frame - 1]
        np.add(reached_F[nearest_TF[frame]], half_TF[frame], out=cycles_TF[frame])
    # Bins agree at the middle of a window, and so alternate at its beginning.
    return np.asarray(cycles_TF + np.arange(_TONAL_BINS) % 2 / 2, np.float32)


def _nearest(peak_TF: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each bin the one of the nearest peak of its frame; in a frame without peaks the last."""
    bins_F, far = np.arange(_TONAL_BINS), 2 * _TONAL_BINS
    below_TF = np.maximum.accumulate(np.where(peak_TF, bins_F, -far), axis=1)
    above_TF = np.minimum.accumulate(np.where(peak_TF, bins_F, far)[:, ::-1], axis=1)[:, ::-1]
    return np.clip(np.where(bins_F - below_TF <= above_TF - bins_F, below_TF, above_TF), 0, _TONAL_BINS - 1)


@lru_cache(maxsize=1)
def _noise() -> Complexes:
    """Random phases of the upper bins for a second and a half, [T, F]."""
    bins = _POINTS // 2 + 1 - _TONAL_BINS
    angle_TF = stateless_uniform(_NOISE_FRAMES * bins, 0).reshape(_NOISE_FRAMES, bins) * np.float32(2 * np.pi)
    return np.asarray(np.exp(1j * angle_TF), np.complex64)


class _FilterGroup(NamedTuple):
    """Neighbouring bins and the mel filters that read any of them: nearly all other products would be with 0."""

    bins: slice
    filters: slice
    to_mel_FM: Floats
    to_bins_MF: Floats


@lru_cache(maxsize=1)
def _filter_groups() -> list[_FilterGroup]:
    filters_FM = mel_filterbank(DVAE_MEL)[: _POINTS // 2 + 1]
    groups = []
    for bins in np.array_split(np.arange(len(filters_FM)), _FILTER_GROUPS):
        own = slice(int(bins[0]), int(bins[-1]) + 1)
        read = np.flatnonzero(filters_FM[own].any(axis=0))
        channels = slice(int(read[0]), int(read[-1]) + 1)
        part_FM = np.ascontiguousarray(filters_FM[own, channels])
        groups.append(_FilterGroup(own, channels, part_FM, np.ascontiguousarray(part_FM.T)))
    return groups


def _through(power: Floats, *, to_mel: bool) -> Floats:
    """Power of bins through the mel's filters, or of mel channels back through the transposed filters."""
    groups = _filter_groups()
    if to_mel:
        mel_TM = np.zeros((len(power), groups[-1].filters.stop), np.float32)
        for group in groups:
            mel_TM[:, group.filters] += power[:, group.bins] @ group.to_mel_FM
        return mel_TM
    bins_TF = np.empty((len(power), groups[-1].bins.stop), np.float32)
    for group in groups:
        np.matmul(power[:, group.filters], group.to_bins_MF, out=bins_TF[:, group.bins])
    return bins_TF
