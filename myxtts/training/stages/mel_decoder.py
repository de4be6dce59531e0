"""Stage `decoder` of voices that speak by mels: what the frozen GPT makes of a clip becomes the clip's mel and pitch.

Scheduled sampling: the producer runs the GPT over each clip twice, first teacher-forced, then with some of the clip's
codes replaced by ones that the GPT draws. When speaking, all codes are the GPT's own; a decoder that never saw its
mistakes would trust them more than the text.

Shapes: B clips, N codes of a clip, D width of a latent, C width of a codebook entry, T mel frames, M mel channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from myxtts.audio.mel import MelSpectrogram
from myxtts.audio.pitch import pitch_of
from myxtts.config.config import XTTSConfig
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.models.aligner import CTCNetwork
from myxtts.models.gpt import GPT, GPTOutput
from myxtts.models.mel_decoder import MIDDLE_HZ, MadeMel, MelDecoder, SpokenText
from myxtts.models.mel_discriminator import MelDiscriminator
from myxtts.models.reference_mel import reference_mel
from myxtts.training.stages.adversarial import DISCRIMINATORS, AdversarialStage
from myxtts.training.stages.frozen import FrozenParts
from myxtts.training.stages.mel_loss import MelLoss, measured_postfilter
from myxtts.training.stages.stage import (
    LENGTHS_B,
    TOKENS_BU,
    WAVES_BS,
    LossTerm,
    Objective,
    StageContext,
    Tensors,
    TrainingStage,
)

SAMPLED_TEMPERATURE = 0.7
"""Of the sampled codes; below 1, as in speaking."""
DISCRIMINATOR_START_SHARE = 1 / 3
"""Share of the stage's steps before the discriminator joins."""
MAX_SAMPLED_SHARE = 0.5
"""Largest share of a clip's codes that are sampled. With all of them the decoder would rely on the text alone, which
costs speaker similarity."""
PITCH_WEIGHT = 4.0
"""Of the pitch's distance in octaves: half of a step's gradient in the decoder's frames until it is known."""
VOICING_WEIGHT = 0.5


def build(context: StageContext) -> TrainingStage:
    start = discriminator_start(context.config, context.steps)
    return MelDecoderStage(context.model.mel_decoder, FrozenParts.of(context), start)


def discriminator_start(config: XTTSConfig, steps: int) -> int:
    """Steps before the discriminator joins."""
    given = config.training.discriminator_start
    return int(steps * DISCRIMINATOR_START_SHARE) if given is None else given


class MelDecoderStage(AdversarialStage):
    """The mel decoder learns, from distances and later against a discriminator; everything before it is frozen."""

    name = "decoder"
    adversarial_weight = 0.1
    feature_weight = 0.5
    takes_ctc_loss = True

    def __init__(self, mel_decoder: MelDecoder, frozen: FrozenParts, discriminator_start: int) -> None:
        super().__init__(discriminator_start)
        self.mel_decoder = mel_decoder
        self._frozen = frozen
        self._mel = MelSpectrogram()
        self._conditioning_mel = reference_mel(frozen.gpt.config, frozen.dvae)
        signature = [TOKENS_BU, LENGTHS_B, WAVES_BS, LENGTHS_B, WAVES_BS, LENGTHS_B, tf.TensorSpec([None], tf.float32)]
        self._encode = tf.function(self._read, autograph=False, input_signature=signature)
        self.mel_loss = MelLoss()

    @property
    def layers(self) -> dict[str, Any]:
        return {"mel_decoder": self.mel_decoder, DISCRIMINATORS: self.discriminators}

    @property
    def learners(self) -> list[Any]:
        return [self.mel_decoder]

    def make_discriminators(self) -> MelDiscriminator:
        return MelDiscriminator()

    def initialise(self, seed: int) -> None:
        self.mel_decoder.begin_as(self._frozen.dvae)

    # The producer's half

    def add_ctc_loss(self, network: CTCNetwork, weight: float) -> None:
        self.mel_loss.add_ctc_loss(network, weight)

    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        names = ("text", "text_lengths", "wave", "wave_lengths", "reference", "reference_lengths", "draw")
        batch: Tensors = self._encode(*(tf.constant(host_batch[name]) for name in names))
        if "alignment" not in host_batch:
            return batch
        return {**batch, **{name: tf.constant(host_batch[name]) for name in ("text", "text_lengths", "alignment")}}

    def _read(
        self,
        text_BU: tf.Tensor,
        text_lengths_B: tf.Tensor,
        wave_BS: tf.Tensor,
        lengths_B: tf.Tensor,
        reference_BS: tf.Tensor,
        reference_lengths_B: tf.Tensor,
        draw_B: tf.Tensor,
    ) -> Tensors:
        mel_BTM, mel_lengths_B = self._mel.log_mel(wave_BS, lengths_B)
        reference = self._conditioning_mel.log_mel(reference_BS, reference_lengths_B)
        batch = self._read_mels(text_BU, text_lengths_B, mel_BTM, mel_lengths_B, *reference, draw_B)
        if self.mel_decoder.pitch is not None:
            batch = {**batch, "pitch": pitch_of(wave_BS, lengths_B)}
        return self._with_voice(batch, *self._mel.log_mel(reference_BS, reference_lengths_B))

    def _with_voice(self, batch: Tensors, reference_BTM: tf.Tensor, reference_lengths_B: tf.Tensor) -> Tensors:
        voice_BV = self._frozen.dvae.voice_of(reference_BTM, reference_lengths_B)
        return batch if voice_BV is None else {**batch, "voice": voice_BV}

    def _read_mels(
        self,
        text_BU: tf.Tensor,
        text_lengths_B: tf.Tensor,
        mel_BTM: tf.Tensor,
        mel_lengths_B: tf.Tensor,
        reference_BTM: tf.Tensor,
        reference_lengths_B: tf.Tensor,
        draw_B: tf.Tensor,
    ) -> Tensors:
        parts, text = self._frozen, (text_BU, text_lengths_B)
        codes_BN, code_lengths_B = parts.dvae.encode(mel_BTM, mel_lengths_B)
        voice_BLD = parts.conditioning(reference_BTM, reference_lengths_B)
        forced = parts.gpt(voice_BLD, *text, codes_BN, code_lengths_B, attend_stop=True)
        read_BN = scheduled_sampling(codes_BN, parts.gpt, forced, MAX_SAMPLED_SHARE * draw_B)
        latents_BTD = parts.gpt(voice_BLD, *text, read_BN, code_lengths_B, attend_stop=True).latents_BTD
        return {
            "vectors": parts.dvae.codebook.look_up(read_BN),
            "latents": tf.cast(latents_BTD[:, : tf.shape(codes_BN)[1]], tf.float32),
            "code_lengths": code_lengths_B,
            "mel": mel_BTM,
            "mel_lengths": mel_lengths_B,
        }

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        """Without waves, the clip's own mel is the reference; a quarter of its codes are the GPT's own."""
        norms_M = self._conditioning_mel.channel_norms
        reference = mel if norms_M is None else mel / norms_M
        draw_B = tf.fill([tf.shape(mel)[0]], 0.5)
        batch = self._read_mels(text, text_lengths, mel, mel_lengths, reference, mel_lengths, draw_B)
        return self._with_voice(batch, mel, mel_lengths)

    # The consumer's half

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        rows = tf.shape(batch["mel"])[0]
        counts = {**self.mel_loss.counts(batch["mel_lengths"]), **self.adversarial_counts(rows)}
        return {**counts, **dict.fromkeys(("pitch", "voicing"), counts["l1"])}

    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        made, real_BTM, lengths_B = self._made(batch), batch["mel"], batch["mel_lengths"]
        made_BTM = made.mel_BTM
        terms = self.mel_loss.terms(made_BTM, real_BTM, lengths_B, scale_M=self.mel_decoder.mel_scale_M)
        if "pitch" in batch:
            terms.update(pitch_terms(made, batch["pitch"], lengths_B))
        mels = (self._scaled(mel_BTM, lengths_B, tf.shape(real_BTM)[1]) for mel_BTM in (real_BTM, made_BTM))
        return Objective({**terms, **self.adversarial_terms(*mels, learning=seed is not None)}, {}, {})

    def _scaled(self, mel_BTM: tf.Tensor, lengths_B: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
        """In standard deviations of a channel, zeros behind a clip's end."""
        decoder = self.mel_decoder
        inside_BT1 = tf.sequence_mask(lengths_B, frames, dtype=tf.float32)[:, :, None]
        return (tf.cast(mel_BTM[:, :frames], tf.float32) - decoder.mel_shift_M) / decoder.mel_scale_M * inside_BT1

    def validate_together(self, batches: Sequence[Tensors]) -> dict[str, float]:
        """No figure, but the gains of the decoder's postfilter."""
        made = (self._made(batch).mel_BTM for batch in batches)
        self.postfilter = {"mel_decoder": measured_postfilter(batches, made, self.mel_decoder)}
        return {}

    def _made(self, batch: Tensors) -> MadeMel:
        text = None
        if "alignment" in batch:
            spoken_BN = batch["alignment"][:, : tf.shape(batch["latents"])[1]]
            text = SpokenText(batch["text"], batch["text_lengths"], spoken_BN)
        pitch_BT = batch.get("pitch")
        if pitch_BT is not None:
            frames = FRAMES_PER_CODE * tf.shape(batch["vectors"])[1]
            pitch_BT = tf.pad(pitch_BT, [[0, 0], [0, frames - tf.shape(pitch_BT)[1]]])
        made: MadeMel = self.mel_decoder(
            batch["vectors"], batch["latents"], batch["code_lengths"], text, batch.get("voice"), pitch_BT
        )
        return made


def pitch_terms(made: MadeMel, pitch_BT: tf.Tensor, lengths_B: tf.Tensor) -> dict[str, LossTerm]:
    """How far the predicted pitch is from the recording's, in octaves, and the cross-entropy of the voicing; of means
    over all frames, so that parts of a batch add up."""
    frames = tf.shape(pitch_BT)[1]
    inside_BT = tf.sequence_mask(lengths_B, frames, dtype=tf.float32)
    voiced_BT = tf.cast(pitch_BT > 0.0, tf.float32) * inside_BT
    octaves_BT = tf.math.log(tf.where(pitch_BT > 0.0, pitch_BT, MIDDLE_HZ) / MIDDLE_HZ) / math.log(2.0)
    missed_BT = tf.abs(made.octaves_BT[:, :frames] - octaves_BT) * voiced_BT
    voicing_BT = tf.nn.sigmoid_cross_entropy_with_logits(voiced_BT, made.voicing_BT[:, :frames]) * inside_BT
    count = tf.reduce_sum(inside_BT)
    return {
        "pitch": LossTerm(tf.reduce_sum(missed_BT) / count, PITCH_WEIGHT),
        "voicing": LossTerm(tf.reduce_sum(voicing_BT) / count, VOICING_WEIGHT),
    }


def scheduled_sampling(codes_BN: tf.Tensor, gpt: GPT, forced: GPTOutput, share_B: tf.Tensor) -> tf.Tensor:
    """The codes with some of each clip replaced by what the GPT draws in their place, decided by `share` alone.

    A clip's share (0 to 1) is that of its codes that are replaced; the batch's seed too is made of the shares.
    """
    seed = tf.stack([tf.bitcast(share_B[0], tf.int32), tf.shape(share_B)[0]])
    places = tf.shape(codes_BN)
    logits_BNK = tf.cast(forced.audio_logits_BTV[:, : places[1], : gpt.audio_start], tf.float32) / SAMPLED_TEMPERATURE
    noise_BNK = tf.random.stateless_uniform(tf.shape(logits_BNK), seed, 1e-9, 1.0)
    drawn_BN = tf.argmax(logits_BNK - tf.math.log(-tf.math.log(noise_BNK)), -1, tf.int32)
    chance_BN = tf.random.stateless_uniform(places, seed + 1)
    return tf.where(chance_BN < share_B[:, None], drawn_BN, codes_BN)
