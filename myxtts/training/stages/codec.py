"""Stage `codec`: short mel segments in, the DVAE learns to give them back through its codebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.audio.io import padded_rows
from myxtts.audio.mel import HOP, MelSpectrogram
from myxtts.errors import TrainingError
from myxtts.models.aligner import CTCNetwork
from myxtts.models.dvae import DVAE, code_lengths, measure_mel_stats
from myxtts.training.stages.mel_loss import MelLoss, measured_postfilter
from myxtts.training.stages.stage import LossTerm, Objective, StageContext, Tensors, TrainingStage

SEGMENT_FRAMES = 64
COMMITMENT_WEIGHT = 0.25
BYPASS_STEPS = 150
"""Steps in which the decoder sees the latents themselves: a codebook is useless until the latents mean something."""
COLLAPSE_CHECK_STEP = 400
COLLAPSED_USAGE = 0.05
LARGE_CODEBOOK = 1024
"""Codes beyond these fill up slowly, which is no collapse."""
SCALE_BATCHES = 8


def build(context: StageContext) -> TrainingStage:
    return CodecStage(context.model.dvae, pretrained="dvae" in context.pretrained)


class CodecStage(TrainingStage):
    """DVAE from random segments; the mel's scale per channel is measured on the first batches."""

    name = "codec"
    measured_batches = SCALE_BATCHES
    takes_ctc_loss = True

    def __init__(self, dvae: DVAE, *, pretrained: bool = False) -> None:
        self.dvae = dvae
        # A codebook that means something already would be overwritten.
        self._bypass_steps = 0 if pretrained else BYPASS_STEPS
        self._mel = MelSpectrogram()
        self.mel_loss = MelLoss()

    @property
    def layers(self) -> dict[str, Any]:
        return {"dvae": self.dvae}

    def add_ctc_loss(self, network: CTCNetwork, weight: float) -> None:
        self.mel_loss.add_ctc_loss(network, weight)

    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        wave, lengths = cut_segments(host_batch["wave"], host_batch["wave_lengths"], host_batch["draw"])
        mel_BTM, mel_lengths_B = self._mel(wave, lengths)
        batch = {"mel": mel_BTM[:, :SEGMENT_FRAMES], "mel_lengths": tf.minimum(mel_lengths_B, SEGMENT_FRAMES)}
        if "reference" in host_batch:
            reference = self._mel(host_batch["reference"], host_batch["reference_lengths"])
            batch.update(zip(("reference", "reference_lengths"), reference, strict=True))
        return batch

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        """Without waves, the clip's own mel is the reference."""
        return {"mel": mel, "mel_lengths": mel_lengths, "reference": mel, "reference_lengths": mel_lengths}

    def measure(self, batches: list[Tensors]) -> None:
        """Set the DVAE's shift and scale."""
        mel = tf.concat([batch["mel"] for batch in batches], 0)
        lengths = tf.concat([batch["mel_lengths"] for batch in batches], 0)
        self.dvae.set_mel_stats(*(stat.numpy() for stat in measure_mel_stats(mel, lengths)))

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        codes = tf.cast(tf.reduce_sum(code_lengths(batch["mel_lengths"])), tf.float32)
        return {**self.mel_loss.counts(batch["mel_lengths"]), "commitment": codes}

    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        bypass = step < self._bypass_steps if seed is not None else tf.constant(False)
        mel_BTM, lengths_B = batch["mel"], batch["mel_lengths"]
        voice_BV = self.dvae.voice_of(batch["reference"], batch["reference_lengths"]) if "reference" in batch else None
        passed = self.dvae.training_pass(mel_BTM, lengths_B, voice_BV, bypass=bypass)
        terms = self.mel_loss.terms(passed["made"], mel_BTM, lengths_B, scale_M=self.dvae.mel_scale_M)
        terms["commitment"] = LossTerm(passed["commitment"], tf.where(bypass, 0.0, COMMITMENT_WEIGHT))
        return Objective(terms, {}, {"latents": passed["latents"], "codes": passed["codes"]})

    def validate_together(self, batches: Sequence[Tensors]) -> dict[str, float]:
        """No figure, but the gains of the codec's postfilter."""
        made = (self.dvae(batch["mel"], batch["mel_lengths"]) for batch in batches)
        self.postfilter = {"dvae": measured_postfilter(batches, made, self.dvae)}
        return {}

    def after_update(self, batch: Tensors, auxiliary: Tensors, *, step: tf.Tensor) -> None:
        self.dvae.update_codebook(
            auxiliary["latents"], auxiliary["codes"], batch["mel_lengths"], bypass=step < self._bypass_steps
        )

    def check_health(self, step: int) -> None:
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
    each = zip(wave_BS, starts_B, lengths_B, strict=True)
    return padded_rows([wave_S[start : min(start + samples, length)] for wave_S, start, length in each], samples)
