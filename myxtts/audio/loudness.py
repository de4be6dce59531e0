"""One loudness for every clip: of a corpus when it is prepared, of references when a voice so trained speaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LOUDNESS_RMS = 10 ** (-23 / 20)
_PEAK_LIMIT = 0.99
_FRAME_SAMPLES = 256


def normalise_loudness(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring the loud half of the clip to -23 dB RMS; the peak stays below full scale."""
    frames = max(1, len(samples) // _FRAME_SAMPLES)
    power = np.array([np.mean(np.square(frame)) for frame in np.array_split(samples, frames)])
    # Pauses are left out as in ITU-R BS.1770's gate, or a clip with long pauses would come out louder.
    speech = power[power >= np.median(power)]
    gain = _LOUDNESS_RMS / max(float(np.sqrt(speech.mean())), 1e-6)
    peak = float(np.abs(samples).max())
    louder: NDArray[np.float32] = samples * np.float32(min(gain, _PEAK_LIMIT / max(peak, 1e-6)))
    return louder
