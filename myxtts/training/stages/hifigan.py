"""Stage `decoder`: HiFi-GAN learns to turn the frozen GPT's latents into the clip's wave, against its discriminators.

The producer runs everything up to the latents (DVAE codes, conditioning, teacher-forced GPT) and cuts a segment of them
with the wave that it stands for. Latent i is the hidden state that predicts code i, as `Generator` gives it out when
speaking, and covers 1024 samples at 22.05 kHz from sample 1024 i on.

Shapes: B clips, N latents of a segment, D width of a latent, S samples, V width of the speaker vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import soxr
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.audio.io import from_int16, padded_rows
from myxtts.audio.mel import HOP, SAMPLE_RATE, MelSettings, MelSpectrogram, frame_count
from myxtts.config.config import XTTSConfig
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.errors import TrainingError
from myxtts.models.discriminators import MEL_WEIGHT, Discriminators
from myxtts.models.dvae import code_lengths
from myxtts.models.hifigan import HiFiGAN, samples_of
from myxtts.models.hifigan_sizes import OUTPUT_SAMPLE_RATE
from myxtts.models.reference_mel import reference_mel
from myxtts.models.speaker_encoder import SAMPLE_RATE as SPEAKER_RATE
from myxtts.models.speaker_encoder import SpeakerEncoder
from myxtts.training.stages.adversarial import DISCRIMINATORS, AdversarialStage
from myxtts.training.stages.frozen import FrozenParts
from myxtts.training.stages.hifigan_settings import SETTINGS, HiFiGANSettings
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

LATENT_SAMPLES = FRAMES_PER_CODE * HOP
MARGIN_SAMPLES = 8 * 147
"""Sound around a segment that the resampler sees. 147 samples at 22.05 kHz are 160 at 24 kHz, so it is cut off again
without a fraction of a sample."""
MARGIN_OUTPUT_SAMPLES = 8 * 160
LOSS_MEL = MelSettings(sample_rate=OUTPUT_SAMPLE_RATE, f_max_hz=OUTPUT_SAMPLE_RATE / 2)


def build(context: StageContext) -> TrainingStage:
    model, settings = context.model, SETTINGS[context.config.model.model_size]
    start = discriminator_start(context.config, context.steps)
    return HiFiGANStage(model.hifigan, model.speaker_encoder, FrozenParts.of(context), settings, start)


def discriminator_start(config: XTTSConfig, steps: int) -> int:
    """Steps before the discriminators join; fewer steps than usual keep a quarter of them for the discriminators."""
    given, usual = config.training.discriminator_start, SETTINGS[config.model.model_size].discriminator_start
    return min(usual, 3 * steps // 4) if given is None else given


class HiFiGANStage(AdversarialStage):
    """HiFi-GAN, and the speaker encoder unless it is frozen, against discriminators that speaking never needs."""

    name = "decoder"

    def __init__(
        self,
        hifigan: HiFiGAN,
        speaker_encoder: SpeakerEncoder,
        frozen: FrozenParts,
        settings: HiFiGANSettings,
        discriminator_start: int,
    ) -> None:
        super().__init__(discriminator_start)
        self.hifigan, self.speaker_encoder, self.settings = hifigan, speaker_encoder, settings
        self._frozen = frozen
        self._mel = MelSpectrogram()
        self._conditioning_mel = reference_mel(frozen.gpt.config, frozen.dvae)
        self._loss_mel = MelSpectrogram(LOSS_MEL, whole=True)
        signature = [TOKENS_BU, LENGTHS_B, WAVES_BS, LENGTHS_B, WAVES_BS, LENGTHS_B, LENGTHS_B]
        self._encode = tf.function(self._latent_segments, autograph=False, input_signature=signature)
        self._speaker_vectors = tf.function(self._frozen_vectors, autograph=False, reduce_retracing=True)

    def make_discriminators(self) -> Discriminators:
        return Discriminators(self.settings.discriminator_shrink)

    @property
    def layers(self) -> dict[str, Any]:
        return {"hifigan": self.hifigan, "speaker_encoder": self.speaker_encoder, DISCRIMINATORS: self.discriminators}

    @property
    def learners(self) -> list[Any]:
        return [self.hifigan] if self._frozen.speaker_encoder is not None else [self.hifigan, self.speaker_encoder]

    # The producer's half

    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        wave_BS, lengths_B = np.asarray(host_batch["wave"]), np.asarray(host_batch["wave_lengths"])
        count = self.settings.segment_latents
        starts_B = segment_starts(lengths_B, np.asarray(host_batch["draw"]), count)
        speaker_BS, speaker_lengths_B = speaker_waves(
            host_batch["reference"], host_batch["reference_lengths"], self.settings.speaker_seconds
        )
        batch = {
            "latents": self._encode(
                *(tf.constant(host_batch[name]) for name in ("text", "text_lengths", "wave", "wave_lengths")),
                *(tf.constant(host_batch[name]) for name in ("reference", "reference_lengths")),
                tf.constant(starts_B),
            ),
            "wave": tf.constant(target_segments(wave_BS, lengths_B, starts_B, count)),
        }
        if self._frozen.speaker_encoder is not None:
            return {**batch, "speaker": self._speaker_vectors(tf.constant(speaker_BS), tf.constant(speaker_lengths_B))}
        return {**batch, "speaker_wave": tf.constant(repeated(speaker_BS, speaker_lengths_B))}

    def _latent_segments(
        self,
        text_BU: tf.Tensor,
        text_lengths_B: tf.Tensor,
        wave_BS: tf.Tensor,
        lengths_B: tf.Tensor,
        reference_BS: tf.Tensor,
        reference_lengths_B: tf.Tensor,
        starts_B: tf.Tensor,
    ) -> tf.Tensor:
        """Latents [B, N, D] from each clip's start on; zeros beyond its end, where the target is silence."""
        parts = self._frozen
        codes_BT, code_lengths_B = parts.dvae.encode(*self._mel.log_mel(wave_BS, lengths_B))
        voice_BLD = parts.conditioning(*self._conditioning_mel.log_mel(reference_BS, reference_lengths_B))
        output = parts.gpt(voice_BLD, text_BU, text_lengths_B, codes_BT, code_lengths_B, attend_stop=True)
        place_BN = starts_B[:, None] + tf.range(self.settings.segment_latents)[None]
        inside_BN1 = (place_BN < code_lengths_B[:, None])[:, :, None]
        last = tf.shape(output.latents_BTD)[1] - 1
        segment_BND = tf.gather(output.latents_BTD, tf.minimum(place_BN, last), batch_dims=1)
        return tf.where(inside_BN1, tf.cast(segment_BND, tf.float32), 0.0)

    def _frozen_vectors(self, wave_BS: tf.Tensor, lengths_B: tf.Tensor) -> tf.Tensor:
        assert self._frozen.speaker_encoder is not None
        return self._frozen.speaker_encoder(wave_BS, lengths_B)

    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        raise TrainingError(
            "stage decoder learns waves, and a train step from mels has none",
            hint="give `learn` the batches that the stage's `process` makes, or train stage codec or gpt from mels",
        )

    # The consumer's half

    def ready_to_speak(self, step: int) -> bool:
        """Before the discriminators join it buzzes more than Griffin-Lim, which the voice has without it."""
        return step >= self.discriminator_start

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        rows = tf.shape(batch["wave"])[0]
        return {**dict.fromkeys(("mel", "mel_distance"), tf.cast(rows, tf.float32)), **self.adversarial_counts(rows)}

    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        real_BS = batch["wave"]
        if "speaker" in batch:
            speaker_BV = batch["speaker"]
        else:
            # With its batch norms held fixed the encoder's gradient grows without bound within ten steps.
            speaker_BV = self.speaker_encoder(batch["speaker_wave"], training=seed is not None)
        made_BS = self.hifigan(batch["latents"], speaker_BV, training=True)
        mel = tf.reduce_mean(tf.abs(self._log_mel(real_BS) - self._log_mel(made_BS)))
        terms = {
            "mel": LossTerm(mel, MEL_WEIGHT),
            **self.adversarial_terms(real_BS, made_BS, learning=seed is not None),
        }
        return Objective(terms, {"mel_distance": mel}, {})

    def _log_mel(self, wave_BS: tf.Tensor) -> tf.Tensor:
        return self._loss_mel.log_mel(wave_BS, tf.fill([tf.shape(wave_BS)[0]], tf.shape(wave_BS)[1]))[0]


def segment_starts(wave_lengths_B: NDArray[Any], draw_B: NDArray[Any], count: int) -> NDArray[np.int32]:
    """The first latent of each clip's segment, at the place that `draw` (0 to 1) says; 0 for clips that are shorter."""
    latents_B = code_lengths(frame_count(np.asarray(wave_lengths_B)))
    room_B = np.maximum(latents_B - count, 0)
    starts_B: NDArray[np.int32] = np.minimum((room_B + 1) * draw_B, room_B).astype(np.int32)
    return starts_B


def target_segments(
    wave_BS: NDArray[Any], lengths_B: NDArray[Any], starts_B: NDArray[Any], count: int
) -> NDArray[np.float32]:
    """The waves at 24 kHz of `count` latents from `starts_B` on, sample 0 exactly at latent `start`; silence behind."""
    made = samples_of(count)
    targets_BS = np.zeros((len(starts_B), made), np.float32)
    for row, (start, length) in enumerate(zip(starts_B, lengths_B, strict=True)):
        first = int(start) * LATENT_SAMPLES - MARGIN_SAMPLES
        piece = np.zeros(count * LATENT_SAMPLES + 2 * MARGIN_SAMPLES, np.float32)
        begin, end = max(first, 0), min(first + len(piece), int(length))
        if end > begin:
            piece[begin - first : end - first] = from_int16(wave_BS[row, begin:end])
        resampled = soxr.resample(piece, SAMPLE_RATE, OUTPUT_SAMPLE_RATE)
        targets_BS[row] = resampled[MARGIN_OUTPUT_SAMPLES : MARGIN_OUTPUT_SAMPLES + made]
    return targets_BS


def speaker_waves(reference_BS: Any, lengths_B: Any, longest_s: float) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The references as the speaker encoder reads them: 16 kHz, the first `longest_s` seconds, zeros behind."""
    pieces = [
        soxr.resample(from_int16(wave_S[: min(int(length), int(longest_s * SAMPLE_RATE))]), SAMPLE_RATE, SPEAKER_RATE)
        for wave_S, length in zip(np.asarray(reference_BS), np.asarray(lengths_B), strict=True)
    ]
    return padded_rows(pieces, int(longest_s * SPEAKER_RATE) + 1)


def repeated(wave_BS: NDArray[np.float32], lengths_B: NDArray[np.int32]) -> NDArray[np.float32]:
    """Each row from its beginning again where it ends: batch norm would learn from the silence behind it."""
    place_BS = np.arange(wave_BS.shape[1])[None] % np.maximum(lengths_B, 1)[:, None]
    return np.take_along_axis(wave_BS, place_BS, axis=1)
