"""Mels to waves by the vocoder that fits what the decoder made."""

from __future__ import annotations

import numpy as np
import pytest

from myxtts.audio.mel import HOP, SAMPLE_RATE
from myxtts.synthesis.mel_to_wave import mel_to_wave
from myxtts.synthesis.speech_model import SpokenMel
from tests.unit.test_source_filter import FRAMES, MEL_TM, periodicity

PITCH_T = np.full(FRAMES, 147.0, np.float32)


@pytest.mark.parametrize("pitch_T", [None, PITCH_T], ids=["Griffin-Lim", "source-filter"])
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_faster_speech_is_shorter(pitch_T: np.ndarray | None, speed: float) -> None:
    assert len(mel_to_wave(SpokenMel(MEL_TM, pitch_T), speed)) == (round(FRAMES / speed) - 1) * HOP


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.6])
def test_faster_speech_keeps_its_pitch(speed: float) -> None:
    assert periodicity(mel_to_wave(SpokenMel(MEL_TM, PITCH_T), speed), round(SAMPLE_RATE / 147.0)) > 0.7
