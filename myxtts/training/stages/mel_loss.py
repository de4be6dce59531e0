"""The loss of a stage that makes mels: L1 and MSE to the recording's, and a CTC perceptual loss.

A regression loss alone spends capacity on pitch and noise as readily as on what makes speech understood.

Shapes: B clips, T mel frames, M mel channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from myxtts.audio.mel import N_MELS
from myxtts.audio.postfilter import measured_gains
from myxtts.models.aligner import CTCNetwork, ctc_perceptual_loss, steps_of
from myxtts.training.stages.stage import LossTerm, Tensors

MSE_WEIGHT = 0.5


class MelLoss:
    """The terms `l1` and `mse` in standard deviations of a channel and, once a CTC network is there, `ctc`."""

    def __init__(self) -> None:
        self._ctc_network: CTCNetwork | None = None
        self._ctc_loss_weight = 0.0

    def add_ctc_loss(self, network: CTCNetwork, weight: float) -> None:
        """Compare also the features that a trained aligner finds in both."""
        self._ctc_network, self._ctc_loss_weight = network, weight

    def counts(self, lengths_B: tf.Tensor) -> dict[str, tf.Tensor]:
        frames = tf.cast(tf.reduce_sum(lengths_B), tf.float32)
        counts = {"l1": frames, "mse": frames}
        if self._ctc_network is not None:
            counts["ctc"] = tf.cast(tf.reduce_sum(steps_of(lengths_B)), tf.float32)
        return counts

    def terms(
        self, made_BTM: tf.Tensor, real_BTM: tf.Tensor, lengths_B: tf.Tensor, *, scale_M: Any
    ) -> dict[str, LossTerm]:
        """Of log mels; frames of `made` beyond those of `real`, and of both beyond a clip's own, do not count."""
        made_BTM = made_BTM[:, : tf.shape(real_BTM)[1]]
        inside_BT1 = tf.sequence_mask(lengths_B, tf.shape(real_BTM)[1], dtype=tf.float32)[:, :, None]
        error_BTM = (made_BTM - tf.cast(real_BTM, tf.float32)) / scale_M * inside_BT1
        values = tf.cast(tf.reduce_sum(lengths_B) * N_MELS, tf.float32)
        terms = {
            "l1": LossTerm(tf.reduce_sum(tf.abs(error_BTM)) / values),
            "mse": LossTerm(tf.reduce_sum(error_BTM**2) / values, MSE_WEIGHT),
        }
        if self._ctc_network is not None:
            ctc = ctc_perceptual_loss(self._ctc_network, made_BTM, real_BTM, lengths_B)
            terms["ctc"] = LossTerm(ctc, self._ctc_loss_weight)
        return terms


def measured_postfilter(batches: Sequence[Tensors], made: Iterable[tf.Tensor], decoder: Any) -> list[float]:
    """The gains of a decoder's postfilter from the mels that it made of some batches."""
    pairs = (
        (real_TM[:length], made_TM[:length])
        for batch, made_BTM in zip(batches, made, strict=True)
        for real_TM, made_TM, length in zip(
            batch["mel"].numpy(), made_BTM.numpy(), batch["mel_lengths"].numpy(), strict=True
        )
    )
    return measured_gains(pairs, decoder.mel_shift_M.numpy(), decoder.mel_scale_M.numpy())
