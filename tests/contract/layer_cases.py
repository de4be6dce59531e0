"""The model's parts beside the GPT, as cases of the layer contract: how to build one, feed it and run it.

Shapes: B clips of different lengths; `inputs` pads them to the longest, and `row` gives one of them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.config.model import FRAMES_PER_CODE, ModelConfig
from myxtts.models.discriminators import Discriminators, adversarial_loss, discriminator_loss, feature_loss
from myxtts.models.dvae import DVAE
from myxtts.models.hifigan import HiFiGAN, samples_of
from myxtts.models.mel_decoder import MadeMel, MelDecoder, SpokenText
from myxtts.models.mel_discriminator import MelDiscriminator
from myxtts.models.speaker_encoder import SpeakerEncoder
from myxtts.models.voice_encoder import VoiceEncoder
from myxtts.training.stages.codec import CodecStage

Inputs = dict[str, np.ndarray]
TINY = ModelConfig(model_size="tiny", gpt_width=16, gpt_heads=2, decoder_width=32, dvae_width=32, speaker_width=24)
MANY_VOICES = replace(TINY, voice_width=8, mel_frame_blocks=1, pitch_predictor=True)


@dataclass(frozen=True)
class LayerCase:
    """One layer under the contract."""

    name: str
    build: Callable[[], keras.layers.Layer]
    """The layer, built."""
    inputs: Callable[[list[int]], Inputs]
    """A padded batch of rows with these lengths (in the layer's own unit of time)."""
    run: Callable[[Any, Inputs], tf.Tensor]
    """The layer's output for a batch."""
    loss: Callable[[Any, Inputs], tf.Tensor]
    """A scalar that every trainable variable has a part in."""
    out_length: Callable[[int], int] | None
    """Valid outputs of a row of this length; None where the output has no time axis."""
    lengths: tuple[tuple[int, ...], ...] = ((40, 24), (40, 33), (57, 40), (64, 19))
    """Row lengths of four batches of different shapes."""


def _built(layer: keras.layers.Layer) -> keras.layers.Layer:
    layer.build()
    return layer


def _noise(lengths: list[int], width: int, scale: float = 1.0) -> np.ndarray:
    made = np.zeros((len(lengths), max(lengths), width), np.float32)
    for row, length in enumerate(lengths):
        made[row, :length] = np.random.default_rng(100 * row + length).normal(0.0, scale, (length, width))
    return made


def _dvae_inputs(lengths: list[int]) -> Inputs:
    return {"mel": _noise(lengths, 80), "lengths": np.array(lengths, np.int32)}


def _voiced(layer: DVAE | MelDecoder) -> Any:
    """The layer with a decoder that has learnt to listen to the voice vector."""
    for number, modulation in enumerate(layer.decoder.voiced):
        kernel = modulation.project.kernel
        kernel.assign(np.random.default_rng(number).normal(0.0, 0.1, kernel.shape))
    return layer


def _dvae_loss(layer: DVAE, inputs: Inputs) -> tf.Tensor:
    batch = {"mel": inputs["mel"], "mel_lengths": inputs["lengths"]}
    if layer.voice is not None:
        batch |= {"reference": inputs["mel"], "reference_lengths": inputs["lengths"]}
    terms = CodecStage(layer).objective(batch, seed=None, step=tf.constant(0)).terms
    return tf.add_n([term.weight * term.mean for term in terms.values()])


def _hifigan_inputs(lengths: list[int]) -> Inputs:
    speaker = np.random.default_rng(1).normal(0.0, 0.1, (1, TINY.speaker_width)).astype(np.float32)
    rows = len(lengths)
    return {
        "latents": _noise(lengths, TINY.gpt_width),
        "speaker": np.repeat(speaker, rows, axis=0),
        "lengths": np.array(lengths, np.int32),
    }


def _mel_decoder(config: ModelConfig = TINY) -> MelDecoder:
    """One that has learnt to read latents and text, and the voice vector and the pitch where it has them."""
    layer = _voiced(_built(MelDecoder(config)))
    for kernel in (layer.from_latents.kernel, layer.from_text.kernel):
        kernel.assign(np.random.default_rng(2).normal(0.0, 0.1, kernel.shape))
    if layer.pitch is not None:
        # Less: the comb of a predicted pitch has its rounding fifty times at the fiftieth harmonic.
        layer.from_pitch.kernel.assign(np.random.default_rng(3).normal(0.0, 0.02, layer.from_pitch.kernel.shape))
    return layer


def _mel_decoder_inputs(lengths: list[int]) -> Inputs:
    """Latents and code vectors side by side: both have a clip's length."""
    return {
        "both": _noise(lengths, TINY.gpt_width + TINY.dvae_code_width),
        "tokens": np.array([np.arange(row, row + 20) for row in lengths], np.int32),
        "lengths": np.array(lengths, np.int32),
    }


def _made_mel(layer: MelDecoder, inputs: Inputs) -> MadeMel:
    latents, vectors = tf.split(inputs["both"], [TINY.gpt_width, TINY.dvae_code_width], axis=-1)
    spoken = tf.tile(tf.range(tf.shape(latents)[1])[None], [tf.shape(latents)[0], 1])
    text = SpokenText(inputs["tokens"], inputs["lengths"], spoken)
    voice = tf.fill([tf.shape(latents)[0], MANY_VOICES.voice_width], 0.3) if layer.decoder.voiced else None
    return layer(vectors, latents, inputs["lengths"], text, voice)


def _run_mel_decoder(layer: MelDecoder, inputs: Inputs) -> tf.Tensor:
    """All outputs of a frame side by side."""
    mel_BTM, *pitch = _made_mel(layer, inputs)
    return tf.concat([mel_BTM, *(one[..., None] for one in pitch if one is not None)], -1)


def _wave_inputs(lengths: list[int]) -> Inputs:
    return {"wave": _noise(lengths, 1, 0.1)[:, :, 0], "lengths": np.array(lengths, np.int32)}


def _judging_loss(layer: Discriminators | MelDiscriminator, real: np.ndarray) -> tf.Tensor:
    of_real, of_made = layer(real), layer(0.5 * real)
    return discriminator_loss(of_real, of_made) + adversarial_loss(of_made) + feature_loss(of_real, of_made)


CASES = [
    LayerCase(
        name="dvae",
        build=lambda: _built(DVAE(TINY)),
        inputs=_dvae_inputs,
        run=lambda layer, inputs: layer(inputs["mel"], inputs["lengths"]),
        loss=_dvae_loss,
        out_length=lambda length: length,
    ),
    LayerCase(
        name="mel_decoder",
        build=_mel_decoder,
        inputs=_mel_decoder_inputs,
        run=_run_mel_decoder,
        loss=lambda layer, inputs: tf.reduce_mean(_run_mel_decoder(layer, inputs) ** 2),
        out_length=lambda length: FRAMES_PER_CODE * length,
        lengths=((10, 6), (10, 8), (14, 10), (16, 5)),
    ),
    LayerCase(
        name="dvae_of_many_voices",
        build=lambda: _voiced(_built(DVAE(MANY_VOICES))),
        inputs=_dvae_inputs,
        run=lambda layer, inputs: layer(inputs["mel"], inputs["lengths"]),
        loss=_dvae_loss,
        out_length=lambda length: length,
    ),
    LayerCase(
        name="mel_decoder_of_many_voices",
        build=lambda: _mel_decoder(MANY_VOICES),
        inputs=_mel_decoder_inputs,
        run=_run_mel_decoder,
        loss=lambda layer, inputs: tf.reduce_mean(_run_mel_decoder(layer, inputs) ** 2),
        out_length=lambda length: FRAMES_PER_CODE * length,
        lengths=((10, 6), (10, 8), (14, 10), (16, 5)),
    ),
    LayerCase(
        name="voice_encoder",
        build=lambda: _built(VoiceEncoder(MANY_VOICES.voice_width)),
        inputs=_dvae_inputs,
        run=lambda layer, inputs: layer(inputs["mel"], inputs["lengths"]),
        loss=lambda layer, inputs: tf.reduce_sum(
            layer(inputs["mel"], inputs["lengths"]) * tf.range(MANY_VOICES.voice_width, dtype=tf.float32)
        ),
        out_length=None,
    ),
    LayerCase(
        name="hifigan",
        build=lambda: _built(HiFiGAN(TINY)),
        inputs=_hifigan_inputs,
        run=lambda layer, inputs: layer(inputs["latents"], inputs["speaker"], inputs["lengths"]),
        loss=lambda layer, inputs: tf.reduce_mean(layer(inputs["latents"], inputs["speaker"], training=True) ** 2),
        out_length=samples_of,
        lengths=((6, 3), (6, 5), (9, 6), (11, 2)),
    ),
    LayerCase(
        name="speaker_encoder",
        build=lambda: _built(SpeakerEncoder(TINY)),
        inputs=_wave_inputs,
        run=lambda layer, inputs: layer(inputs["wave"], inputs["lengths"]),
        loss=lambda layer, inputs: tf.reduce_sum(
            layer(inputs["wave"], inputs["lengths"]) * tf.range(TINY.speaker_width, dtype=tf.float32)
        ),
        out_length=None,
        lengths=((3000, 2000), (3000, 2500), (4000, 1500), (3501, 2222)),
    ),
    LayerCase(
        name="discriminators",
        build=lambda: _built(Discriminators(shrink=16)),
        inputs=_wave_inputs,
        run=lambda layer, inputs: tf.concat([scores for scores, _ in layer(inputs["wave"])], axis=1),
        loss=lambda layer, inputs: _judging_loss(layer, inputs["wave"]),
        out_length=None,
        lengths=((3000, 3000), (3500, 3500), (4000, 4000), (4096, 4096)),
    ),
    LayerCase(
        name="mel_discriminator",
        build=lambda: _built(MelDiscriminator()),
        inputs=_dvae_inputs,
        run=lambda layer, inputs: layer(inputs["mel"])[0][0],
        loss=lambda layer, inputs: _judging_loss(layer, inputs["mel"]),
        out_length=None,
        lengths=((40, 40), (44, 44), (57, 57), (64, 64)),
    ),
]
