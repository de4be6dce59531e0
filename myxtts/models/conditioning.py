"""What the GPT knows of the voice: a reference mel becomes a fixed number of latent vectors.

Attention blocks read the mel at full time resolution, a perceiver resampler gathers what they found. As in
XTTS v2, a block's residual is its *normalised* input. Sizes: B batch, T mel frames, M mel bins, D width,
L latents, H heads.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from myxtts.audio.mel import N_MELS
from myxtts.config.model import ModelConfig
from myxtts.models.attention import attend
from myxtts.models.layers import (
    MASKED,
    GroupNorm,
    Linear,
    Module,
    RMSNorm,
    length_mask,
    merge_heads,
    normal,
    split_heads,
)

PERCEIVER_HEAD_WIDTH = 64


class MelAttention(Module):
    """One block of the conditioning encoder: group norm, attention over all frames, residual."""

    def __init__(self, width: int, heads: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.heads = heads
        self.norm = GroupNorm(width, name="norm")
        self.qkv = Linear(width, 3 * width, std=width**-0.5, name="qkv")
        # Starts as the identity, as in the original: the block adds nothing until it has learnt something.
        self.out = Linear(width, width, std=0.0, name="out")

    def call(self, x_BTD: tf.Tensor, mask_BT: tf.Tensor | None = None) -> tf.Tensor:
        unit_BTD = self.norm(x_BTD, mask_BT)
        query, key, value = (split_heads(part, self.heads) for part in tf.split(self.qkv(unit_BTD), 3, -1))
        return unit_BTD + self.out(merge_heads(attend(query, key, value, key_bias(mask_BT, x_BTD.dtype))))


class PerceiverLayer(Module):
    """Latents look at themselves and at the context, then a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        inner = heads * PERCEIVER_HEAD_WIDTH
        hidden = int(width * 4 * 2 / 3)
        self.heads = heads
        self.query = Linear(width, inner, bias=False, std=width**-0.5, name="query")
        self.key_value = Linear(width, 2 * inner, bias=False, std=width**-0.5, name="key_value")
        self.out = Linear(inner, width, bias=False, std=inner**-0.5, name="out")
        self.up = Linear(width, 2 * hidden, std=width**-0.5, name="up")
        self.down = Linear(hidden, width, std=hidden**-0.5, name="down")

    def call(self, latents_BLD: tf.Tensor, context_BTD: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        everything = tf.concat([latents_BLD, context_BTD], 1)
        key, value = (split_heads(part, self.heads) for part in tf.split(self.key_value(everything), 2, -1))
        found = attend(split_heads(self.query(latents_BLD), self.heads), key, value, bias)
        latents_BLD = latents_BLD + self.out(merge_heads(found))
        value_BLF, gate_BLF = tf.split(self.up(latents_BLD), 2, -1)
        return latents_BLD + self.down(value_BLF * tf.nn.gelu(gate_BLF, approximate=False))


class Conditioning(Module):
    """mel_BTM -> latents_BLD; frames beyond `mel_lengths_B` change nothing."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "conditioning", **keras_options})
        width = config.gpt_width
        self.project = Linear(N_MELS, width, std=N_MELS**-0.5, name="project")
        self.blocks = [
            MelAttention(width, config.gpt_heads, name=f"block_{index + 1}")
            for index in range(config.conditioning_layers)
        ]
        self.declare("latents", (config.conditioning_latents, width), normal(0.02))
        self.perceiver = [
            PerceiverLayer(width, config.perceiver_heads, name=f"perceiver_{index + 1}")
            for index in range(config.perceiver_layers)
        ]
        self.norm = RMSNorm(width, name="norm")

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor | None = None) -> tf.Tensor:
        mask_BT = None if mel_lengths_B is None else length_mask(mel_lengths_B, tf.shape(mel_BTM)[1])
        context_BTD = self.project(tf.cast(mel_BTM, self.compute_dtype))
        for block in self.blocks:
            context_BTD = block(context_BTD, mask_BT)
        table_LD = tf.convert_to_tensor(self.latents)
        batch = tf.shape(mel_BTM)[0]
        latents_BLD = tf.broadcast_to(table_LD[None], [batch, table_LD.shape[0], table_LD.shape[1]])
        if mask_BT is not None:
            mask_BT = tf.concat([tf.ones([batch, table_LD.shape[0]], tf.bool), mask_BT], 1)
        bias = key_bias(mask_BT, context_BTD.dtype)
        for layer in self.perceiver:
            latents_BLD = layer(latents_BLD, context_BTD, bias)
        return self.norm(latents_BLD)


def key_bias(mask_BT: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor | None:
    """0 for keys that count and a large negative number for others, ready to be added to scores."""
    if mask_BT is None:
        return None
    return tf.where(mask_BT, tf.zeros([], dtype), tf.cast(MASKED, dtype))[:, None, None, :]
