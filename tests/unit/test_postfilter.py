"""The global-variance postfilter: measured against real speech, and applied."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.fft import dct

from myxtts.audio.mel import N_MELS
from myxtts.audio.postfilter import ENVELOPE, LARGEST_GAIN, SHARE, Postfilter, measured_gains

SHIFT = np.linspace(-7.0, -4.0, N_MELS)
SCALE = np.linspace(1.0, 2.5, N_MELS)
NOTHING_LACKS = [1.0] * N_MELS


def speech(frames: int = 400) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((frames, N_MELS)) * SCALE + SHIFT


def cepstrum(mel_TM: np.ndarray) -> np.ndarray:
    return np.asarray(dct((mel_TM - SHIFT) / SCALE, norm="ortho", axis=1))


def smoothed(mel_TM: np.ndarray, first: int, factor: float) -> np.ndarray:
    """The mel with the cepstral coefficients from `first` on made smaller."""
    factors = np.where(np.arange(N_MELS) < first, 1.0, factor)
    return np.asarray(Postfilter(factors, SHIFT, SCALE).apply(mel_TM.astype(np.float32)))


def test_what_was_smoothed_away_is_measured_where_it_lacks() -> None:
    real = speech()

    gains = measured_gains([(real, smoothed(real, 10, 0.5))], SHIFT, SCALE)

    expected = [1.0] * 10 + [2.0**SHARE] * (ENVELOPE - 10) + [1.0] * (N_MELS - ENVELOPE)
    assert gains == pytest.approx(expected, abs=1e-3), "of the envelope"


def test_it_is_given_back() -> None:
    real = speech()
    made = smoothed(real, 10, 0.5)

    sharper = Postfilter(measured_gains([(real, made)], SHIFT, SCALE), SHIFT, SCALE).apply(made)

    assert np.abs(cepstrum(sharper)[:, :10] - cepstrum(real)[:, :10]).max() < 1e-4
    left = np.std(cepstrum(sharper), axis=0) / np.std(cepstrum(real), axis=0)
    assert left[10:ENVELOPE] == pytest.approx(0.5 ** (1 - SHARE), abs=0.01)
    assert left[ENVELOPE:] == pytest.approx(0.5, abs=0.01)


def test_nothing_is_taken_from_speech_that_varies_more_than_the_real_one_and_gains_have_a_limit() -> None:
    real = speech()

    assert measured_gains([(smoothed(real, 0, 0.5), real)], SHIFT, SCALE) == NOTHING_LACKS
    assert measured_gains([(real, smoothed(real, 0, 0.001))], SHIFT, SCALE)[:ENVELOPE] == [LARGEST_GAIN] * ENVELOPE


def test_without_speech_to_measure_on_nothing_is_changed() -> None:
    made = speech().astype(np.float32)

    assert measured_gains([], SHIFT, SCALE) == NOTHING_LACKS
    np.testing.assert_allclose(Postfilter(NOTHING_LACKS, SHIFT, SCALE).apply(made), made, atol=1e-5)
