"""HiFi-GAN's discriminators and its losses, for the `decoder` stage. Never used when speaking.

The multi-period discriminator folds the wave so that every p-th sample stands in a column; the multi-resolution one
looks at three short-time spectra (it does what HiFi-GAN's multi-scale one does without grouped convolutions, which a
CPU cannot train outside XLA). Each discriminator returns a score and the features on the way to it. The losses are pure
functions of those.

Shapes: B clips, S samples, P period, C channels.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

PERIODS = (2, 3, 5, 7, 11)
WINDOWS_SAMPLES = (512, 1024, 2048)
SLOPE = 0.1
FEATURE_WEIGHT = 2.0
MEL_WEIGHT = 45.0
_PERIOD_WIDTHS = (32, 128, 512, 1024)
_SPECTRUM_WIDTH = 32
# Kernel and stride over [time, frequency].
_SPECTRUM_LAYERS = (((3, 9), (1, 1)), ((3, 9), (1, 2)), ((3, 9), (1, 2)), ((3, 9), (1, 2)), ((3, 3), (1, 1)))

Discrimination = tuple[tf.Tensor, list[tf.Tensor]]
"""A discriminator's scores for a batch, and its features."""


class PeriodDiscriminator(keras.layers.Layer):  # type: ignore[misc]
    """Strided convolutions along the columns of the wave folded at one period."""

    def __init__(self, period: int, widths: tuple[int, ...], **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.period = period
        self.widths = (1, *widths, widths[-1])
        strides = [3] * len(widths) + [1]
        self.convs = [
            keras.layers.Conv2D(width, (5, 1), strides=(stride, 1), padding="same", name=f"conv_{index + 1}")
            for index, (width, stride) in enumerate(zip(self.widths[1:], strides, strict=True))
        ]
        self.out = keras.layers.Conv2D(1, (3, 1), padding="same", name="out")

    def build(self, input_shape: Any = None) -> None:
        for conv, width_in in zip(self.convs, self.widths, strict=False):
            conv.build((None, None, self.period, width_in))
        self.out.build((None, None, self.period, self.widths[-1]))
        self.built = True

    def call(self, wave_BS: tf.Tensor) -> Discrimination:
        missing = -tf.shape(wave_BS)[1] % self.period
        padded_BS = tf.pad(wave_BS, [[0, 0], [0, missing]], mode="REFLECT")
        x = tf.reshape(padded_BS, [tf.shape(wave_BS)[0], -1, self.period, 1])
        return discriminate(x, self.convs, self.out)


class SpectrumDiscriminator(keras.layers.Layer):  # type: ignore[misc]
    """Convolutions over the magnitudes of one short-time Fourier transform, halving the frequencies three times."""

    def __init__(self, window_samples: int, width: int, **keras_options: Any) -> None:
        # Without Keras's autocast: the transform is taken of the wave as it came, 16 bits would be noise in it.
        super().__init__(**{"autocast": False, **keras_options})
        self.window_samples = window_samples
        self.width = width
        self.convs = [
            keras.layers.Conv2D(width, kernel, strides=strides, padding="same", name=f"conv_{index + 1}")
            for index, (kernel, strides) in enumerate(_SPECTRUM_LAYERS)
        ]
        self.out = keras.layers.Conv2D(1, (3, 3), padding="same", name="out")

    def build(self, input_shape: Any = None) -> None:
        width_in = 1
        for conv in (*self.convs, self.out):
            conv.build((None, None, None, width_in))
            width_in = self.width
        self.built = True

    def call(self, wave_BS: tf.Tensor) -> Discrimination:
        hop_samples = self.window_samples // 4
        spectrum_BTF = tf.signal.stft(wave_BS, self.window_samples, hop_samples, pad_end=True)
        # Not tf.abs: its gradient is not a number where a spectrum is exactly silent.
        power_BTF = tf.math.real(spectrum_BTF) ** 2 + tf.math.imag(spectrum_BTF) ** 2
        magnitude_BTF = tf.sqrt(power_BTF + 1e-9)
        return discriminate(magnitude_BTF[..., None], self.convs, self.out)


class Discriminators(keras.layers.Layer):  # type: ignore[misc]
    """Five of periods and three of spectra. `shrink` divides all widths, for small models and tests."""

    def __init__(self, shrink: int = 1, **keras_options: Any) -> None:
        super().__init__(**{"name": "discriminators", "autocast": False, **keras_options})
        widths = tuple(max(width // shrink, 4) for width in _PERIOD_WIDTHS)
        periods = [PeriodDiscriminator(period, widths, name=f"period_{period}") for period in PERIODS]
        width = max(_SPECTRUM_WIDTH // shrink, 4)
        spectra = [SpectrumDiscriminator(window, width, name=f"spectrum_{window}") for window in WINDOWS_SAMPLES]
        self.discriminators: list[PeriodDiscriminator | SpectrumDiscriminator] = [*periods, *spectra]

    def build(self, input_shape: Any = None) -> None:
        for discriminator in self.discriminators:
            discriminator.build()
        self.built = True

    def call(self, wave_BS: tf.Tensor) -> list[Discrimination]:
        return [discriminator(wave_BS) for discriminator in self.discriminators]


def discriminate(x: tf.Tensor, convs: list[keras.layers.Layer], out: keras.layers.Layer) -> Discrimination:
    """What convolutions one after the other find, and the last one concludes."""
    features = []
    for conv in convs:
        x = tf.nn.leaky_relu(conv(x), SLOPE)
        features.append(x)
    scores = out(x)
    features.append(scores)
    return tf.reshape(scores, [tf.shape(scores)[0], -1]), features


def discriminator_loss(real: list[Discrimination], made: list[Discrimination]) -> tf.Tensor:
    """Least squares: real towards 1, made towards 0, summed over the discriminators."""
    losses = [
        tf.reduce_mean((1.0 - _f32(scores)) ** 2) + tf.reduce_mean(_f32(fakes) ** 2)
        for (scores, _), (fakes, _) in zip(real, made, strict=True)
    ]
    return tf.add_n(losses)


def adversarial_loss(made: list[Discrimination]) -> tf.Tensor:
    """The generator's loss: scores of generated speech towards 1, summed over the discriminators."""
    return tf.add_n([tf.reduce_mean((1.0 - _f32(fakes)) ** 2) for fakes, _ in made])


def feature_loss(real: list[Discrimination], made: list[Discrimination]) -> tf.Tensor:
    """Mean distance of every layer's features, summed over layers and discriminators; the real ones are the target."""
    losses = [
        tf.reduce_mean(tf.abs(tf.stop_gradient(_f32(target)) - _f32(feature)))
        for (_, targets), (_, features) in zip(real, made, strict=True)
        for target, feature in zip(targets, features, strict=True)
    ]
    return tf.add_n(losses)


def _f32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)
