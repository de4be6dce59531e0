"""Stage `codec`: short mel segments in, the DVAE learns to give them back through its codebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.audio.mel import HOP, MelSpectrogram
from myxtts.errors import TrainingError
from myxtts.models.aligner import CTCNetwork, difference_heard, steps_of
from myxtts.models.dvae import DVAE, code_lengths, measure_mel_stats
from myxtts.training.steps.stage import LossTerm, Objective, Tensors, TrainingStage

SEGMENT_FRAMES = 64
MSE_WEIGHT = 0.5
COMMITMENT_WEIGHT = 0.25
BYPASS_STEPS = 150
"""Steps in which the decoder sees the latents themselves: a codebook is useless until the latents mean something."""
COLLAPSE_CHECK_STEP = 400
COLLAPSED_USAGE = 0.05
LARGE_CODEBOOK = 1024
"""Codes beyond these fill up slowly, which is no collapse."""
SCALE_BATCHES = 8


class CodecStage(TrainingStage):
    """DVAE from random segments; the mel's scale per channel is measured on the first batches."""

    name = "codec"
    first_batches = SCALE_BATCHES
    makes_mels = True

    def __init__(self, dvae: DVAE, *, pretrained: bool = False) -> None:
        self.dvae = dvae
        # A codebook that means something already would be overwritten.
        self._bypass_steps = 0 if pretrained else BYPASS_STEPS
        self._mel = MelSpectrogram()
        self._listener: CTCNetwork | None = None
        self._listening_weight = 0.0

    def listen_with(self, listener: CTCNetwork, weight: float) -> None:
        """Learn also from what a trained aligner hears: codes are few, and a loss over mels alone spends them on pitch
        and noise as readily as on what makes speech understood."""
        self._listener, self._listening_weight = listener, weight

    @property
    def layers(self) -> dict[str, Any]:
        return {"dvae": self.dvae}

    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        wave, lengths = cut_segments(host_batch["wave"], host_batch["wave_lengths"], host_batch["draw"])
        mel_BTM, mel_lengths_B = self._mel(wave, lengths)
        return {"mel": mel_BTM[:, :SEGMENT_FRAMES], "mel_lengths": tf.minimum(mel_lengths_B, SEGMENT_FRAMES)}

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        return {"mel": mel, "mel_lengths": mel_lengths}

    def fit_to(self, batches: list[Tensors]) -> None:
        """Set the DVAE's shift and scale."""
        mel = tf.concat([batch["mel"] for batch in batches], 0)
        lengths = tf.concat([batch["mel_lengths"] for batch in batches], 0)
        self.dvae.set_mel_stats(*(stat.numpy() for stat in measure_mel_stats(mel, lengths)))

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        frames = tf.cast(tf.reduce_sum(batch["mel_lengths"]), tf.float32)
        codes = tf.cast(tf.reduce_sum(code_lengths(batch["mel_lengths"])), tf.float32)
        heard = tf.cast(tf.reduce_sum(steps_of(batch["mel_lengths"])), tf.float32)
        counts = {"l1": frames, "mse": frames, "commitment": codes}
        return counts if self._listener is None else {**counts, "heard": heard}

    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        bypass = step < self._bypass_steps if seed is not None else tf.constant(False)
        losses = self.dvae.training_losses(batch["mel"], batch["mel_lengths"], bypass=bypass)
        commitment_weight = tf.where(bypass, 0.0, COMMITMENT_WEIGHT)
        terms = {
            "l1": LossTerm(losses["l1"]),
            "mse": LossTerm(losses["mse"], MSE_WEIGHT),
            "commitment": LossTerm(losses["commitment"], commitment_weight),
        }
        if self._listener is not None:
            heard = difference_heard(self._listener, losses["made"], batch["mel"], batch["mel_lengths"])
            terms["heard"] = LossTerm(heard, self._listening_weight)
        return Objective(terms, {}, {"latents": losses["latents"], "codes": losses["codes"]})

    def after_update(self, batch: Tensors, aftermath: Tensors, *, step: tf.Tensor) -> None:
        self.dvae.update_codebook(
            aftermath["latents"], aftermath["codes"], batch["mel_lengths"], bypass=step < self._bypass_steps
        )

    def check(self, step: int) -> None:
        if step < COLLAPSE_CHECK_STEP:
            return
        usage, codes = float(self.dvae.codebook_usage()), self.dvae.codebook.codes
        if usage * codes < COLLAPSED_USAGE * min(codes, LARGE_CODEBOOK):
            raise TrainingError(
                f"the codebook has collapsed: {usage:.0%} of its codes are in use after step {step}",
                hint="train the codec on more varied speech, or with a lower --learning-rate; start over with --fresh",
            )


def cut_segments(wave_BS: Any, lengths_B: Any, draw_B: Any) -> tuple[np.ndarray, np.ndarray]:
    """A segment of each clip at the place that `draw` (0 to 1) says; shorter clips whole, zeros behind them."""
    samples = (SEGMENT_FRAMES - 1) * HOP
    wave_BS = np.asarray(wave_BS)
    lengths_B = np.asarray(lengths_B)
    starts_B = (np.maximum(lengths_B - samples, 0) * np.asarray(draw_B)).astype(np.int64)
    cut_BS = np.zeros((len(wave_BS), samples), wave_BS.dtype)
    for row, (start, length) in enumerate(zip(starts_B, lengths_B, strict=True)):
        piece = wave_BS[row, start : min(start + samples, length)]
        cut_BS[row, : len(piece)] = piece
    return cut_BS, np.minimum(lengths_B, samples).astype(np.int32)
