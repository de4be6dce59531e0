"""Which token is spoken when: a small CTC network over mels, and the best monotone path through its posteriors.

The network and its training know labels only (0 to `labels` - 1, blank behind them); what a label means, the caller
decides. `forced_paths` and `spread_blanks` are numpy and pure. Sizes in names: B batch, T mel frames, F frames of the
network (one for `FRAMES_PER_STEP` mel frames), M mel bins, K labels, S states of a path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.models.layers import LayerNorm, Linear, Part, length_mask, linear

MEL_BINS = 80
FRAMES_PER_STEP = 2
"""43 steps a second: at the codes' own 21.5, fast speech has more tokens than steps, and CTC no path."""
KERNEL_WIDTH = 5
_SPREAD = 2.0
"""About the standard deviation of a log mel around its clip's mean."""
_IMPOSSIBLE = -1e30


class Labelled(NamedTuple):
    """A batch to learn from."""

    mel_BTM: Any
    mel_lengths_B: Any
    labels: Sequence[NDArray[np.int32]]
    """For every clip its labels in order."""


class ContextBlock(Part):
    """Norm, convolution over time, ReLU, residual."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.norm = LayerNorm(width, name="norm")
        self.mix = Linear(KERNEL_WIDTH * width, width, std=(2.0 / (KERNEL_WIDTH * width)) ** 0.5, name="mix")

    def call(self, x_BFD: tf.Tensor, mask_BF1: tf.Tensor) -> tf.Tensor:
        return x_BFD + tf.nn.relu(convolve(self.norm(x_BFD) * mask_BF1, self.mix, stride=1))


class CTCNetwork(Part):
    """mel_BTM -> logits_BFK; frames beyond a clip's end change nothing."""

    def __init__(self, labels: int, *, width: int = 128, blocks: int = 4, **keras_options: Any) -> None:
        super().__init__(**{"name": "aligner", "dtype": "float32", **keras_options})
        self.labels = labels
        self.blank = labels
        fan_in = KERNEL_WIDTH * MEL_BINS
        self.into = Linear(fan_in, width, std=(2.0 / fan_in) ** 0.5, name="into")
        self.blocks = [ContextBlock(width, name=f"block_{index + 1}") for index in range(blocks)]
        self.norm = LayerNorm(width, name="norm")
        self.head = Linear(width, labels + 1, std=width**-0.5, name="head")

    def call(self, mel_BTM: tf.Tensor, mel_lengths_B: tf.Tensor) -> tf.Tensor:
        mask_BT1 = tf.cast(length_mask(mel_lengths_B, tf.shape(mel_BTM)[1]), tf.float32)[:, :, None]
        frames = tf.maximum(tf.reduce_sum(mask_BT1, 1, keepdims=True), 1.0)
        # A clip's mean is its voice and its microphone, neither of which is a phone.
        mean_B1M = tf.reduce_sum(mel_BTM * mask_BT1, 1, keepdims=True) / frames
        x = tf.nn.relu(convolve((mel_BTM - mean_B1M) / _SPREAD * mask_BT1, self.into, stride=FRAMES_PER_STEP))
        mask_BF1 = tf.cast(length_mask(steps_of(mel_lengths_B), tf.shape(x)[1]), tf.float32)[:, :, None]
        for block in self.blocks:
            x = block(x, mask_BF1)
        return self.head(self.norm(x))


def convolve(x_BTD: tf.Tensor, mix: Linear, *, stride: int) -> tf.Tensor:
    """A convolution as one matrix product over shifted copies, `ceil(T / stride)` outputs."""
    half = KERNEL_WIDTH // 2
    frames = tf.shape(x_BTD)[1]
    padded = tf.pad(x_BTD, [[0, 0], [half, half + stride], [0, 0]])
    shifted = [padded[:, at : at + frames : stride] for at in range(KERNEL_WIDTH)]
    return linear(tf.concat(shifted, -1), mix.kernel, mix.bias)


def steps_of(mel_lengths: Any) -> Any:
    """Frames of the network for so many mel frames."""
    return (mel_lengths + FRAMES_PER_STEP - 1) // FRAMES_PER_STEP


def fit(network: CTCNetwork, batches: Iterator[Labelled], *, steps: int, learning_rate: float = 2e-3) -> list[float]:
    """Train for so many batches with a cosine that ends at a twentieth; the loss per label of every step."""
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
    return [float(compiled(mel, lengths, *_sparse(labels))) for mel, lengths, labels in _first(batches, steps)]


def _first(batches: Iterator[Labelled], count: int) -> Iterator[Labelled]:
    for _ in range(count):
        yield next(batches)


def _sparse(labels: Sequence[NDArray[np.int32]]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    lengths = [len(row) for row in labels]
    rows = np.repeat(np.arange(len(labels)), lengths)
    columns = np.concatenate([np.arange(length) for length in lengths])
    values = np.concatenate(labels).astype(np.int32)
    shape = np.array([len(labels), max(1, *lengths)], np.int64)
    return tf.constant(np.stack([rows, columns], 1), tf.int64), tf.constant(values), tf.constant(shape)


def greedy_labels(logits_FK: NDArray[np.float32]) -> list[int]:
    """The most likely label of each frame, repeats merged and blanks dropped."""
    best_F = logits_FK.argmax(-1)
    changed_F = np.concatenate([[True], best_F[1:] != best_F[:-1]]) if len(best_F) else np.zeros(0, bool)
    return [int(label) for label in best_F[changed_F] if label != logits_FK.shape[1] - 1]


def forced_paths(
    logits_BFK: NDArray[np.float32], steps_B: NDArray[np.integer], labels: Sequence[NDArray[np.integer]]
) -> list[NDArray[np.int64]]:
    """For every clip and frame the position of its label in the text, -1 in a blank: the likeliest CTC path.

    A clip that has more labels than frames has no path; its labels are spread evenly.
    """
    blank = logits_BFK.shape[2] - 1
    longest = max(1, *(len(row) for row in labels))
    states_BS = np.full((len(labels), 2 * longest + 1), blank)
    for row, own in enumerate(labels):
        states_BS[row, 1 : 2 * len(own) : 2] = own
    logp_BFK = logits_BFK - _log_sum_exp(logits_BFK)
    score_BFS = np.take_along_axis(
        logp_BFK, np.broadcast_to(states_BS[:, None], (*logp_BFK.shape[:2], states_BS.shape[1])), 2
    )
    skips_BS = np.zeros(states_BS.shape, bool)
    skips_BS[:, 3::2] = states_BS[:, 3::2] != states_BS[:, 1:-2:2]
    back_FBS, best_FBS = _viterbi(score_BFS, skips_BS)
    return [
        _walk_back(back_FBS[:steps, row], best_FBS[steps - 1, row], len(own))
        for row, (steps, own) in enumerate(zip(map(int, steps_B), labels, strict=True))
    ]


def _viterbi(score_BFS: NDArray[Any], skips_BS: NDArray[np.bool_]) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """How many states each state was reached from further back, and the best score up to it, for every frame."""
    batch, frames, states = score_BFS.shape
    back_FBS = np.zeros((frames, batch, states), np.int8)
    best_FBS = np.full((frames, batch, states), _IMPOSSIBLE)
    best_FBS[0, :, :2] = score_BFS[:, 0, :2]
    arrivals_3BS = np.full((3, batch, states), _IMPOSSIBLE)
    for frame in range(1, frames):
        before_BS = best_FBS[frame - 1]
        arrivals_3BS[0] = before_BS
        arrivals_3BS[1, :, 1:] = before_BS[:, :-1]
        arrivals_3BS[2, :, 2:] = np.where(skips_BS[:, 2:], before_BS[:, :-2], _IMPOSSIBLE)
        back_FBS[frame] = arrivals_3BS.argmax(0)
        best_FBS[frame] = arrivals_3BS.max(0) + score_BFS[:, frame]
    return back_FBS, best_FBS


def _walk_back(back_FS: NDArray[np.int8], last_S: NDArray[Any], labels: int) -> NDArray[np.int64]:
    frames = len(back_FS)
    path_F = np.full(frames, -1, np.int64)
    if labels == 0:
        return path_F
    state = 2 * labels if last_S[2 * labels] > last_S[2 * labels - 1] else 2 * labels - 1
    if last_S[state] < _IMPOSSIBLE / 2:
        return np.arange(frames) * labels // frames
    for frame in range(frames - 1, -1, -1):
        path_F[frame] = (state - 1) // 2 if state % 2 else -1
        state -= int(back_FS[frame, state])
    return path_F


def spread_blanks(path_F: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every frame to the label that is nearest in time; of two as near, to the one that comes."""
    spoken = np.flatnonzero(path_F >= 0)
    if len(spoken) == 0:
        return np.zeros_like(path_F)
    frames = np.arange(len(path_F))
    after = np.searchsorted(spoken, frames)
    right = spoken[np.minimum(after, len(spoken) - 1)]
    left = spoken[np.maximum(after - 1, 0)]
    return path_F[np.where(np.abs(right - frames) <= np.abs(frames - left), right, left)]


def _log_sum_exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = x.max(-1, keepdims=True)
    return peak + np.log(np.exp(x - peak).sum(-1, keepdims=True))


def error_rate(wanted: Sequence[Sequence[int]], heard: Sequence[Sequence[int]]) -> float:
    """Insertions, deletions and substitutions for each wanted label, over all clips."""
    edits = sum(edit_distance(w, h) for w, h in zip(wanted, heard, strict=True))
    return edits / max(1, sum(len(w) for w in wanted))


def edit_distance(wanted: Sequence[Any], heard: Sequence[Any]) -> int:
    row = list(range(len(heard) + 1))
    for number, symbol in enumerate(wanted, 1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(heard, 1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (symbol != other))
    return row[-1]


def seeded(network: CTCNetwork, seed: int) -> CTCNetwork:
    """Build it with weights that depend on the seed alone."""
    network.build()
    random = np.random.default_rng(seed)
    for variable in network.trainable_variables:
        if len(variable.shape) == 2:
            std = math.sqrt((1.0 if "head" in variable.path else 2.0) / variable.shape[0])
            variable.assign(random.normal(0.0, std, variable.shape).astype(np.float32))
    return network
