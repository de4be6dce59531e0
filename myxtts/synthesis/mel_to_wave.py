"""The vocoders of mels, which have no weights: by the pitch where a decoder predicts it, else Griffin-Lim.

Shapes: T mel frames, M mel channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.griffin_lim import griffin_lim
from myxtts.audio.source_filter import source_filter
from myxtts.synthesis.joining import stretched
from myxtts.synthesis.speech_model import SpokenMel

Floats = NDArray[np.float32]


def vocoder_name(*, with_pitch: bool) -> str:
    return "source-filter vocoder" if with_pitch else "Griffin-Lim"


def mel_to_wave(spoken: SpokenMel, speed: float) -> Floats:
    """The wave, `speed` times as fast."""
    mel_TM, pitch_T = stretched(spoken.mel_TM, speed), spoken.pitch_T
    if pitch_T is None:
        return griffin_lim(mel_TM)
    # The nearest frame's pitch: nothing is between voiced and unvoiced.
    nearest_T = ((np.arange(len(mel_TM)) + 0.5) * len(pitch_T) / len(mel_TM)).astype(np.int64)
    return source_filter(mel_TM, pitch_T[nearest_T])
