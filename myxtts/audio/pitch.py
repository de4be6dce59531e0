"""Pitch of recordings: the fundamental frequency of every mel frame, by autocorrelation (Boersma 1993).

TensorFlow is imported only when a pitch is computed, as in `myxtts.audio.mel`. Shapes: B clips, S samples, T frames, W
window samples, L lags.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from myxtts.audio.mel import HOP, N_FFT, SAMPLE_RATE, analysis_window, as_float, frame_count

LOWEST_HZ = 60.0
HIGHEST_HZ = 500.0
VOICED_CORRELATION = 0.45
"""A frame whose correlation with itself one period later is below this is unvoiced."""
_OCTAVE_COST = 0.02
"""For every doubling of the period: two periods fit as well as one."""
_LEAST_POWER = 1e-6


def pitch_of(wave_BS: Any, lengths_B: Any) -> Any:
    """Pitch in Hz [B, T] at the frames of `MelSpectrogram`, 0 where a frame is unvoiced or beyond its clip."""
    import tensorflow as tf

    inside_BS = tf.sequence_mask(lengths_B, tf.shape(wave_BS)[1], tf.float32)
    padded_BS = tf.pad(as_float(wave_BS) * inside_BS, [[0, 0], [N_FFT // 2, N_FFT // 2]])
    frames_BTW = tf.signal.frame(padded_BS, N_FFT, HOP)
    power_BT = tf.reduce_mean(tf.square(frames_BTW), -1)
    inside_BT = tf.sequence_mask(frame_count(tf.cast(lengths_B, tf.int32)), tf.shape(power_BT)[1])
    # Neighbouring frames decide together: one that is torn between two octaves follows them.
    inside_BT1 = tf.cast(inside_BT, tf.float32)[..., None]
    correlation_BTL = _with_neighbours(_correlation(frames_BTW) * inside_BT1)
    correlation_BTL /= tf.maximum(_with_neighbours(inside_BT1), 1.0)

    first, last = int(SAMPLE_RATE / HIGHEST_HZ), int(SAMPLE_RATE / LOWEST_HZ)
    at_BTL = correlation_BTL[..., first:last]
    before_BTL, behind_BTL = correlation_BTL[..., first - 1 : last - 1], correlation_BTL[..., first + 1 : last + 1]
    cost_L = (_OCTAVE_COST * np.log2(np.arange(first, last) / first)).astype(np.float32)
    peak_BTL = tf.logical_and(at_BTL >= before_BTL, at_BTL >= behind_BTL)
    score_BTL = tf.where(peak_BTL, at_BTL - cost_L, -1.0)
    best_BT = tf.argmax(score_BTL, -1, tf.int32)
    left_BT, top_BT, right_BT = (tf.gather(one, best_BT, batch_dims=2) for one in (before_BTL, at_BTL, behind_BTL))
    # The top of the parabola through the peak and its neighbours.
    bend_BT = tf.minimum(left_BT - 2.0 * top_BT + right_BT, -1e-6)
    lag_BT = tf.cast(best_BT + first, tf.float32) + tf.clip_by_value(0.5 * (left_BT - right_BT) / bend_BT, -0.5, 0.5)
    voiced_BT = tf.logical_and(tf.reduce_max(score_BTL, -1) > VOICED_CORRELATION, power_BT > _LEAST_POWER)
    return tf.where(tf.logical_and(voiced_BT, inside_BT), SAMPLE_RATE / lag_BT, 0.0)


def _with_neighbours(x_BTL: Any) -> Any:
    import tensorflow as tf

    around_BTL = tf.pad(x_BTL, [[0, 0], [1, 1], [0, 0]])
    return around_BTL[:, :-2] + around_BTL[:, 1:-1] + around_BTL[:, 2:]


def _correlation(frames_BTW: Any) -> Any:
    """Of each frame with itself so many samples later, 1 for a periodic one whatever the window leaves of it."""
    import tensorflow as tf

    window_W = analysis_window()
    spectrum_W = np.abs(np.fft.rfft(window_W, 2 * N_FFT)) ** 2
    of_window_L = np.fft.irfft(spectrum_W)[: N_FFT // 2]
    frames_BTW = (frames_BTW - tf.reduce_mean(frames_BTW, -1, keepdims=True)) * window_W
    spectrum_BTF = tf.signal.rfft(frames_BTW, [2 * N_FFT])
    power_BTF = tf.square(tf.math.real(spectrum_BTF)) + tf.square(tf.math.imag(spectrum_BTF))
    found_BTL = tf.signal.irfft(tf.complex(power_BTF, tf.zeros_like(power_BTF)))[..., : N_FFT // 2]
    return found_BTL / tf.maximum(found_BTL[..., :1], 1e-6) / (of_window_L / of_window_L[0]).astype(np.float32)
