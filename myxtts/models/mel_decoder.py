"""Mel decoder: the GPT's codes and latents to log mel, for Griffin-Lim.

The DVAE's decoder knows the codes alone, and a code of 46 ms leaves open which sound it was part of. The GPT's latents
know the text: what is spoken, and in whose voice. This decoder starts as a copy of the DVAE's that does not look at
the latents yet, and learns to.

Shapes: B clips, N codes of a clip, D width of a latent, T mel frames (4 N), M mel channels, C channels.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from myxtts.audio.mel import N_MELS
from myxtts.config.model import ModelConfig
from myxtts.models.dvae import DVAE, Decoder

REACH_CODES = 2
"""Latents on either side of a code that are read with it. The latent of a code is what predicted it; the next ones
know which it was."""


class MelDecoder(keras.layers.Layer):  # type: ignore[misc]
    """The DVAE's decoder with a second input. Build it under the device scope with `build()` before its first use."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "mel_decoder", **keras_options})
        self.latent_width = config.gpt_width
        kernel = 2 * REACH_CODES + 1
        # Nothing at first: the decoder is the DVAE's own until it has learnt what a latent is good for.
        self.listen = keras.layers.Conv1D(
            config.dvae_width, kernel, padding="same", kernel_initializer="zeros", use_bias=False, name="listen"
        )
        self.decoder = Decoder(config.dvae_width, config.dvae_code_width, name="decoder")

    def build(self, input_shape: Any = None) -> None:
        stats = {"shape": (N_MELS,), "trainable": False, "dtype": "float32", "autocast": False}
        self.mel_shift_M = self.add_weight(name="mel_shift", initializer="zeros", **stats)
        self.mel_scale_M = self.add_weight(name="mel_scale", initializer="ones", **stats)
        self.listen.build((None, None, self.latent_width))
        self.decoder.build()
        self.built = True

    def begin_as(self, dvae: DVAE) -> None:
        """Take over the DVAE's decoder and its scale of the mel."""
        self.mel_shift_M.assign(dvae.mel_shift_M)
        self.mel_scale_M.assign(dvae.mel_scale_M)
        for own, theirs in zip(self.decoder.weights, dvae.decoder.weights, strict=True):
            own.assign(theirs)

    def call(self, vectors_BNC: tf.Tensor, latents_BND: tf.Tensor, code_lengths_B: tf.Tensor) -> tf.Tensor:
        """Log mel in float32, four frames for each code; `vectors` are the codebook's entries."""
        inside_BN1 = tf.sequence_mask(code_lengths_B, tf.shape(latents_BND)[1], dtype=latents_BND.dtype)[:, :, None]
        hidden_BNC = self.decoder.into(vectors_BNC) + self.listen(latents_BND * inside_BN1)
        scaled_BTM = self.decoder.from_hidden(hidden_BNC, code_lengths_B)
        return tf.cast(scaled_BTM, tf.float32) * self.mel_scale_M + self.mel_shift_M
