"""Mel decoder: what the GPT generated to log mel and, with `pitch_predictor`, to the pitch, for a vocoder.

The DVAE's decoder knows the codes alone, and a code of 46 ms leaves open which sound it was part of. Here it learns to
read two more things: the GPT's latents, which know the voice and what the GPT meant, and the text, of which the
alignment heads say where in it the speech is. It starts as a copy of the DVAE's decoder that reads neither yet, and
is told the voice as that one is.

A mel leaves the pitch of a voice blurred where codes leave it open. With a pitch predictor (FastSpeech 2's) it is a
number of its own, which the last blocks read as the comb of its harmonics: the recording's while learning, the
predicted one when speaking.

Shapes: B clips, N codes of a clip, D width of a latent, U tokens of a text, T mel frames (4 N), M mel channels, C
channels, V width of a voice vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from myxtts.audio.mel import N_MELS, SAMPLE_RATE, mel_filterbank
from myxtts.config.model import ModelConfig
from myxtts.models.dvae import DVAE, Decoder, ResidualBlock
from myxtts.models.voice_encoder import inside

REACH_CODES = 2
"""Latents on either side of a code that are read with it. The latent of a code is what predicted it; the next ones
know which it was."""
REACH_TOKENS = 2
"""Tokens on either side that each of the two convolutions over the text reads."""
MIXING_BLOCKS = 2
MIDDLE_HZ = 160.0
"""Pitches are predicted in octaves above this one: most voices are within one of it."""


class SpokenText(NamedTuple):
    """A text and which of its tokens is spoken when."""

    tokens_BU: Any
    lengths_B: Any
    spoken_BN: Any
    """For every code the index of its token."""


class TextReader(keras.layers.Layer):  # type: ignore[misc]
    """Each token with its neighbours."""

    def __init__(self, vocabulary: int, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        kernel = 2 * REACH_TOKENS + 1
        self.embedding = keras.layers.Embedding(vocabulary, width, name="embedding")
        self.conv_1 = keras.layers.Conv1D(width, kernel, padding="same", activation="relu", name="conv_1")
        self.conv_2 = keras.layers.Conv1D(width, kernel, padding="same", activation="relu", name="conv_2")

    def build(self, input_shape: Any = None) -> None:
        self.embedding.build((None, None))
        self.conv_1.build((None, None, self.width))
        self.conv_2.build((None, None, self.width))
        self.built = True

    def call(self, text: SpokenText) -> tf.Tensor:
        """For every code what is read at its token, [B, N, C]."""
        inside_BU1 = inside(text.lengths_B, text.tokens_BU, self.compute_dtype)
        x_BUC = tf.cast(self.embedding(text.tokens_BU), self.compute_dtype) * inside_BU1
        for conv in (self.conv_1, self.conv_2):
            x_BUC = conv(x_BUC) * inside_BU1
        last_B1 = tf.maximum(text.lengths_B - 1, 0)[:, None]
        return tf.gather(x_BUC, tf.minimum(text.spoken_BN, last_B1), batch_dims=1)


class MadeMel(NamedTuple):
    """Of a batch. Without a pitch predictor there is a mel only."""

    mel_BTM: Any
    """Log mel in float32, four frames for each code."""
    octaves_BT: Any = None
    """The predicted pitch, in octaves above `MIDDLE_HZ`."""
    voicing_BT: Any = None
    """Above 0 where a frame is rather voiced: logits."""

    def pitch(self) -> Any:
        """In Hz [B, T], 0 where a frame is unvoiced."""
        hertz_BT = MIDDLE_HZ * tf.exp(float(np.log(2.0)) * self.octaves_BT)
        return tf.where(self.voicing_BT > 0.0, hertz_BT, 0.0)


def outputs_of(made: MadeMel) -> list[tf.Tensor]:
    """What a vocoder needs: the mel, and the pitch where there is one."""
    return [made.mel_BTM] if made.octaves_BT is None else [made.mel_BTM, made.pitch()]


class PitchPredictor(keras.layers.Layer):  # type: ignore[misc]
    """Two convolutions over the decoder's frames to pitch and voicing."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.width = width
        self.conv_1 = keras.layers.Conv1D(width, 5, padding="same", activation="relu", name="conv_1")
        self.conv_2 = keras.layers.Conv1D(width, 5, padding="same", activation="relu", name="conv_2")
        self.out = keras.layers.Conv1D(2, 1, name="out")

    def build(self, input_shape: Any = None) -> None:
        for conv in (self.conv_1, self.conv_2, self.out):
            conv.build((None, None, self.width))
        self.built = True

    def call(self, x_BTC: tf.Tensor, mask_BT1: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for conv in (self.conv_1, self.conv_2):
            x_BTC = conv(x_BTC) * mask_BT1
        both_BT2 = tf.cast(self.out(x_BTC), tf.float32)
        return both_BT2[..., 0], both_BT2[..., 1]


def harmonic_comb(pitch_BT: tf.Tensor) -> tf.Tensor:
    """What a pitch in Hz means for a mel, [B, T, M + 2]: for each channel how near it is to a harmonic (1 on one, -1
    between two, 0 where channels are too wide to tell), whether the frame is voiced, and the pitch in octaves."""
    filters_FM = mel_filterbank()
    hz_F = np.linspace(0.0, SAMPLE_RATE / 2, len(filters_FM))
    centres_M = hz_F @ filters_FM / filters_FM.sum(0)
    widths_M = np.gradient(centres_M)
    pitch_BT1 = tf.cast(pitch_BT, tf.float32)[..., None]
    voiced_BT1 = tf.cast(pitch_BT1 > 0.0, tf.float32)
    safe_BT1 = tf.where(pitch_BT1 > 0.0, pitch_BT1, MIDDLE_HZ)
    near_BTM = tf.cos((2.0 * np.pi * centres_M).astype(np.float32) / safe_BT1)
    told_apart_BTM = tf.exp(-tf.square(widths_M.astype(np.float32) / safe_BT1))
    octaves_BT1 = tf.math.log(safe_BT1 / MIDDLE_HZ) / float(np.log(2.0))
    return tf.concat([near_BTM * told_apart_BTM * voiced_BT1, voiced_BT1, octaves_BT1 * voiced_BT1], -1)


class MelDecoder(keras.layers.Layer):  # type: ignore[misc]
    """The DVAE's decoder with two more inputs. Build it under the device scope with `build()` before its first use."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "mel_decoder", **keras_options})
        self.latent_width, width = config.gpt_width, config.dvae_width
        # Nothing at first: the decoder is the DVAE's own until it has learnt what latents and text are good for.
        nothing: dict[str, Any] = {"padding": "same", "kernel_initializer": "zeros", "use_bias": False}
        self.reader = TextReader(config.text_vocab, width, name="reader")
        self.from_text = keras.layers.Conv1D(width, 3, name="from_text", **nothing)
        self.from_latents = keras.layers.Conv1D(width, 2 * REACH_CODES + 1, name="from_latents", **nothing)
        self.blocks = [ResidualBlock(width, name=f"block_{index + 1}") for index in range(MIXING_BLOCKS)]
        self.decoder = Decoder(
            width,
            config.dvae_code_width,
            voice_width=config.voice_width,
            frame_blocks=config.mel_frame_blocks,
            name="decoder",
        )
        self.pitch = PitchPredictor(width // 2, name="pitch") if config.pitch_predictor else None
        if self.pitch is not None:
            self.from_pitch = keras.layers.Conv1D(width // 2, 3, name="from_pitch", **nothing)

    def build(self, input_shape: Any = None) -> None:
        stats = {"shape": (N_MELS,), "trainable": False, "dtype": "float32", "autocast": False}
        self.mel_shift_M = self.add_weight(name="mel_shift", initializer="zeros", **stats)
        self.mel_scale_M = self.add_weight(name="mel_scale", initializer="ones", **stats)
        self.reader.build()
        self.from_text.build((None, None, self.decoder.width))
        self.from_latents.build((None, None, self.latent_width))
        for block in self.blocks:
            block.build()
        self.decoder.build()
        if self.pitch is not None:
            self.pitch.build()
            self.from_pitch.build((None, None, N_MELS + 2))
        self.built = True

    def begin_as(self, dvae: DVAE) -> None:
        """Take over the DVAE's decoder and its scale of the mel."""
        self.mel_shift_M.assign(dvae.mel_shift_M)
        self.mel_scale_M.assign(dvae.mel_scale_M)
        # Blocks at the rate of the mel are the mel decoder's alone.
        frame_blocks = {id(weight) for block in self.decoder.frame_blocks for weight in block.weights}
        shared = [weight for weight in self.decoder.weights if id(weight) not in frame_blocks]
        for own, theirs in zip(shared, dvae.decoder.weights, strict=True):
            own.assign(theirs)
        for block in (*self.blocks, *self.decoder.frame_blocks):
            for weight in block.conv_3.weights:
                weight.assign(tf.zeros_like(weight))

    def call(
        self,
        vectors_BNC: tf.Tensor,
        latents_BND: tf.Tensor,
        code_lengths_B: tf.Tensor,
        text: SpokenText | None,
        voice_BV: tf.Tensor | None = None,
        pitch_BT: tf.Tensor | None = None,
    ) -> MadeMel:
        """The mel, and the pitch where there is a predictor; `vectors` are the codebook's entries, `voice` the DVAE's.

        Without a text, which only a voice with alignment heads can tell the place in, it makes do with the rest;
        without a `pitch`, in Hz for each frame, with the predicted one.
        """
        inside_BN1 = inside(code_lengths_B, latents_BND, self.compute_dtype)
        latents_BND = tf.cast(latents_BND, self.compute_dtype) * inside_BN1
        hidden_BNC = self.decoder.into(vectors_BNC) + self.from_latents(latents_BND)
        if text is not None:
            hidden_BNC += self.from_text(self.reader(text) * inside_BN1)
        hidden_BNC *= inside_BN1
        for block in self.blocks:
            hidden_BNC = block(hidden_BNC, inside_BN1)
        x_BTC, mask_BT1 = self.decoder.to_frames(hidden_BNC, code_lengths_B, voice_BV)
        predicted: tuple[Any, ...] = ()
        if self.pitch is not None:
            predicted = self.pitch(x_BTC, mask_BT1)
            if pitch_BT is None:
                pitch_BT = MadeMel(None, *predicted).pitch()
            comb_BTM = tf.cast(harmonic_comb(pitch_BT), self.compute_dtype)
            x_BTC = (x_BTC + self.from_pitch(comb_BTM)) * mask_BT1
        scaled_BTM = self.decoder.from_frames(x_BTC, mask_BT1)
        return MadeMel(tf.cast(scaled_BTM, tf.float32) * self.mel_scale_M + self.mel_shift_M, *predicted)
