"""What an aligner hears in made speech, as the codec learns from it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from myxtts.models.aligner import CTCNetwork, ctc_perceptual_loss, seeded


@pytest.fixture(scope="module")
def network() -> CTCNetwork:
    return seeded(CTCNetwork(5, width=16, blocks=3), 0)


def mels(frames: int, clips: int = 2) -> tf.Tensor:
    return tf.constant(np.random.default_rng(frames).normal(-5.0, 2.0, (clips, frames, 80)).astype(np.float32))


def loss_of(network: CTCNetwork, made: tf.Tensor, real: tf.Tensor, lengths: list[int]) -> float:
    return float(ctc_perceptual_loss(network, made, real, tf.constant(lengths)))


def test_the_same_speech_is_heard_the_same_and_a_louder_one_is_not(network: CTCNetwork) -> None:
    real = mels(20)

    assert loss_of(network, real, real, [20, 20]) == 0.0
    assert 0.0 < loss_of(network, real + 0.1, real, [20, 20]) < loss_of(network, real + 1.0, real, [20, 20])


def test_two_parts_of_a_batch_weighed_by_their_frames_give_the_whole_whatever_lies_behind_a_clip(
    network: CTCNetwork,
) -> None:
    real, made = mels(20), mels(20) + mels(21)[:, :20] * 0.2
    behind = tf.concat([tf.zeros([1, 12, 80]), tf.ones([1, 8, 80])], 1)

    whole = loss_of(network, made, real, [20, 12])
    first = loss_of(network, made[:1], real[:1], [20])
    second = loss_of(network, made[1:] + 7.0 * behind, real[1:] - 3.0 * behind, [12])

    assert whole == pytest.approx((10 * first + 6 * second) / 16, rel=1e-5)


def test_the_gradient_reaches_every_clip_and_is_finite_behind_a_short_one(network: CTCNetwork) -> None:
    real, made = mels(20), mels(20) * 0.9
    with tf.GradientTape() as tape:
        tape.watch(made)
        loss = ctc_perceptual_loss(network, made, real, tf.constant([20, 8]))

    slope = tape.gradient(loss, made).numpy()

    assert np.isfinite(slope).all()
    assert np.abs(slope[0]).max() > 0.0
    assert np.abs(slope[1, :8]).max() > 0.0
    assert np.abs(slope[1, 8:]).max() == 0.0
