"""Gradients that are written out, against the ones that TensorFlow finds by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from myxtts.models.attention import (
    Dropout,
    attend,
    attend_causally,
    attention_probabilities,
    causal_windows,
)
from myxtts.models.gpt import GPT, token_losses
from myxtts.models.layers import (
    MASKED,
    Linear,
    dropout,
    dropout_scale,
    gelu_forward,
    gelu_linear,
    gelu_tanh,
    gradient_padding,
    group_norm,
    layer_norm,
    rms_norm,
)

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=shape).astype(np.float32))


def assert_same_gradients(
    written: Callable[..., tf.Tensor],
    plain: Callable[..., tf.Tensor],
    inputs: Sequence[tf.Tensor],
    *,
    atol: float = 1e-5,
) -> None:
    """Outputs and gradients of a weighted sum of them, both in a graph, where operations are reordered and merged."""
    weight = normal(*plain(*inputs).shape)

    def run(function: Callable[..., tf.Tensor]) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            made = function(*inputs)
            total = tf.reduce_sum(made * weight)
        return (made, *tape.gradient(total, inputs))

    for ours, theirs in zip(*(tf.function(run)(function) for function in (written, plain)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


def plain_attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, bias: tf.Tensor | None, kept: tf.Tensor | None = None
) -> tf.Tensor:
    probabilities = attention_probabilities(query, key, bias)
    return tf.matmul(probabilities if kept is None else tf.where(kept, probabilities, 0.0), value)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked: bool) -> None:
    qkv = [normal(2, 3, steps, 4) for steps in (5, 7, 7)]
    bias = tf.constant([0.0] * 5 + [MASKED] * 2)[None, None, None] if masked else None

    assert_same_gradients(lambda *x: attend(*x, bias), lambda *x: plain_attention(*x, bias), qkv)


@pytest.mark.parametrize("steps", [4, 11])
def test_causal_attention_in_windows(steps: int) -> None:
    qkv = [normal(2, 3, steps, 4) for _ in range(3)]
    text_mask = tf.constant([[True, True], [True, False]])
    bias = GPT.attention_bias(1, text_mask, steps - 3, tf.float32)

    assert_same_gradients(
        lambda *x: attend_causally(*x, causal_windows(bias)), lambda *x: plain_attention(*x, bias), qkv
    )


def test_attention_with_dropout() -> None:
    qkv = [normal(2, 3, 11, 4) for _ in range(3)]
    bias = GPT.attention_bias(1, tf.ones([2, 2], tf.bool), 8, tf.float32)
    dropped = Dropout(0.3, tf.constant([1, 2]), 3)
    kept = dropped.kept(tf.constant([2, 3, 11, 11]), 0)

    assert_same_gradients(
        lambda *x: attend_causally(*x, [bias], dropped),
        lambda *x: dropout_scale(0.3) * plain_attention(*x, bias, kept),
        qkv,
    )


def test_dropout() -> None:
    seed = tf.constant([1, 2])
    factor = dropout(tf.ones([6, 8]), 0.3, seed, 3)

    assert 0 < int(tf.math.count_nonzero(factor)) < 48
    assert_same_gradients(lambda x: dropout(x, 0.3, seed, 3), lambda x: x * factor, [normal(6, 8)])


@pytest.mark.parametrize("padded", [False, True])
def test_group_norm(padded: bool) -> None:
    weight = tf.constant([[1.0] * 5 + [0.0] * 2, [1.0] * 7])[..., None] if padded else None

    def plain(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        counted = tf.ones([2, 7, 1]) if weight is None else weight
        grouped = tf.reshape(x, [2, 7, 2, 4])
        count = tf.reduce_sum(counted[..., None], [1, 3], True) * 4
        mean = tf.reduce_sum(grouped * counted[..., None], [1, 3], True) / count
        variance = tf.reduce_sum(tf.square(grouped - mean) * counted[..., None], [1, 3], True) / count
        return tf.reshape((grouped - mean) / tf.sqrt(variance + 1e-5), [2, 7, 8]) * gamma + beta

    assert_same_gradients(
        lambda *x: group_norm(*x, weight, 2), plain, [normal(2, 7, 8) + 3.0, normal(8), normal(8)], atol=1e-4
    )


def built_linear(inputs: int, outputs: int) -> Linear:
    layer = Linear(inputs, outputs)
    layer.build()
    layer.bias.assign(normal(outputs))
    return layer


@pytest.mark.parametrize("shape", [(3, 1024), (1024, 3), (3, 5)])
def test_a_kernel_whose_rows_would_lie_4096_bytes_apart(shape: tuple[int, int]) -> None:
    layer = built_linear(*shape)

    assert gradient_padding(layer.kernel) == (1024 in shape)
    assert_same_gradients(
        lambda x, *_: layer(x),
        lambda x, kernel, bias: tf.tensordot(x, kernel, 1) + bias,
        [normal(2, 5, shape[0]), layer.kernel.value, layer.bias.value],
        atol=1e-4,
    )


@pytest.mark.parametrize("width", [6, 1024])
def test_a_product_of_gelu(width: int) -> None:
    layer = built_linear(width, 3)

    assert_same_gradients(
        lambda x, *_: gelu_linear(x, layer.kernel, layer.bias),
        lambda x, kernel, bias: tf.tensordot(gelu_forward(x), kernel, 1) + bias,
        [normal(2, 5, width), layer.kernel.value, layer.bias.value],
        atol=1e-4,
    )


def test_token_losses() -> None:
    targets = tf.constant([[0, 5, 2], [6, 6, 1]])
    sharp = tf.one_hot(targets, 7) * 200.0

    for logits in (normal(2, 3, 7) * 3.0, sharp, -sharp):
        assert_same_gradients(
            lambda x: token_losses(x, targets),
            lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(targets, x),
            [logits],
        )


@pytest.mark.parametrize("kind", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize(("name", "shape", "mean", "std"), [
    ("group", (1, 1034, 64), 0.0, 2.0),
    ("group", (1, 517, 64), 5.0, 1.0),
    ("layer", (4, 1024), 0.0, 300.0),
    ("rms", (2, 1024), 0.0, 9.0),
    ("rms", (2, 16), 0.0, 1e-5),
])  # fmt: skip
def test_norms_of_16_bits_are_those_of_32(
    kind: tf.DType, name: str, shape: tuple[int, ...], mean: float, std: float
) -> None:
    x, gamma, beta = mean + std * normal(*shape), tf.ones(shape[-1]), tf.zeros(shape[-1])
    norm: Callable[..., tf.Tensor] = {
        "group": lambda x, gamma, beta: group_norm(x, gamma, beta, None, 16),
        "layer": layer_norm,
        "rms": lambda x, gamma, beta: rms_norm(x, gamma),
    }[name]
    narrow = [tf.cast(tensor, kind) for tensor in (x, gamma, beta)]

    made = norm(*narrow)

    assert made.dtype == kind
    same = norm(*(tf.cast(tensor, tf.float32) for tensor in narrow))
    np.testing.assert_allclose(tf.cast(made, tf.float32), same, rtol=1e-2, atol=1e-3)


def test_gelu_has_a_gradient_in_16_bits_far_from_0() -> None:
    x = tf.constant([-300.0, -100.0, -70.0, -1.0, 1.0, 300.0], tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        made = gelu_tanh(x)

    np.testing.assert_allclose(tape.gradient(made, x), [0.0, 0.0, 0.0, -0.083, 1.083, 1.0], atol=1e-3)
