"""The source-filter vocoder: what was asked for is in the wave."""

from __future__ import annotations

import numpy as np
import pytest

from myxtts.audio.mel import DVAE_MEL, HOP, SAMPLE_RATE
from myxtts.audio.numpy_mel import log_mel
from myxtts.audio.source_filter import ENVELOPE, source_filter

FRAMES = 80
VOWEL_M = (-4.0 - 0.03 * np.arange(80) + 1.5 * np.cos(np.arange(80) / 9.0)).astype(np.float32)
MEL_TM = np.tile(VOWEL_M, (FRAMES, 1))


def spoken(pitch_hz: float, seed: int = 0) -> np.ndarray:
    return source_filter(MEL_TM, np.full(FRAMES, pitch_hz, np.float32), seed=seed)


def periodicity(wave_S: np.ndarray, lag: int) -> float:
    middle_S = wave_S[4 * HOP : -4 * HOP]
    return float(np.corrcoef(middle_S[:-lag], middle_S[lag:])[0, 1])


@pytest.mark.parametrize("pitch_hz", [80.0, 147.0, 315.0])
def test_a_voiced_sound_repeats_at_its_pitch(pitch_hz: float) -> None:
    wave_S = spoken(pitch_hz)

    assert len(wave_S) == (FRAMES - 1) * HOP
    assert periodicity(wave_S, round(SAMPLE_RATE / pitch_hz)) > 0.7
    assert periodicity(wave_S, round(SAMPLE_RATE / pitch_hz / 2)) < 0.6


def test_an_unvoiced_sound_repeats_nowhere() -> None:
    wave_S = spoken(0.0)

    assert max(periodicity(wave_S, lag) for lag in range(60, 300, 7)) < 0.4


@pytest.mark.parametrize("pitch_hz", [0.0, 110.0, 220.0])
def test_the_wave_has_the_envelope_of_its_mel(pitch_hz: float) -> None:
    made_TM = log_mel(spoken(pitch_hz), DVAE_MEL)[5:-5]

    coefficients = np.cos(np.pi / 80 * np.outer(np.arange(ENVELOPE // 2), np.arange(80) + 0.5)) * np.sqrt(2 / 80)
    missing = (made_TM.mean(0) - VOWEL_M) @ coefficients.T
    assert np.abs(missing).max() / 80**0.5 < 0.35


def test_only_the_seed_changes_the_noise() -> None:
    np.testing.assert_array_equal(spoken(120.0), spoken(120.0))
    assert np.abs(spoken(120.0) - spoken(120.0, seed=1)).max() > 0


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_short_sounds_have_their_length(frames: int) -> None:
    wave_S = source_filter(MEL_TM[:frames], np.full(frames, 100.0, np.float32))

    assert len(wave_S) == (frames - 1) * HOP
    assert np.all(np.isfinite(wave_S))


def test_silence_stays_silent() -> None:
    silence_TM = np.full((FRAMES, 80), np.log(DVAE_MEL.floor), np.float32)

    assert np.abs(source_filter(silence_TM, np.zeros(FRAMES, np.float32))).max() < 0.01
