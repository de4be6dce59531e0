"""DVAE: log mel to discrete codes at a quarter of the frame rate, and back. XTTS v2's layers and sizes.

Mels go in and come out as `myxtts.audio.mel` makes them (natural log); the scaling per channel is a pair of
non-trainable weights in here. Padding never reaches a valid frame: every convolution sees zeros behind a clip's end,
as it does when the clip is alone. With `voice_width` in the model's sizes, which XTTS v2 has not, the decoder is also
told the voice of a reference clip.

Shapes: B clips, T mel frames, M mel channels, N codes of a clip (T / 4, rounded up), C width of a code vector, V width
of a voice vector.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from myxtts.audio.mel import N_MELS
from myxtts.config.model import FRAMES_PER_CODE, ModelConfig
from myxtts.models.codebook import Codebook
from myxtts.models.layers import float32_layers
from myxtts.models.voice_encoder import Modulation, VoiceEncoder, inside

RESIDUAL_BLOCKS = 3


class ResidualBlock(keras.layers.Layer):  # type: ignore[misc]
    """conv 3, ReLU, conv 3, ReLU, conv 1, added to the input."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        self.conv_1 = keras.layers.Conv1D(width, 3, padding="same", activation="relu", name="conv_1")
        self.conv_2 = keras.layers.Conv1D(width, 3, padding="same", activation="relu", name="conv_2")
        self.conv_3 = keras.layers.Conv1D(width, 1, name="conv_3")

    def build(self, input_shape: Any = None) -> None:
        for conv in (self.conv_1, self.conv_2, self.conv_3):
            conv.build((None, None, self.width))
        self.built = True

    def call(self, x_BTC: tf.Tensor, mask_BT1: tf.Tensor) -> tf.Tensor:
        hidden_BTC = self.conv_1(x_BTC) * mask_BT1
        hidden_BTC = self.conv_2(hidden_BTC) * mask_BT1
        return x_BTC + self.conv_3(hidden_BTC) * mask_BT1


class Encoder(keras.layers.Layer):  # type: ignore[misc]
    """Scaled mel to one latent for every four frames."""

    def __init__(self, width: int, code_width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        # "valid" after one zero on either side: TensorFlow's "same" puts none on the left of an even length.
        self.down_1 = keras.layers.Conv1D(width // 2, 3, strides=2, activation="relu", name="down_1")
        self.down_2 = keras.layers.Conv1D(width, 3, strides=2, activation="relu", name="down_2")
        self.blocks = [ResidualBlock(width, name=f"block_{index + 1}") for index in range(RESIDUAL_BLOCKS)]
        self.out = keras.layers.Conv1D(code_width, 1, name="out")

    def build(self, input_shape: Any = None) -> None:
        self.down_1.build((None, None, N_MELS))
        self.down_2.build((None, None, self.width // 2))
        for block in self.blocks:
            block.build()
        self.out.build((None, None, self.width))
        self.built = True

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
        lengths_B = mel_lengths_B
        x = mel_BTM * _mask(mel_BTM, lengths_B)
        for down in (self.down_1, self.down_2):
            x = down(tf.pad(x, [[0, 0], [1, 1], [0, 0]]))
            lengths_B = (lengths_B + 1) // 2
            mask_BT1 = _mask(x, lengths_B)
            x = x * mask_BT1
        for block in self.blocks:
            x = block(x, mask_BT1)
        return self.out(x)


class Decoder(keras.layers.Layer):  # type: ignore[misc]
    """Code vectors to scaled mel, four frames each, in the voice of the vector where the model has one.

    `frame_blocks` residual blocks work at the rate of the mel, which the codes' rate leaves little for.
    """

    def __init__(
        self, width: int, code_width: int, *, voice_width: int = 0, frame_blocks: int = 0, **keras_options: Any
    ) -> None:
        super().__init__(**keras_options)
        self.width = width
        self.code_width = code_width
        self.into = keras.layers.Conv1D(width, 1, name="into")
        self.blocks = [ResidualBlock(width, name=f"block_{index + 1}") for index in range(RESIDUAL_BLOCKS)]
        self.up_1 = keras.layers.Conv1D(width, 3, padding="same", activation="relu", name="up_1")
        self.up_2 = keras.layers.Conv1D(width // 2, 3, padding="same", activation="relu", name="up_2")
        self.frame_blocks = [ResidualBlock(width // 2, name=f"frame_block_{n + 1}") for n in range(frame_blocks)]
        self.out = keras.layers.Conv1D(N_MELS, 1, name="out")
        channels = (width, width, width, width // 2) if voice_width else ()
        self.voiced = [Modulation(voice_width, count, name=f"voiced_{n + 1}") for n, count in enumerate(channels)]

    def build(self, input_shape: Any = None) -> None:
        for block in self.frame_blocks:
            block.build()
        for modulation in self.voiced:
            modulation.build()
        self.into.build((None, None, self.code_width))
        for block in self.blocks:
            block.build()
        self.up_1.build((None, None, self.width))
        self.up_2.build((None, None, self.width))
        self.out.build((None, None, self.width // 2))
        self.built = True

    def call(self, vectors_BNC: tf.Tensor, code_lengths_B: tf.Tensor, voice_BV: tf.Tensor | None = None) -> tf.Tensor:
        return self.from_hidden(self.into(vectors_BNC), code_lengths_B, voice_BV)

    def from_hidden(self, x_BNC: tf.Tensor, code_lengths_B: tf.Tensor, voice_BV: tf.Tensor | None = None) -> tf.Tensor:
        """What `into` made of the code vectors, or something like it, to scaled mel."""
        return self.from_frames(*self.to_frames(x_BNC, code_lengths_B, voice_BV))

    def to_frames(
        self, x_BNC: tf.Tensor, code_lengths_B: tf.Tensor, voice_BV: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """To half the width at the rate of the mel, and the mask of the frames."""
        lengths_B = code_lengths_B
        mask_BT1 = _mask(x_BNC, lengths_B)
        x = self._modulated(0, x_BNC, voice_BV) * mask_BT1
        for block in self.blocks:
            x = block(x, mask_BT1)
        for index, up in enumerate((self.up_1, self.up_2), start=1):
            x = up(tf.repeat(self._modulated(index, x, voice_BV) * mask_BT1, 2, axis=1))
            lengths_B = lengths_B * 2
            mask_BT1 = _mask(x, lengths_B)
            x = x * mask_BT1
        return self._modulated(3, x, voice_BV) * mask_BT1, mask_BT1

    def from_frames(self, x_BTC: tf.Tensor, mask_BT1: tf.Tensor) -> tf.Tensor:
        for block in self.frame_blocks:
            x_BTC = block(x_BTC, mask_BT1)
        return self.out(x_BTC)

    def _modulated(self, index: int, x: tf.Tensor, voice_BV: tf.Tensor | None) -> tf.Tensor:
        return self.voiced[index](x, voice_BV) if self.voiced else x


class DVAE(keras.layers.Layer):  # type: ignore[misc]
    """Encoder, codebook and decoder. Build it under the device scope with `build()` before its first use."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "dvae", **keras_options})
        # Codes are decided by small distances, and must not depend on what else is computed in 16 bits.
        with float32_layers():
            self.encoder = Encoder(config.dvae_width, config.dvae_code_width, name="encoder")
        self.codebook = Codebook(config.audio_codes, config.dvae_code_width, name="codebook")
        sizes = config.dvae_width, config.dvae_code_width
        self.decoder = Decoder(*sizes, voice_width=config.voice_width, name="decoder")
        self.voice = VoiceEncoder(config.voice_width) if config.voice_width else None

    def build(self, input_shape: Any = None) -> None:
        stats = {"shape": (N_MELS,), "trainable": False, "dtype": "float32", "autocast": False}
        self.mel_shift_M = self.add_weight(name="mel_shift", initializer="zeros", **stats)
        self.mel_scale_M = self.add_weight(name="mel_scale", initializer="ones", **stats)
        self.encoder.build()
        self.codebook.build()
        self.decoder.build()
        if self.voice is not None:
            self.voice.build()
        self.built = True

    def set_mel_stats(self, shift_M: Any, scale_M: Any) -> None:
        """Scaled mel = (log mel - shift) / scale. XTTS v2 has a scale only; `measure_mel_stats` gives both."""
        self.mel_shift_M.assign(shift_M)
        self.mel_scale_M.assign(scale_M)

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
        """The mel as its codes and its own voice give it back, as many frames as went in."""
        codes_BN, code_lengths_B = self.encode(mel_BTM, mel_lengths_B)
        voice_BV = self.voice_of(mel_BTM, mel_lengths_B)
        return self.decode(codes_BN, code_lengths_B, voice_BV)[:, : tf.shape(mel_BTM)[1]]

    def voice_of(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor | None:
        """The voice vectors [B, V] of reference clips; None for a model without."""
        return None if self.voice is None else self.voice(self._scaled(mel_BTM), mel_lengths_B)

    def encode(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Codes [B, N] and how many of each row are real; behind those, the row means nothing."""
        latents_BNC = self.encoder(self._scaled(mel_BTM), mel_lengths_B)
        _, codes_BN = self.codebook.quantise(latents_BNC)
        return codes_BN, code_lengths(mel_lengths_B)

    def decode(
        self, codes_BN: tf.Tensor, code_lengths_B: tf.Tensor | None = None, voice_BV: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Log mel, four frames for each code; all codes of a row are real unless lengths are given."""
        if code_lengths_B is None:
            code_lengths_B = tf.fill([tf.shape(codes_BN)[0]], tf.shape(codes_BN)[1])
        scaled_BTM = self.decoder(self.codebook.look_up(codes_BN), code_lengths_B, voice_BV)
        return tf.cast(scaled_BTM, tf.float32) * self.mel_scale_M + self.mel_shift_M

    def training_pass(
        self,
        mel_BTM: tf.Tensor,
        mel_lengths_B: tf.Tensor,
        voice_BV: tf.Tensor | None = None,
        *,
        bypass: tf.Tensor | bool,
    ) -> dict[str, tf.Tensor]:
        """The log mel `made`, the loss `commitment`, and `latents` and `codes` for `update_codebook`.

        With `bypass` (a bool, or a scalar tensor so that one trace serves both phases) the decoder sees the
        latents themselves: the codebook is useless until the latents mean something.
        """
        latents_BNC = tf.cast(self.encoder(self._scaled(mel_BTM), mel_lengths_B), tf.float32)
        nearest_BNC, codes_BN = self.codebook.quantise(latents_BNC)
        straight_through_BNC = latents_BNC + tf.stop_gradient(nearest_BNC - latents_BNC)
        code_lengths_B = code_lengths(mel_lengths_B)
        decoder_input_BNC = tf.where(bypass, latents_BNC, straight_through_BNC)
        decoded_BTM = self.decoder(decoder_input_BNC, code_lengths_B, voice_BV)
        made_BTM = tf.cast(decoded_BTM, tf.float32)[:, : tf.shape(mel_BTM)[1]]
        code_mask_BN = tf.sequence_mask(code_lengths_B, tf.shape(codes_BN)[1], dtype=tf.float32)
        distance_BN = self.codebook.distance(latents_BNC, codes_BN)
        commitment = tf.reduce_sum(distance_BN * code_mask_BN) / tf.reduce_sum(code_mask_BN)
        return {
            "made": made_BTM * self.mel_scale_M + self.mel_shift_M,
            "commitment": commitment,
            "latents": tf.stop_gradient(latents_BNC),
            "codes": codes_BN,
        }

    def update_codebook(
        self, latents_BNC: tf.Tensor, codes_BN: tf.Tensor, mel_lengths_B: tf.Tensor, *, bypass: tf.Tensor | bool
    ) -> None:
        """Move the codebook after a step; works inside a tf.function and in each replica, not inside XLA."""
        valid_BN = tf.sequence_mask(code_lengths(mel_lengths_B), tf.shape(codes_BN)[1])
        self.codebook.update(latents_BNC, codes_BN, valid_BN, tf.convert_to_tensor(bypass))

    def codebook_usage(self) -> tf.Tensor:
        """Share of the codes in use lately, 0 to 1; below about 0.05 after the bypass, the codebook has collapsed."""
        return self.codebook.usage()

    def _scaled(self, mel_BTM: tf.Tensor) -> tf.Tensor:
        return (tf.cast(mel_BTM, tf.float32) - self.mel_shift_M) / self.mel_scale_M


def code_lengths(mel_lengths_B: tf.Tensor) -> tf.Tensor:
    """Codes of clips with so many mel frames."""
    return (mel_lengths_B + FRAMES_PER_CODE - 1) // FRAMES_PER_CODE


def measure_mel_stats(mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and standard deviation of every channel over the valid frames: a shift and a scale to train with."""
    mask_BT1 = _mask(mel_BTM, mel_lengths_B)
    frames = tf.reduce_sum(mask_BT1)
    mean_M = tf.reduce_sum(mel_BTM * mask_BT1, axis=[0, 1]) / frames
    variance_M = tf.reduce_sum(((mel_BTM - mean_M) * mask_BT1) ** 2, axis=[0, 1]) / frames
    # A channel that never changes (silence only) would be divided by nothing.
    return mean_M, tf.maximum(tf.sqrt(variance_M), 0.1)


def _mask(like_BTC: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
    return inside(lengths_B, like_BTC, like_BTC.dtype)
