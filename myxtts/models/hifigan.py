"""HiFi-GAN decoder: the GPT's latents and a speaker vector to a 24 kHz wave. XTTS v2's layers and sizes.

Written for the CPU as much as for the GPU: activations stay in [B, 1, T, C], which no convolution has to convert; the
transposed convolutions are ordinary ones with two taps and a reshape (each output phase has a filter of its own);
speaking on a CPU takes the convolutions of `fast_conv`.

Shapes: B clips, N latents, D width of a latent, V width of the speaker vector, T time, C channels, S samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.fast_conv import fast_conv, pays, plain_conv
from myxtts.models.hifigan_sizes import (
    DILATIONS,
    FRAMES_PER_LATENT,
    HOP_SAMPLES,
    RATE_RATIO,
    RESIDUAL_KERNELS,
    UPSAMPLING,
    frames_of_latents,
)
from myxtts.models.layers import float32_layers, on_cpu

SLOPE = 0.1
LAST_SLOPE = 0.01

# PyTorch's default for convolutions, which HiFi-GAN's depth is tuned to: uniform within 1 / sqrt(fan in).
_KERNEL_INIT = {"scale": 1.0 / 3.0, "mode": "fan_in", "distribution": "uniform"}


_portable = False


@contextmanager
def portable_convolutions() -> Iterator[None]:
    """Calls in here are traced with operations that another runtime has too."""
    global _portable
    _portable = True
    try:
        yield
    finally:
        _portable = False


def frames_of(latents: Any) -> Any:
    """24 kHz frames of so many latents (int, or an integer tensor)."""
    if isinstance(latents, int):
        return frames_of_latents(latents)
    exact = tf.cast(latents * FRAMES_PER_LATENT, tf.float64) * tf.constant(RATE_RATIO, tf.float64)
    return tf.cast(tf.floor(exact), tf.int32)


def samples_of(latents: Any) -> Any:
    """24 kHz samples that `HiFiGAN` makes of so many latents."""
    return frames_of(latents) * HOP_SAMPLES


class Conv(keras.layers.Layer):  # type: ignore[misc]
    """One convolution over time of [B, 1, T, C], as long as its input."""

    def __init__(
        self, channels_in: int, channels: int, kernel: int, dilation: int = 1, bias: bool = True, **keras_options: Any
    ) -> None:
        super().__init__(**keras_options)
        self.shape = (1, kernel, channels_in, channels)
        self.dilation = dilation
        self.use_bias = bias

    def build(self, input_shape: Any = None) -> None:
        initializer = keras.initializers.VarianceScaling(**_KERNEL_INIT)
        self.kernel = self.add_weight(name="kernel", shape=self.shape, initializer=initializer)
        self.bias = self.add_weight(name="bias", shape=self.shape[-1:], initializer="zeros") if self.use_bias else None
        self.built = True

    def call(self, x_B1TC: tf.Tensor, training: bool = False) -> tf.Tensor:
        kernel = tf.convert_to_tensor(self.kernel)
        if training and self.dilation > 1:
            made_B1TC = _folded_conv(x_B1TC, kernel, self.dilation)
        elif training or _portable or not on_cpu(self.kernel):
            made_B1TC = tf.nn.conv2d(x_B1TC, kernel, 1, "SAME", dilations=self.dilation)
        elif pays(kernel) and kernel.dtype == tf.float32:
            made_B1TC = fast_conv(x_B1TC, kernel, self.dilation)
        else:
            made_B1TC = plain_conv(x_B1TC, kernel, "SAME", self.dilation)
        return made_B1TC if self.bias is None else tf.nn.bias_add(made_B1TC, tf.convert_to_tensor(self.bias))


class Upsample(keras.layers.Layer):  # type: ignore[misc]
    """Transposed convolution with kernel 2 x rate and padding rate / 2, as a convolution with two taps.

    Output sample t = rate * q + phase - rate / 2 is x[q] * w[phase] + x[q - 1] * w[phase + rate].
    The kernel is stored so: [1, 2, in, rate * out], tap 0 for x[q - 1].
    """

    def __init__(self, channels_in: int, channels: int, rate: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.channels_in, self.channels, self.rate = channels_in, channels, rate

    def build(self, input_shape: Any = None) -> None:
        shape = (1, 2, self.channels_in, self.rate * self.channels)
        initializer = keras.initializers.VarianceScaling(**_KERNEL_INIT)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=initializer)
        self.bias = self.add_weight(name="bias", shape=(self.channels,), initializer="zeros")
        self.built = True

    def call(self, x_B1TC: tf.Tensor, training: bool = False) -> tf.Tensor:
        batch, time = tf.shape(x_B1TC)[0], tf.shape(x_B1TC)[2]
        padded = tf.pad(x_B1TC, [[0, 0], [0, 0], [1, 1], [0, 0]])
        kernel = tf.convert_to_tensor(self.kernel)
        if training or _portable or not on_cpu(self.kernel):
            phases = tf.nn.conv2d(padded, kernel, 1, "VALID")
        else:
            phases = plain_conv(padded, kernel, "VALID")
        made = tf.reshape(phases, [batch, 1, (time + 1) * self.rate, self.channels])
        made = made[:, :, self.rate // 2 : self.rate // 2 + time * self.rate]
        return tf.nn.bias_add(made, tf.convert_to_tensor(self.bias))


class ResidualBlock(keras.layers.Layer):  # type: ignore[misc]
    """For each dilation: leaky ReLU, dilated convolution, leaky ReLU, convolution, added to the input."""

    def __init__(self, channels: int, kernel: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.dilated = [Conv(channels, channels, kernel, rate, name=f"dilated_{rate}") for rate in DILATIONS]
        self.plain = [Conv(channels, channels, kernel, name=f"plain_{rate}") for rate in DILATIONS]

    def build(self, input_shape: Any = None) -> None:
        for conv in (*self.dilated, *self.plain):
            conv.build()
        self.built = True

    def call(
        self, x_B1TC: tf.Tensor, active_B1TC: tf.Tensor, mask_B1T1: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor:
        """`active` is the leaky ReLU of `x`: the three blocks of a stage share their first one."""
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            hidden_B1TC = _masked(tf.nn.leaky_relu(dilated(active_B1TC, training=training), SLOPE), mask_B1T1)
            x_B1TC = x_B1TC + _masked(plain(hidden_B1TC, training=training), mask_B1T1)
            active_B1TC = tf.nn.leaky_relu(x_B1TC, SLOPE)
        return x_B1TC


class Stage(keras.layers.Layer):  # type: ignore[misc]
    """Upsampling, the speaker's bias, and the mean of three residual blocks with different reach."""

    def __init__(self, channels: int, rate: int, speaker_width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.rate = rate
        self.speaker_width = speaker_width
        self.up = Upsample(channels, channels // 2, rate, name="up")
        self.speaker = keras.layers.Dense(channels // 2, name="speaker")
        self.blocks = [ResidualBlock(channels // 2, kernel, name=f"block_{kernel}") for kernel in RESIDUAL_KERNELS]

    def build(self, input_shape: Any = None) -> None:
        self.up.build()
        self.speaker.build((None, self.speaker_width))
        for block in self.blocks:
            block.build()
        self.built = True

    def call(
        self, active_B1TC: tf.Tensor, speaker_BV: tf.Tensor, mask_B1T1: tf.Tensor | None, training: bool = False
    ) -> tf.Tensor:
        x_B1TC = _masked(self.up(active_B1TC, training=training) + self.speaker(speaker_BV)[:, None, None], mask_B1T1)
        shared_B1TC = tf.nn.leaky_relu(x_B1TC, SLOPE)
        made = [block(x_B1TC, shared_B1TC, mask_B1T1, training=training) for block in self.blocks]
        return tf.add_n(made) / len(made)


class HiFiGAN(keras.layers.Layer):  # type: ignore[misc]
    """Latents [B, N, D] and speaker vectors [B, V] to waves [B, S]. Build it with `build()` under the device scope."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "hifigan", **keras_options})
        self.latent_width, self.speaker_width = config.gpt_width, config.speaker_width
        width = config.decoder_width
        self.into = Conv(self.latent_width, width, 7, name="into")
        self.speaker = keras.layers.Dense(width, name="speaker")
        self.stages = [
            Stage(width // 2**index, rate, self.speaker_width, name=f"stage_{index + 1}")
            for index, rate in enumerate(UPSAMPLING)
        ]
        # With 16 bits each sample would have 8 or 11 of its own; the mel of the loss would hear the rest as noise.
        with float32_layers():
            self.out = Conv(width // 2 ** len(UPSAMPLING), 1, 7, bias=False, name="out")

    def build(self, input_shape: Any = None) -> None:
        self.into.build()
        self.speaker.build((None, self.speaker_width))
        for stage in self.stages:
            stage.build()
        self.out.build()
        self.built = True

    def call(
        self,
        latents_BND: tf.Tensor,
        speaker_BV: tf.Tensor,
        latent_lengths_B: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Waves in [-1, 1]. With lengths, padding leaks into nothing (each row as if alone) at some cost in speed.

        `training` changes no value beyond rounding; without it a CPU has no gradients.
        """
        frames_BTD = to_output_rate(latents_BND, latent_lengths_B)
        lengths_B = None if latent_lengths_B is None else frames_of(latent_lengths_B)
        return self.from_frames(frames_BTD, speaker_BV, lengths_B, training=training)

    def from_frames(
        self,
        frames_BTD: tf.Tensor,
        speaker_BV: tf.Tensor,
        lengths_B: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Waves of what `to_output_rate` made; each sample depends on no frame further away than
        `hifigan_sizes.REACH_FRAMES`."""
        x = tf.cast(frames_BTD, self.compute_dtype)[:, None]
        x = self.into(_masked(x, _time_mask(x, lengths_B)), training=training) + self.speaker(speaker_BV)[:, None, None]
        for stage in self.stages:
            active = _masked(tf.nn.leaky_relu(x, SLOPE), _time_mask(x, lengths_B))
            lengths_B = None if lengths_B is None else lengths_B * stage.rate
            mask = None if lengths_B is None else _mask_of(tf.shape(x)[2] * stage.rate, lengths_B, x.dtype)
            x = stage(active, speaker_BV, mask, training=training)
        active = _masked(tf.nn.leaky_relu(x, LAST_SLOPE), _time_mask(x, lengths_B))
        wave_B1S1 = self.out(active, training=training)
        return _masked(tf.tanh(wave_B1S1), _time_mask(wave_B1S1, lengths_B))[:, 0, :, 0]


def _folded_conv(x_B1TC: tf.Tensor, kernel: tf.Tensor, dilation: int) -> tf.Tensor:
    """A dilated convolution as an ordinary one down the columns of time folded at the dilation.

    TensorFlow has no gradient of a dilated convolution on a CPU ("do not yet support dilation rates larger than 1").
    Folding costs two copies.
    """
    batch, time, channels_in = tf.shape(x_B1TC)[0], tf.shape(x_B1TC)[2], x_B1TC.shape[3]
    padded = tf.pad(x_B1TC, [[0, 0], [0, 0], [0, -time % dilation], [0, 0]])
    columns_BQDC = tf.reshape(padded, [batch, -1, dilation, channels_in])
    made_BQDC = tf.nn.conv2d(columns_BQDC, tf.transpose(kernel, [1, 0, 2, 3]), 1, "SAME")
    return tf.reshape(made_BQDC, [batch, 1, -1, kernel.shape[-1]])[:, :, :time]


def to_output_rate(latents_BND: tf.Tensor, latent_lengths_B: tf.Tensor | None = None) -> tf.Tensor:
    """Latents at the frame rate of 24 kHz: four frames each, then 24000 / 22050 times as many, both linear."""
    count = tf.shape(latents_BND)[1]
    lengths_B = tf.fill([tf.shape(latents_BND)[0]], count) if latent_lengths_B is None else latent_lengths_B
    frames_BTD = _stretch(latents_BND, lengths_B, count * FRAMES_PER_LATENT, float(FRAMES_PER_LATENT))
    return _stretch(frames_BTD, lengths_B * FRAMES_PER_LATENT, frames_of(count), RATE_RATIO)


def _stretch(x_BTD: tf.Tensor, lengths_B: tf.Tensor, made: tf.Tensor, ratio: float) -> tf.Tensor:
    """Linear interpolation between sample centres, held at each row's own ends."""
    centre_T = (tf.range(made, dtype=tf.float32) + 0.5) / ratio - 0.5
    last_B1 = tf.cast(lengths_B, tf.float32)[:, None] - 1.0
    where_BT = tf.maximum(tf.minimum(centre_T[None], last_B1), 0.0)
    low_BT = tf.floor(where_BT)
    share_BT1 = tf.cast(where_BT - low_BT, x_BTD.dtype)[:, :, None]
    low_BT = tf.cast(low_BT, tf.int32)
    high_BT = tf.minimum(low_BT + 1, tf.maximum(lengths_B[:, None] - 1, 0))
    low_BTD, high_BTD = tf.gather(x_BTD, low_BT, batch_dims=1), tf.gather(x_BTD, high_BT, batch_dims=1)
    return low_BTD + (high_BTD - low_BTD) * share_BT1


def _mask_of(time: tf.Tensor, lengths_B: tf.Tensor, dtype: Any) -> tf.Tensor:
    return tf.sequence_mask(lengths_B, time, dtype=dtype)[:, None, :, None]


def _time_mask(x_B1TC: tf.Tensor, lengths_B: tf.Tensor | None) -> tf.Tensor | None:
    return None if lengths_B is None else _mask_of(tf.shape(x_B1TC)[2], lengths_B, x_B1TC.dtype)


def _masked(x_B1TC: tf.Tensor, mask_B1T1: tf.Tensor | None) -> tf.Tensor:
    return x_B1TC if mask_B1T1 is None else x_B1TC * mask_B1T1
