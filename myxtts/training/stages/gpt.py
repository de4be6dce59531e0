"""Stage `gpt`: the frozen DVAE turns audio into codes on the data device; conditioning and GPT learn them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from myxtts.audio.mel import MelSpectrogram
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import (
    AUDIO_LOSS_WEIGHT,
    DEFAULT_ALIGNMENT_HEADS,
    GPT,
    TEXT_LOSS_WEIGHT,
    AlignmentHeads,
    gpt_losses,
)
from myxtts.models.initialise import audio_from_codebook, initialise_from_scratch
from myxtts.models.reference_mel import reference_mel
from myxtts.training.stages.stage import (
    LENGTHS_B,
    WAVES_BS,
    LossTerm,
    Objective,
    StageContext,
    Tensors,
    TrainingStage,
)

CONDITIONING_RATE_SHARE = 1 / 3
"""Of the GPT's learning rate. The perceiver's attention has no norm before it: a little too fast, and within some
hundred steps its latents see nothing but themselves and every reference gives the same voice, for good."""
CONDITIONING_VARIATION = "conditioning_variation"
COLLAPSED_VARIATION = 0.05
"""Conditioning has collapsed below this: it was 0.3 to 0.6 in voices that follow their references, and at most 0.011
in those that had come to ignore them."""


def build(context: StageContext) -> TrainingStage:
    training = context.config.training
    return GPTStage(
        context.model.gpt,
        context.model.conditioning,
        context.frozen("dvae"),
        alignment_weight=training.alignment_weight or 0.0,
        alignment_heads=[pair for pair in DEFAULT_ALIGNMENT_HEADS if pair[0] < context.config.model.gpt_layers],
    )


class GPTStage(TrainingStage):
    """Next-token training of the GPT with its conditioning; alignments, where the batch has them, guide two heads."""

    name = "gpt"
    slower_layers: ClassVar[Mapping[str, float]] = {"conditioning": CONDITIONING_RATE_SHARE}

    def __init__(
        self,
        gpt: GPT,
        conditioning: Conditioning,
        frozen_dvae: DVAE,
        *,
        alignment_weight: float = 0.0,
        alignment_heads: AlignmentHeads = DEFAULT_ALIGNMENT_HEADS,
    ) -> None:
        self.gpt = gpt
        self.conditioning = conditioning
        self._dvae = frozen_dvae
        self._mel = MelSpectrogram()
        self._conditioning_mel = reference_mel(gpt.config, frozen_dvae)
        signature = [WAVES_BS, LENGTHS_B, WAVES_BS, LENGTHS_B]
        self._encode = tf.function(self._encode_waves, autograph=False, input_signature=signature)
        self._alignment_weight = alignment_weight
        self.alignment_heads: AlignmentHeads = alignment_heads if alignment_weight else ()

    @property
    def layers(self) -> dict[str, Any]:
        return {"conditioning": self.conditioning, "gpt": self.gpt}

    def initialise(self, seed: int) -> None:
        """Weights to learn from scratch with; codes that sound alike start alike, from the codebook."""
        initialise_from_scratch(self.gpt, seed=seed)
        audio_from_codebook(self.gpt, self._dvae.codebook, seed=seed)

    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        """Codes of the clip, and the mel of a reference clip of the same speaker."""
        codes_BN, code_lengths_B, reference_BTM, reference_lengths_B = self._encode(
            tf.constant(host_batch["wave"]),
            tf.constant(host_batch["wave_lengths"]),
            tf.constant(host_batch["reference"]),
            tf.constant(host_batch["reference_lengths"]),
        )
        batch = {
            "text": tf.constant(host_batch["text"]),
            "text_lengths": tf.constant(host_batch["text_lengths"]),
            "codes": codes_BN,
            "code_lengths": code_lengths_B,
            "reference": reference_BTM,
            "reference_lengths": reference_lengths_B,
            "speaker": tf.constant(host_batch["speaker"]),
        }
        for name in ("alignment", "corruption"):
            if name in host_batch:
                batch[name] = tf.constant(host_batch[name])
        return batch

    def _encode_waves(
        self, wave_BS: Any, lengths_B: Any, reference_BS: Any, reference_lengths_B: Any
    ) -> tuple[Any, ...]:
        codes_BN, code_lengths_B = self._dvae.encode(*self._mel.log_mel(wave_BS, lengths_B))
        reference_BTM, reference_frames_B = self._conditioning_mel.log_mel(reference_BS, reference_lengths_B)
        return codes_BN, code_lengths_B, reference_BTM, reference_frames_B

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        """Without waves, the clip's own mel is the reference."""
        codes_BN, code_lengths_B = self._dvae.encode(mel, mel_lengths)
        self.gpt.refuse_long_text(text.shape[1])
        self.gpt.refuse_long_audio(codes_BN.shape[1])
        norms_M = self._conditioning_mel.channel_norms
        return {
            "text": text,
            "text_lengths": text_lengths,
            "codes": codes_BN,
            "code_lengths": code_lengths_B,
            "reference": mel if norms_M is None else mel / norms_M,
            "reference_lengths": mel_lengths,
        }

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        texts = tf.cast(tf.reduce_sum(batch["text_lengths"] + 1), tf.float32)
        codes = tf.cast(tf.reduce_sum(batch["code_lengths"]), tf.float32)
        stops = tf.cast(tf.size(batch["code_lengths"]) * self.gpt.config.audio_stop_targets, tf.float32)
        aligned = tf.cast(tf.reduce_sum(tf.where(batch["text_lengths"] > 0, batch["code_lengths"], 0)), tf.float32)
        return {"text": texts, "audio": codes + stops, "accuracy": codes + stops, "alignment": aligned}

    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        latents_BLD = self.conditioning(batch["reference"], batch["reference_lengths"])
        text, lengths_B = (batch["text"], batch["text_lengths"]), batch["code_lengths"]
        read_BT = batch["codes"]
        if seed is not None and "corruption" in batch:
            read_BT = tf.where(batch["corruption"] < 0, read_BT, batch["corruption"])
        heads = self.alignment_heads if "alignment" in batch else ()
        output = self.gpt(latents_BLD, *text, read_BT, lengths_B, seed=seed, alignment_heads=heads)
        losses = gpt_losses(self.gpt, output, *text, batch["codes"], lengths_B, alignment_BT=batch.get("alignment"))
        terms = {
            "text": LossTerm(losses.text, TEXT_LOSS_WEIGHT),
            "audio": LossTerm(losses.audio, AUDIO_LOSS_WEIGHT),
        }
        if heads:
            terms["alignment"] = LossTerm(losses.alignment, self._alignment_weight)
        return Objective(terms, {"accuracy": losses.audio_accuracy}, {})

    def validate_together(self, batches: Sequence[Tensors]) -> dict[str, float]:
        """How much the conditioning latents vary over several speakers: near 0 it has collapsed. No loss shows that,
        for the codes before carry the voice too."""
        if len({int(speaker) for batch in batches for speaker in batch["speaker"]}) < 2:
            return {}
        latents = [self.conditioning(batch["reference"], batch["reference_lengths"]).numpy() for batch in batches]
        return {CONDITIONING_VARIATION: variation_of(latents)}


def variation_of(latents: Sequence[np.ndarray]) -> float:
    """How far the rows of all batches are from their mean, as a share of their length."""
    rows_NK = np.concatenate([own.astype(np.float64).reshape(len(own), -1) for own in latents])
    return float(np.linalg.norm(rows_NK - rows_NK.mean(axis=0)) / np.linalg.norm(rows_NK))
