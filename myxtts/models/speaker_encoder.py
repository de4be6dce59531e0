"""Speaker encoder: a 16 kHz reference wave to one vector. XTTS v2's ResNet with squeeze-excitation.

Its front end is pre-emphasis, a mel of its own (`SPEAKER_MEL`) and instance norm.
Without lengths every row is taken whole; with lengths, each row gives what it gives alone, but in training, where batch
norm counts every frame of a batch.

Shapes: B clips, S samples, T frames, F mel channels (or what is left of them), C channels, V width of the vector.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from myxtts.audio.mel import SPEAKER_MEL, SPEAKER_PREEMPHASIS, MelSpectrogram
from myxtts.config.model import ModelConfig
from myxtts.models.layers import float32_layers

SAMPLE_RATE = SPEAKER_MEL.sample_rate
MEL_CHANNELS = SPEAKER_MEL.n_mels
WIDTHS = (32, 64, 128, 256)
BLOCKS = (3, 4, 6, 3)
SQUEEZE = 8
ATTENTION_WIDTH = 128
_EPSILON = 1e-5


class SqueezeExcite(keras.layers.Layer):  # type: ignore[misc]
    """Each channel times a gate that the means of all channels decide."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        self.squeeze = keras.layers.Dense(width // SQUEEZE, activation="relu", name="squeeze")
        self.excite = keras.layers.Dense(width, activation="sigmoid", name="excite")

    def build(self, input_shape: Any = None) -> None:
        self.squeeze.build((None, self.width))
        self.excite.build((None, self.width // SQUEEZE))
        self.built = True

    def call(self, x_BFTC: tf.Tensor, mask_B1T1: tf.Tensor) -> tf.Tensor:
        values_B1 = tf.reduce_sum(mask_B1T1, axis=[1, 2]) * tf.cast(tf.shape(x_BFTC)[1], x_BFTC.dtype)
        mean_BC = tf.reduce_sum(x_BFTC * mask_B1T1, axis=[1, 2]) / values_B1
        return x_BFTC * self.excite(self.squeeze(mean_BC))[:, None, None]


class ResidualBlock(keras.layers.Layer):  # type: ignore[misc]
    """Two convolutions with batch norm, squeeze-excitation, and the input (strided as the block is) added."""

    def __init__(self, width_in: int, width: int, stride: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width_in, self.width, self.stride = width_in, width, stride
        self.conv_1 = keras.layers.Conv2D(width, 3, strides=stride, use_bias=False, name="conv_1")
        self.norm_1 = _batch_norm("norm_1")
        self.conv_2 = keras.layers.Conv2D(width, 3, use_bias=False, name="conv_2")
        self.norm_2 = _batch_norm("norm_2")
        self.gate = SqueezeExcite(width, name="gate")
        self.shortcut: keras.layers.Layer | None = None
        if stride != 1 or width_in != width:
            self.shortcut = keras.layers.Conv2D(width, 1, strides=stride, use_bias=False, name="shortcut")
            self.shortcut_norm = _batch_norm("shortcut_norm")

    def build(self, input_shape: Any = None) -> None:
        inner = (None, None, None, self.width)
        self.conv_1.build((None, None, None, self.width_in))
        self.conv_2.build(inner)
        self.norm_1.build(inner)
        self.norm_2.build(inner)
        self.gate.build()
        if self.shortcut is not None:
            self.shortcut.build((None, None, None, self.width_in))
            self.shortcut_norm.build(inner)
        self.built = True

    def call(self, x_BFTC: tf.Tensor, mask_B1T1: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """What the block makes of x, and the mask of that."""
        made_mask_B1T1 = mask_B1T1[:, :, :: self.stride] if self.stride > 1 else mask_B1T1
        made = tf.nn.relu(self.conv_1(_edged(x_BFTC, mask_B1T1)))
        made = self.norm_1(made, training=training)
        made = self.norm_2(self.conv_2(_edged(made, made_mask_B1T1)), training=training)
        made = self.gate(made, made_mask_B1T1)
        if self.shortcut is not None:
            x_BFTC = self.shortcut_norm(self.shortcut(x_BFTC), training=training)
        return tf.nn.relu(made + x_BFTC), made_mask_B1T1


class AttentivePooling(keras.layers.Layer):  # type: ignore[misc]
    """Mean and deviation over time, weighted by an attention of each value."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        self.hidden = keras.layers.Dense(ATTENTION_WIDTH, activation="relu", name="hidden")
        self.norm = _batch_norm("norm")
        self.score = keras.layers.Dense(width, name="score")

    def build(self, input_shape: Any = None) -> None:
        self.hidden.build((None, None, self.width))
        self.norm.build((None, None, ATTENTION_WIDTH))
        self.score.build((None, None, ATTENTION_WIDTH))
        self.built = True

    def call(self, x_BTC: tf.Tensor, valid_BT1: tf.Tensor, training: bool = False) -> tf.Tensor:
        scores_BTC = self.score(self.norm(self.hidden(x_BTC), training=training))
        weights_BTC = tf.nn.softmax(tf.where(valid_BT1, scores_BTC, scores_BTC.dtype.min), axis=1)
        mean_BC = tf.reduce_sum(x_BTC * weights_BTC, axis=1)
        variance_BC = tf.reduce_sum(x_BTC**2 * weights_BTC, axis=1) - mean_BC**2
        return tf.concat([mean_BC, tf.sqrt(tf.maximum(variance_BC, _EPSILON))], axis=-1)


class SpeakerEncoder(keras.layers.Layer):  # type: ignore[misc]
    """Waves [B, S] at 16 kHz to vectors [B, V] of length 1. Build it with `build()` under the device scope.

    It computes in float32: the sums and squares of its gates and its pooling are too much for 16 bits.
    """

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        with float32_layers():
            super().__init__(**{"name": "speaker_encoder", **keras_options})
            self._make_layers(config)

    def _make_layers(self, config: ModelConfig) -> None:
        self.into = keras.layers.Conv2D(WIDTHS[0], 3, name="into")
        self.into_norm = _batch_norm("into_norm")
        self.blocks: list[ResidualBlock] = []
        width_in = WIDTHS[0]
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            for index in range(count):
                stride = 2 if stage and index == 0 else 1
                self.blocks.append(ResidualBlock(width_in, width, stride, name=f"block_{stage + 1}_{index + 1}"))
                width_in = width
        self.pooled_width = WIDTHS[-1] * MEL_CHANNELS // 2 ** (len(WIDTHS) - 1)
        self.pooling = AttentivePooling(self.pooled_width, name="pooling")
        self.out = keras.layers.Dense(config.speaker_width, name="out")

    def build(self, input_shape: Any = None) -> None:
        self.into.build((None, None, None, 1))
        self.into_norm.build((None, None, None, WIDTHS[0]))
        for block in self.blocks:
            block.build()
        self.pooling.build()
        self.out.build((None, 2 * self.pooled_width))
        self.built = True

    def call(self, wave_BS: tf.Tensor, wave_lengths_B: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        if wave_lengths_B is None:
            wave_lengths_B = tf.fill([tf.shape(wave_BS)[0]], tf.shape(wave_BS)[1])
        return self.from_log_mel(*log_mel(wave_BS, wave_lengths_B), training=training)

    def from_log_mel(self, mel_BTF: tf.Tensor, lengths_B: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Vectors of what `log_mel` made."""
        x = tf.transpose(_instance_norm(mel_BTF, lengths_B), [0, 2, 1])[..., None]
        mask_B1T1 = tf.sequence_mask(lengths_B, tf.shape(x)[2], dtype=x.dtype)[:, None, :, None]
        x = self.into_norm(tf.nn.relu(self.into(_edged(x, mask_B1T1))), training=training)
        for block in self.blocks:
            x, mask_B1T1 = block(x, mask_B1T1, training=training)
        # XTTS v2's order of the pooled values: channel first, then what is left of the mel channels.
        x_BTCF = tf.transpose(x, [0, 2, 3, 1])
        x_BTC = tf.reshape(x_BTCF, [tf.shape(x)[0], tf.shape(x)[2], self.pooled_width])
        vector_BV = self.out(self.pooling(x_BTC, mask_B1T1[:, 0] > 0, training=training))
        return tf.math.l2_normalize(tf.cast(vector_BV, tf.float32), axis=-1, epsilon=1e-24)


def log_mel(wave_BS: tf.Tensor, wave_lengths_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Log mel [B, T, F] of the pre-emphasised wave, and the frames of each row."""
    before_BS = tf.concat([wave_BS[:, 1:2], wave_BS[:, :-1]], axis=1)
    mel = MelSpectrogram(SPEAKER_MEL, whole=True)
    power_BTF, lengths_B = mel.power_mel(wave_BS - SPEAKER_PREEMPHASIS * before_BS, wave_lengths_B)
    return tf.math.log(power_BTF + 1e-6), lengths_B


def _instance_norm(mel_BTF: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
    mask_BT1 = tf.sequence_mask(lengths_B, tf.shape(mel_BTF)[1], dtype=mel_BTF.dtype)[:, :, None]
    frames_B11 = tf.cast(lengths_B, mel_BTF.dtype)[:, None, None]
    mean_B1F = tf.reduce_sum(mel_BTF * mask_BT1, axis=1, keepdims=True) / frames_B11
    centred_BTF = (mel_BTF - mean_B1F) * mask_BT1
    variance_B1F = tf.reduce_sum(centred_BTF**2, axis=1, keepdims=True) / frames_B11
    return centred_BTF * tf.math.rsqrt(variance_B1F + _EPSILON)


class BatchNorm(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras's, with statistics that several replicas may update: to the mean of what they saw.

    They are updated in the forward pass, so also in a step that is skipped since its gradient is not finite: values
    that are not finite change none of them.
    """

    def add_weight(self, *shape: Any, trainable: bool = True, **options: Any) -> Any:
        if not trainable:
            options["aggregation"] = "mean"
        return super().add_weight(*shape, trainable=trainable, **options)

    def _moments(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super()._moments(inputs, mask)
        finite = tf.math.is_finite(mean) & tf.math.is_finite(variance)
        return tf.where(finite, mean, self.moving_mean), tf.where(finite, variance, self.moving_variance)


def _batch_norm(name: str) -> BatchNorm:
    return BatchNorm(epsilon=_EPSILON, momentum=0.9, name=name)


def _edged(x_BFTC: tf.Tensor, mask_B1T1: tf.Tensor) -> tf.Tensor:
    """Zeros behind each row's end, and one on every side for a 3 x 3 convolution."""
    return tf.pad(x_BFTC * mask_B1T1, [[0, 0], [1, 1], [1, 1], [0, 0]])
