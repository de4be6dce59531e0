"""The GPT and the conditioning encoder as cases of the layer contract."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.conditioning import Conditioning
from myxtts.models.gpt import GPT, gpt_losses
from tests.contract.layer_cases import Inputs, LayerCase

TINY = ModelConfig(
    model_size="tiny",
    text_vocab=30,
    audio_codes=20,
    gpt_width=32,
    gpt_heads=2,
    gpt_layers=3,
    conditioning_latents=4,
    perceiver_heads=2,
)
HEADS = ((1, 0), (2, 0))


def built_gpt(config: ModelConfig = TINY) -> GPT:
    gpt = GPT(config)
    gpt.build()
    return gpt


def _built_conditioning() -> Conditioning:
    layer = Conditioning(TINY)
    layer.build()
    # Blocks start as the identity, and a weight behind a zero has no gradient.
    for index, weight in enumerate(layer.weights):
        if weight.path.endswith("out/kernel"):
            weight.assign(np.random.default_rng(index).normal(0.0, 0.2, weight.shape))
    return layer


def _mel_inputs(lengths: list[int]) -> Inputs:
    mel = np.stack([np.random.default_rng(row).normal(size=(max(lengths), 80)) for row in range(len(lengths))])
    return {"mel": mel.astype(np.float32), "lengths": np.array(lengths, np.int32)}


def gpt_inputs(lengths: list[int]) -> Inputs:
    """Clips with these numbers of codes; texts of 7, 9, 11, ... tokens, padded."""
    rows = len(lengths)
    text_lengths = 7 + 2 * np.arange(rows, dtype=np.int32)
    random = [np.random.default_rng(row) for row in range(rows)]
    return {
        "codes": np.stack([one.integers(0, TINY.audio_codes, max(lengths)) for one in random]).astype(np.int32),
        "lengths": np.array(lengths, np.int32),
        "text": np.stack([one.integers(4, TINY.text_vocab, text_lengths.max()) for one in random]).astype(np.int32),
        "text_lengths": text_lengths,
        "latents": np.stack([one.normal(size=(4, TINY.gpt_width)) for one in random]).astype(np.float32),
    }


def voice_and_text(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents, texts and their lengths, to generate from."""
    inputs = gpt_inputs([5] * rows)
    return inputs["latents"], inputs["text"], inputs["text_lengths"]


def _gpt_loss(gpt: GPT, inputs: Inputs) -> tf.Tensor:
    batch = [tf.convert_to_tensor(inputs[name]) for name in ("text", "text_lengths", "codes", "lengths")]
    output = gpt(inputs["latents"], *batch, alignment_heads=HEADS)
    return gpt_losses(gpt, output, *batch, alignment_BT=tf.zeros_like(batch[2]), alignment_weight=0.5).total


CASES = [
    LayerCase(
        name="conditioning",
        build=_built_conditioning,
        inputs=_mel_inputs,
        run=lambda layer, inputs: layer(inputs["mel"], inputs["lengths"]),
        loss=lambda layer, inputs: tf.reduce_sum(layer(inputs["mel"], inputs["lengths"])[:, :, ::3]),
        out_length=None,
    ),
    LayerCase(
        name="gpt",
        build=built_gpt,
        inputs=gpt_inputs,
        run=lambda gpt, inputs: (
            gpt(
                inputs["latents"], inputs["text"], inputs["text_lengths"], inputs["codes"], inputs["lengths"]
            ).audio_logits_BTV
        ),
        loss=_gpt_loss,
        out_length=lambda length: length + 1,
    ),
]
