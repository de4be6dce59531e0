"""One new position of the GPT on a cache of keys and values: `Block.call` for a row, in few operations.

A row's matrix products read every weight once and take a millisecond at the small size; as long again goes into
starting operations, so each one that can be left out counts. Weights are read before the loop and handed in. Sizes in
names: B batch, C cache positions, D width, H heads, d head width, V audio vocabulary, R rows of a layer's cache: one
for every (key or value, batch row, head, position).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.models.gpt import GPT, Block
from myxtts.models.layers import MASKED, LayerNorm, Linear, gelu_forward, normalised

Pair = tuple[tf.Tensor, tf.Tensor]
"""Gamma and beta of a norm, or kernel and *negative* bias of a product: TensorFlow would make one operation of a
product and a sum, slower for a single row than the two. A difference it leaves alone."""


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
    """Where a step writes in the caches and where it may look, worked out once for all layers."""

    rows: tf.Tensor
    """Cache rows of the new position, in the order in which a step makes them: batch row, key or value, head."""
    cache_shape: tf.Tensor
    heads: int
    blocked_B11C: tf.Tensor
    """0 where the step may look and large where not."""


def read_weights(gpt: GPT) -> StepWeights:
    """The weights as they are now, float32 whatever the GPT computes in."""
    read = tf.convert_to_tensor

    def dense(layer: Linear) -> Pair:
        return read(layer.kernel), -read(layer.bias)

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

    kernel_DV, minus_bias_V = dense(gpt.audio_head)
    # The start token is no code: nothing could decode it.
    never_V = tf.one_hot(gpt.audio_start, gpt.audio_vocab, -MASKED)
    return StepWeights(
        embedding=read(gpt.audio_embedding.table),
        position=read(gpt.audio_position.table),
        blocks=tuple(block_weights(block) for block in gpt.blocks),
        last_norm=norm(gpt.last_norm),
        head_norm=norm(gpt.head_norm),
        head=(kernel_DV, minus_bias_V + never_V),
    )


def predict(hidden_BD: tf.Tensor, weights: StepWeights) -> tf.Tensor:
    """Logits of the next code, [B, V]."""
    return _product(hidden_BD, *weights.head)


def block_step(
    weights: BlockWeights, x_BD: tf.Tensor, cache_Rd: tf.Tensor, place: Place
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`Block.call` for one position: x, the cache with that position in it, and where the queries look."""
    width = x_BD.shape[-1]
    head_width = width // place.heads
    qkv_BE = _product(normalised(x_BD, *weights.attention_norm), *weights.qkv)
    query_BD, new_BE = tf.split(qkv_BE, [width, 2 * width], 1)
    query_BH1d = tf.reshape(query_BD * head_width**-0.5, [-1, place.heads, 1, head_width])
    cache_Rd = _written(cache_Rd, place, tf.reshape(new_BE, [-1, head_width]))
    cache_2BHCd = tf.reshape(cache_Rd, place.cache_shape)
    cache_2BHCd.set_shape([2, None, place.heads, None, head_width])
    keys_BHCd, values_BHCd = tf.unstack(cache_2BHCd)
    probabilities = tf.nn.softmax(tf.matmul(query_BH1d, keys_BHCd, transpose_b=True) - place.blocked_B11C)
    found_BD = tf.reshape(tf.matmul(probabilities, values_BHCd), [-1, width])
    x_BD += _product(found_BD, *weights.attention_out)
    fed = gelu_forward(_product(normalised(x_BD, *weights.feed_norm), *weights.up))
    return x_BD + _product(fed, *weights.down), cache_Rd, probabilities


def _product(x_BD: tf.Tensor, kernel_DE: tf.Tensor, minus_bias_E: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x_BD, kernel_DE) - minus_bias_E


def _written(cache_Rd: tf.Tensor, place: Place, new_rows: tf.Tensor) -> tf.Tensor:
    """The same buffer with one position changed: TensorFlow's scatter would copy the cache at every step.

    Safe because nothing else holds the buffer: growing the cache made it, and what reads it comes before the next
    write.
    """
    return tf.raw_ops.InplaceUpdate(x=cache_Rd, i=place.rows, v=new_rows)


def cache_of(key_BHCd: tf.Tensor, value_BHCd: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.stack([key_BHCd, value_BHCd]), [-1, key_BHCd.shape[-1]])


def cache_shape(gpt: GPT, blocked_BC: tf.Tensor) -> tf.Tensor:
    """[2, B, H, C, d]: what the rows of a cache are."""
    batch, capacity = tf.unstack(tf.shape(blocked_BC))
    heads = gpt.config.gpt_heads
    return tf.stack([2, batch, heads, capacity, gpt.config.gpt_width // heads])


def grown_cache(cache_Rd: tf.Tensor, shape: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    """A copy of the cache with room for `by` more positions."""
    padded = tf.pad(tf.reshape(cache_Rd, shape), [[0, 0], [0, 0], [0, 0], [0, by], [0, 0]])
    return tf.reshape(padded, [-1, cache_Rd.shape[-1]])


class Room(NamedTuple):
    """What the places of several steps share: all that does not change until the caches grow again."""

    first_step: tf.Tensor
    first_rows: tf.Tensor
    """Cache rows of the first step's position."""
    cache_shape: tf.Tensor
    heads: int
    blocked_B11C: tf.Tensor
    later_NC: tf.Tensor
    """Large at the positions behind each step's own, which have not been written."""

    def at(self, step: tf.Tensor) -> Place:
        number = step - self.first_step
        blocked_B11C = self.blocked_B11C + tf.gather(self.later_NC, number)
        return Place(self.first_rows + number, self.cache_shape, self.heads, blocked_B11C)


def room_of(gpt: GPT, blocked_BC: tf.Tensor, first_step: tf.Tensor, steps: tf.Tensor) -> Room:
    """Room for steps that write the last positions of the caches; `blocked` is large at the padding of the prompt."""
    heads = gpt.config.gpt_heads
    batch, capacity = tf.unstack(tf.shape(blocked_BC))
    position_N = tf.range(capacity - steps, capacity)
    part_B21 = tf.range(2)[:, None] * batch + tf.range(batch)[:, None, None]
    rows_B2H = (part_B21 * heads + tf.range(heads)) * capacity
    return Room(
        first_step=first_step,
        first_rows=tf.reshape(rows_B2H, [-1]) + (capacity - steps),
        cache_shape=cache_shape(gpt, blocked_BC),
        heads=heads,
        blocked_B11C=blocked_BC[:, None, None],
        later_NC=tf.where(tf.range(capacity) > position_N[:, None], tf.cast(-MASKED, blocked_BC.dtype), 0),
    )
