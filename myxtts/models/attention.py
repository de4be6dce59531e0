"""Attention with its gradient written out, over windows of queries so that a causal one skips what nobody may see.

TensorFlow's own gradient of a softmax passes five times over the scores, the largest tensors of a step, and keeps what
dropout left of them as a copy. Sizes in names: B batch, H heads, Q queries, K keys, S sequence, d head width.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.models.layers import dropout_mask, dropout_scale

CAUSAL_WINDOWS = 3
"""A causal sequence in 3 windows needs two thirds of the products; more windows save little more and are small."""


class Dropout(NamedTuple):
    """The share of probabilities that is dropped, decided by (seed, site) alone."""

    rate: float
    seed: tf.Tensor | None
    site: int

    def kept(self, shape: tf.Tensor, window: int) -> tf.Tensor | None:
        if self.seed is None:
            return None
        seed = tf.random.experimental.stateless_fold_in(self.seed, window)
        return dropout_mask(shape, self.rate, seed, self.site)

    @property
    def scale(self) -> float:
        return 1.0 if self.seed is None else dropout_scale(self.rate)


class Window(NamedTuple):
    """Queries from `first` to `last`, the keys before `last`, and what is added to their scores; None for all."""

    bias: tf.Tensor | None
    first: tf.Tensor | None
    last: tf.Tensor | None

    def of(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return query[:, :, self.first : self.last], key[:, :, : self.last], value[:, :, : self.last]


NO_DROPOUT = Dropout(0.0, None, 0)


def causal_windows(bias_B1SS: tf.Tensor) -> list[tf.Tensor]:
    """The parts of a bias that forbids every later key: [B, 1, Q, K] for Q queries and the K keys up to the last."""
    size = tf.shape(bias_B1SS)[2]
    edges = [size * number // CAUSAL_WINDOWS for number in range(CAUSAL_WINDOWS + 1)]
    return [bias_B1SS[:, :, first:last, :last] for first, last in itertools.pairwise(edges)]


def attend(query_BHQd: tf.Tensor, key_BHKd: tf.Tensor, value_BHKd: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """softmax(q k / sqrt d + bias) v: every query sees every key that the bias allows."""
    return _attended(query_BHQd, key_BHKd, value_BHKd, [Window(bias, None, None)], NO_DROPOUT)


def attend_causally(
    query_BHSd: tf.Tensor,
    key_BHSd: tf.Tensor,
    value_BHSd: tf.Tensor,
    windows_B1QK: Sequence[tf.Tensor],
    dropped: Dropout = NO_DROPOUT,
) -> tf.Tensor:
    """The same with `causal_windows`, and dropout of the probabilities."""
    windows = [Window(bias, tf.shape(bias)[3] - tf.shape(bias)[2], tf.shape(bias)[3]) for bias in windows_B1QK]
    return _attended(query_BHSd, key_BHSd, value_BHSd, windows, dropped)


def attention_probabilities(query: tf.Tensor, key: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """Where queries look, [..., Q, K]."""
    scale = query.shape[-1] ** -0.5
    if bias is None:
        return tf.nn.softmax(tf.matmul(query * scale, key, transpose_b=True))
    # TensorFlow makes one operation of a product, a scale and a bias.
    return tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * scale + bias)


def _attended(
    query_BHQd: tf.Tensor,
    key_BHKd: tf.Tensor,
    value_BHKd: tf.Tensor,
    windows: Sequence[Window],
    dropped: Dropout,
) -> tf.Tensor:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def attention(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> Any:
        seen = []
        for number, window in enumerate(windows):
            own_query, own_key, own_value = window.of(query, key, value)
            probabilities = attention_probabilities(own_query, own_key, window.bias)
            kept = dropped.kept(tf.shape(probabilities), number)
            seen.append((probabilities, kept, tf.matmul(_thinned(probabilities, kept), own_value)))
        found = _joined([found for _, _, found in seen])

        def gradient(d_found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # Without this TensorFlow thins and slices while it goes forward, and remembers the copies.
            with tf.control_dependencies([d_found]):
                return backward(d_found)

        def backward(d_found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            d_queries, d_keys, d_values = [], [], []
            scale = query.shape[-1] ** -0.5
            for window, (probabilities, kept, own_found) in zip(windows, seen, strict=True):
                own_query, own_key, own_value = window.of(query, key, value)
                own_d_found = d_found[:, :, window.first : window.last]
                d_values.append(tf.matmul(_thinned(probabilities, kept), own_d_found, transpose_a=True))
                d_probabilities = _thinned(tf.matmul(own_d_found, own_value, transpose_b=True), kept)
                # The sum of probabilities times their gradients, from d numbers a query instead of K.
                along = tf.reduce_sum(own_d_found * own_found, -1, keepdims=True)
                d_scores = (d_probabilities - along) * probabilities
                d_queries.append(tf.matmul(d_scores, own_key))
                d_keys.append(tf.matmul(d_scores, own_query, transpose_a=True))
            return _joined(d_queries) * scale, _summed(d_keys) * scale, _summed(d_values)

        return found, gradient

    # What dropout keeps must grow; the values are the smallest place to do it.
    return attention(query_BHQd, key_BHKd, value_BHKd * dropped.scale if dropped.scale != 1.0 else value_BHKd)


def _thinned(x: tf.Tensor, kept: tf.Tensor | None) -> tf.Tensor:
    return x if kept is None else tf.where(kept, x, tf.zeros([], x.dtype))


def _joined(windows_BHQd: list[tf.Tensor]) -> tf.Tensor:
    return windows_BHQd[0] if len(windows_BHQd) == 1 else tf.concat(windows_BHQd, 2)


def _summed(windows_BHKd: list[tf.Tensor]) -> tf.Tensor:
    """Later windows have more keys: each stretch of keys gets the sum over the windows that see it."""
    total = windows_BHKd[0]
    for longer in windows_BHKd[1:]:
        seen_before = tf.shape(total)[2]
        total = tf.concat([longer[:, :, :seen_before] + total, longer[:, :, seen_before:]], 2)
    return total
