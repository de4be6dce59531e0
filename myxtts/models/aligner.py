"""Which token is spoken when: a small CTC network over mels. The paths through its posteriors are `ctc_paths`.

The network and its training know labels only (0 to `labels` - 1, blank behind them); what a label means, the caller
decides. Sizes in names: B batch, T mel frames, F frames of the network (one for `FRAMES_PER_STEP` mel frames), M mel
bins, K labels, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.audio.mel import N_MELS
from myxtts.models.layers import LayerNorm, Linear, Module, float32_layers, length_mask, linear
from myxtts.models.numpy_aligner import FRAMES_PER_STEP, KERNEL_WIDTH, MEL_STD


class Labelled(NamedTuple):
    """A batch to learn from."""

    mel_BTM: Any
    mel_lengths_B: Any
    labels: Sequence[NDArray[np.int32]]
    """For every clip its labels in order."""


class ContextBlock(Module):
    """Norm, convolution over time, ReLU, residual."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.norm = LayerNorm(width, name="norm")
        self.mix = Linear(KERNEL_WIDTH * width, width, std=(2.0 / (KERNEL_WIDTH * width)) ** 0.5, name="mix")

    def call(self, x_BFD: tf.Tensor, mask_BF1: tf.Tensor) -> tf.Tensor:
        return x_BFD + tf.nn.relu(convolve(self.norm(x_BFD) * mask_BF1, self.mix, stride=1))


class CTCNetwork(Module):
    """mel_BTM -> logits_BFK in float32, as TensorFlow's CTC loss is; frames beyond a clip's end change nothing."""

    def __init__(self, labels: int, *, width: int = 128, blocks: int = 4, **keras_options: Any) -> None:
        with float32_layers():
            super().__init__(**{"name": "aligner", **keras_options})
            self.labels = labels
            self.blank = labels
            fan_in = KERNEL_WIDTH * N_MELS
            self.into = Linear(fan_in, width, std=(2.0 / fan_in) ** 0.5, name="into")
            self.blocks = [ContextBlock(width, name=f"block_{index + 1}") for index in range(blocks)]
            self.norm = LayerNorm(width, name="norm")
            self.head = Linear(width, labels + 1, std=width**-0.5, name="head")

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
        hidden_BFD = self.hidden(mel_BTM, mel_lengths_B, mean_frame(mel_BTM, mel_lengths_B))[-1]
        return self.head(self.norm(hidden_BFD))

    def hidden(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor, mean_B1M: tf.Tensor) -> list[tf.Tensor]:
        """The output of each block, [B, F, D]. A clip's mean is its voice and its microphone, no phone."""
        mask_BT1 = _mask(mel_lengths_B, mel_BTM)
        x = tf.nn.relu(convolve((mel_BTM - mean_B1M) / MEL_STD * mask_BT1, self.into, stride=FRAMES_PER_STEP))
        mask_BF1 = _mask(steps_of(mel_lengths_B), x)
        outputs = []
        for block in self.blocks:
            x = block(x, mask_BF1)
            outputs.append(x)
        return outputs


def mean_frame(mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
    """The mean of every clip's own frames, [B, 1, M]."""
    mask_BT1 = _mask(mel_lengths_B, mel_BTM)
    frames_B11 = tf.maximum(tf.reduce_sum(mask_BT1, 1, keepdims=True), 1.0)
    return tf.reduce_sum(mel_BTM * mask_BT1, 1, keepdims=True) / frames_B11


def ctc_perceptual_loss(
    network: CTCNetwork, made_BTM: tf.Tensor, real_BTM: tf.Tensor, lengths_B: tf.Tensor
) -> tf.Tensor:
    """L1 between the features that the network finds in generated and in real speech, relative to the latter.

    A mean over frames, so that parts of a batch add up. The first block is left out: it reacts to pitch and noise too.
    """
    mean_B1M = mean_frame(real_BTM, lengths_B)
    real, made = (network.hidden(mel, lengths_B, mean_B1M)[1:] for mel in (real_BTM, made_BTM))
    shares_BF1 = []
    for real_BFD, made_BFD in zip(real, made, strict=True):
        wanted_BFD = tf.stop_gradient(real_BFD)
        missed_BF1 = tf.reduce_mean(tf.abs(made_BFD - wanted_BFD), -1, keepdims=True)
        shares_BF1.append(tf.math.divide_no_nan(missed_BF1, tf.reduce_mean(tf.abs(wanted_BFD), -1, keepdims=True)))
    mask_BF1 = _mask(steps_of(lengths_B), shares_BF1[0])
    return tf.reduce_sum(tf.add_n(shares_BF1) / len(shares_BF1) * mask_BF1) / tf.reduce_sum(mask_BF1)


def convolve(x_BTD: tf.Tensor, mix: Linear, *, stride: int) -> tf.Tensor:
    """A convolution as one matrix product over shifted copies, `ceil(T / stride)` outputs.

    `stride` neighbours are one row, so that the copies are slices without a step: the gradient of those is a padding,
    of the others TensorFlow's slowest operation here.
    """
    half, width = KERNEL_WIDTH // 2, x_BTD.shape[2]
    outputs = -(-tf.shape(x_BTD)[1] // stride)
    reach = -(-(KERNEL_WIDTH - 1) // stride)  # rows beyond its own that an output sees
    behind = (outputs + reach) * stride - half - tf.shape(x_BTD)[1]
    padded = tf.pad(x_BTD, [[0, 0], [half, behind], [0, 0]])
    rows = tf.reshape(padded, [tf.shape(x_BTD)[0], outputs + reach, stride * width])
    taps = range(0, KERNEL_WIDTH, stride)
    shifted = [
        tf.slice(rows, [0, at // stride, 0], [-1, outputs, min(stride, KERNEL_WIDTH - at) * width]) for at in taps
    ]
    return linear(tf.concat(shifted, -1), mix.kernel, mix.bias)


def _mask(lengths_B: tf.Tensor, like_BTD: tf.Tensor) -> tf.Tensor:
    return tf.cast(length_mask(lengths_B, tf.shape(like_BTD)[1]), tf.float32)[:, :, None]


def steps_of(mel_lengths: Any) -> Any:
    """Frames of the network for so many mel frames."""
    return (mel_lengths + FRAMES_PER_STEP - 1) // FRAMES_PER_STEP


def fit(network: CTCNetwork, batches: Iterator[Labelled], *, steps: int, learning_rate: float = 2e-3) -> list[float]:
    """Train for so many batches, or while there are any, with a cosine that ends at a twentieth; each step's loss."""
    schedule = keras.optimizers.schedules.CosineDecay(
        learning_rate / 20,
        max(1, steps - steps // 10),
        alpha=0.05,
        warmup_target=learning_rate,
        warmup_steps=max(1, steps // 10),
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=5.0)
    optimizer.build(network.trainable_variables)

    def learn(mel_BTM: Any, lengths_B: Any, indices: Any, values: Any, shape: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits_FBK = tf.transpose(network(mel_BTM, lengths_B), [1, 0, 2])
            with tf.device("/CPU:0"):  # which alone has a kernel for it
                losses_B = tf.compat.v1.nn.ctc_loss(
                    tf.SparseTensor(indices, values, shape),
                    logits_FBK,
                    tf.cast(steps_of(lengths_B), tf.int32),
                    ignore_longer_outputs_than_inputs=True,
                )
            loss = tf.reduce_sum(losses_B) / tf.maximum(tf.cast(tf.size(values), tf.float32), 1.0)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    compiled = tf.function(learn, autograph=False, reduce_retracing=True)
    return [float(compiled(mel, lengths, *_sparse(labels))) for mel, lengths, labels in islice(batches, steps)]


def _sparse(labels: Sequence[NDArray[np.int32]]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    lengths = [len(row) for row in labels]
    rows = np.repeat(np.arange(len(labels)), lengths)
    columns = np.concatenate([np.arange(length) for length in lengths])
    values = np.concatenate(labels).astype(np.int32)
    shape = np.array([len(labels), max(1, *lengths)], np.int64)
    return tf.constant(np.stack([rows, columns], 1), tf.int64), tf.constant(values), tf.constant(shape)


def seeded(network: CTCNetwork, seed: int) -> CTCNetwork:
    """Build it with weights that depend on the seed alone."""
    network.build()
    random = np.random.default_rng(seed)
    for variable in network.trainable_variables:
        if len(variable.shape) == 2:
            std = math.sqrt((1.0 if "head" in variable.path else 2.0) / variable.shape[0])
            variable.assign(random.normal(0.0, std, variable.shape).astype(np.float32))
    return network
