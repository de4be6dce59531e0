"""`fast_conv` and `plain_conv` give what `tf.nn.conv2d` gives, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from myxtts.models.fast_conv import fast_conv, pays, plain_conv

RANDOM = np.random.default_rng(3)


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=shape).astype(np.float32))


def expected(x: tf.Tensor, kernel: tf.Tensor, dilation: int) -> np.ndarray:
    return tf.nn.conv2d(x, kernel, 1, "SAME", dilations=dilation).numpy()


@pytest.mark.parametrize("taps", [3, 7, 11])
@pytest.mark.parametrize("dilation", [1, 3, 5])
@pytest.mark.parametrize("time", [1, 4, 57])
def test_fast_convolutions_agree_with_tensorflow_whatever_the_length(taps: int, dilation: int, time: int) -> None:
    x, kernel = normal(2, 1, time, 24), normal(1, taps, 24, 16) / (24 * taps) ** 0.5

    made = fast_conv(x, kernel, dilation).numpy()

    np.testing.assert_allclose(made, expected(x, kernel, dilation), atol=5e-5)


def test_a_clip_in_a_batch_is_convolved_as_if_alone() -> None:
    x, kernel = normal(3, 1, 33, 24), normal(1, 11, 24, 24)

    np.testing.assert_allclose(fast_conv(x, kernel, 3)[1:2], fast_conv(x[1:2], kernel, 3), atol=2e-4)


def test_plain_convolutions_agree_with_tensorflow() -> None:
    x, kernel = normal(2, 1, 57, 24), normal(1, 7, 24, 16)

    np.testing.assert_allclose(plain_conv(x, kernel, "SAME", 3), expected(x, kernel, 3), atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "taps", "faster"), [(256, 11, True), (128, 7, True), (64, 11, True), (64, 7, False), (256, 3, False)]
)
def test_only_convolutions_with_work_to_save_are_done_the_fast_way(channels: int, taps: int, faster: bool) -> None:
    assert pays(tf.zeros([1, taps, channels, channels])) == faster
