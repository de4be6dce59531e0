"""Voice encoder: a reference's mel to one vector of how its speaker sounds, which conditions the decoders of codes.

With it the codes need not carry the voice, and a decoder speaks in that of an unseen clip. XTTS v2 has none.

Shapes: B clips, T mel frames, M mel channels, C channels, V width of a voice vector.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from myxtts.audio.mel import N_MELS

CHANNELS = 192
_LEAST_VARIANCE = 1e-5


class VoiceEncoder(keras.layers.Layer):  # type: ignore[misc]
    """Strided convolutions, the mean and the deviation of their channels over time, and a projection to length 1."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**{"name": "voice", **keras_options})
        self.width = width
        self.convs = [
            keras.layers.Conv1D(CHANNELS, 5, strides=stride, padding="same", activation="relu", name=f"conv_{index}")
            for index, stride in enumerate((2, 2, 1, 1), start=1)
        ]
        self.out = keras.layers.Dense(width, name="out")

    def build(self, input_shape: Any = None) -> None:
        channels = N_MELS
        for conv in self.convs:
            conv.build((None, None, channels))
            channels = CHANNELS
        self.out.build((None, 2 * CHANNELS))
        self.built = True

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
        """Of scaled mels; frames beyond a clip's end change nothing."""
        lengths_B = mel_lengths_B
        x = mel_BTM * inside(lengths_B, mel_BTM, mel_BTM.dtype)
        for conv in self.convs:
            stride = conv.strides[0]
            # TensorFlow's "same" centres a stride by the length: an even one keeps a clip's frames where they are.
            padded = tf.pad(x, [[0, 0], [0, tf.shape(x)[1] % stride], [0, 0]])
            # LiteRT's converter no longer knows the channels behind a padding that is computed.
            x = conv(tf.reshape(padded, [tf.shape(x)[0], -1, x.shape[-1]]))
            lengths_B = -(-lengths_B // stride)
            mask_BT1 = inside(lengths_B, x, x.dtype)
            x = x * mask_BT1
        frames_B1 = tf.maximum(tf.reduce_sum(mask_BT1, 1), 1.0)
        mean_BC = tf.reduce_sum(x, 1) / frames_B1
        variance_BC = tf.reduce_sum(((x - mean_BC[:, None]) * mask_BT1) ** 2, 1) / frames_B1
        vector_BV = self.out(tf.concat([mean_BC, tf.sqrt(variance_BC + _LEAST_VARIANCE)], -1))
        return tf.math.l2_normalize(tf.cast(vector_BV, tf.float32), -1)


class Modulation(keras.layers.Layer):  # type: ignore[misc]
    """A gain and an offset for every channel from the voice vector (FiLM); the identity until it has learnt."""

    def __init__(self, voice_width: int, channels: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.voice_width, self.channels = voice_width, channels
        self.project = keras.layers.Dense(2 * channels, kernel_initializer="zeros", name="project")

    def build(self, input_shape: Any = None) -> None:
        self.project.build((None, self.voice_width))
        self.built = True

    def call(self, x_BTC: tf.Tensor, voice_BV: tf.Tensor) -> tf.Tensor:
        # Entries of a vector of length 1 are small: at their usual size the gains learn as fast as the convolutions.
        gain_BC, offset_BC = tf.split(self.project(voice_BV * self.voice_width**0.5), 2, -1)
        return x_BTC * (1.0 + gain_BC[:, None]) + offset_BC[:, None]


def inside(lengths_B: tf.Tensor, like: tf.Tensor, dtype: Any) -> tf.Tensor:
    """1 for the frames of each clip and 0 behind them, [B, T, 1]."""
    return tf.sequence_mask(lengths_B, tf.shape(like)[1], dtype=dtype)[:, :, None]
