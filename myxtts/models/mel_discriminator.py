"""A discriminator of mels, for the stage that teaches the mel decoder. Never used when speaking.

It looks at patches of 0.3 s and 47 channels: what a patch says is the other losses' business, whether it is as sharp
as a recording's is this one's. Behind a clip's end both are the same, and it learns so: with much padding
it weighs less.

Shapes: B clips, T mel frames, M mel channels.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from myxtts.models.discriminators import Discrimination, discriminate

WIDTHS = (16, 32, 32, 32)
# Strides over [time, channels].
_STRIDES = ((1, 2), (2, 2), (2, 2), (1, 1))


class MelDiscriminator(keras.layers.Layer):  # type: ignore[misc]
    """Convolutions over scaled mels, zeros behind a clip's end."""

    def __init__(self, **keras_options: Any) -> None:
        super().__init__(**{"name": "mel_discriminator", **keras_options})
        self.convs = [
            keras.layers.Conv2D(width, 3, strides=strides, padding="same", name=f"conv_{index + 1}")
            for index, (width, strides) in enumerate(zip(WIDTHS, _STRIDES, strict=True))
        ]
        self.out = keras.layers.Conv2D(1, 3, padding="same", name="out")

    def build(self, input_shape: Any = None) -> None:
        width_in = 1
        for conv, width in zip((*self.convs, self.out), (*WIDTHS, 1), strict=True):
            conv.build((None, None, None, width_in))
            width_in = width
        self.built = True

    def call(self, mel_BTM: tf.Tensor) -> list[Discrimination]:
        scores, (*features, _) = discriminate(mel_BTM[..., None], self.convs, self.out)
        # Without the scores among the features: to be given the recording's score at every place makes speech sharper
        # still and less like the voice.
        return [(scores, features)]
