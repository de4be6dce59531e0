"""One new position of the GPT on a cache of keys and values: `Block.call` for a row, in few operations.

A row's matrix products read every weight once and take a millisecond at the small size; as long again goes into
starting operations, so each one that can be left out counts. Weights are read before the loop and handed in. Sizes in
names: B batch, C cache positions, D width, H heads, d head width, V audio vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.models.gpt import GPT, Block
from myxtts.models.layers import LayerNorm, Linear, gelu_forward, linear, normalised

Pair = tuple[tf.Tensor, tf.Tensor]
"""Kernel and bias of a product, or gamma and beta of a norm."""


class BlockWeights(NamedTuple):
    attention_norm: Pair
    qkv: Pair
    attention_out: Pair
    feed_norm: Pair
    up: Pair
    down: Pair


class StepWeights(NamedTuple):
    """All that a step multiplies with."""

    embedding: tf.Tensor
    position: tf.Tensor
    blocks: tuple[BlockWeights, ...]
    last_norm: Pair
    head_norm: Pair
    head: Pair


class Place(NamedTuple):
    """Where a step writes in the cache, worked out once for all layers."""

    rows: tf.Tensor
    """Rows of one position, for every batch row and head, in a cache seen as [B * H * C, d]."""
    cache_shape: tf.Tensor
    heads: int


def read_weights(gpt: GPT) -> StepWeights:
    """The weights as they are now, in the type that the GPT computes in."""

    def read(variable: Any) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(variable), gpt.compute_dtype)

    def dense(layer: Linear) -> Pair:
        return read(layer.kernel), read(layer.bias)

    def norm(layer: LayerNorm) -> Pair:
        return read(layer.gamma), read(layer.beta)

    def block_weights(block: Block) -> BlockWeights:
        return BlockWeights(
            attention_norm=norm(block.attention_norm),
            qkv=dense(block.qkv),
            attention_out=dense(block.attention_out),
            feed_norm=norm(block.feed_norm),
            up=dense(block.up),
            down=dense(block.down),
        )

    return StepWeights(
        embedding=read(gpt.audio_embedding.table),
        position=read(gpt.audio_position.table),
        blocks=tuple(block_weights(block) for block in gpt.blocks),
        last_norm=norm(gpt.last_norm),
        head_norm=norm(gpt.head_norm),
        head=dense(gpt.audio_head),
    )


def predict(hidden_BD: tf.Tensor, weights: StepWeights) -> tf.Tensor:
    """Logits of the next code, [B, V]."""
    return tf.cast(linear(hidden_BD, *weights.head), tf.float32)


def block_step(
    weights: BlockWeights,
    x_BD: tf.Tensor,
    keys_BHCd: tf.Tensor,
    values_BHCd: tf.Tensor,
    place: Place,
    blocked_B11C: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """`Block.call` for one position; `blocked` is 0 where it may look and large where not."""
    width = x_BD.shape[-1] // place.heads
    qkv = tf.reshape(linear(normalised(x_BD, *weights.attention_norm), *weights.qkv), [-1, 3, place.heads, width])
    query, key, value = tf.unstack(qkv, 3, axis=1)
    keys_BHCd = _written(keys_BHCd, place, key)
    values_BHCd = _written(values_BHCd, place, value)
    # Subtracted, not added: a sum would become one operation with the product, which is slower for a single query.
    scores = tf.matmul(query[:, :, None] * width**-0.5, keys_BHCd, transpose_b=True) - blocked_B11C
    probabilities = tf.nn.softmax(scores)
    found_BD = tf.reshape(tf.matmul(probabilities, values_BHCd), [-1, x_BD.shape[-1]])
    x_BD = _added(x_BD, found_BD, *weights.attention_out)
    fed = gelu_forward(linear(normalised(x_BD, *weights.feed_norm), *weights.up))
    return _added(x_BD, fed, *weights.down), keys_BHCd, values_BHCd, probabilities


def _added(x_BD: tf.Tensor, y_BE: tf.Tensor, kernel_ED: tf.Tensor, bias_D: tf.Tensor) -> tf.Tensor:
    """x + y @ kernel + bias. The bias joins x first, or the product would become a slower one with a bias."""
    return (x_BD + bias_D) + tf.matmul(y_BE, kernel_ED)


def place_of(batch: tf.Tensor, heads: int, capacity: tf.Tensor, width: int, position: tf.Tensor) -> Place:
    rows = tf.range(batch * heads) * capacity + position
    return Place(rows, tf.stack([batch, heads, capacity, width]), heads)


def _written(cache_BHCd: tf.Tensor, place: Place, new_BHd: tf.Tensor) -> tf.Tensor:
    """The same buffer with one position changed: TensorFlow's scatter would copy the cache at every step.

    Safe because nothing else holds the buffer: growing the cache made it, and what reads it comes before the next
    write.
    """
    width = cache_BHCd.shape[-1]
    flat = tf.reshape(cache_BHCd, [-1, width])
    flat = tf.raw_ops.InplaceUpdate(x=flat, i=place.rows, v=tf.reshape(new_BHd, [-1, width]))
    written = tf.reshape(flat, place.cache_shape)
    written.set_shape([None, cache_BHCd.shape[1], None, width])
    return written
