"""Segments for the decoder: the wave that is learnt begins at the very sample that its first latent stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from myxtts.config.config import XTTSConfig
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.models.hifigan import HiFiGAN, samples_of
from myxtts.models.speaker_encoder import SpeakerEncoder
from myxtts.training.recipes import recipe_for, with_steps
from myxtts.training.stages import GPT as GPT_STAGE
from myxtts.training.stages import hifigan, mel_decoder
from myxtts.training.stages.frozen import FrozenParts
from myxtts.training.stages.hifigan import (
    HiFiGANStage,
    repeated,
    segment_starts,
    speaker_waves,
    target_segments,
)
from myxtts.training.stages.hifigan_settings import SETTINGS
from tests.small_model import SIZES

RATE, OUTPUT_RATE, LATENT_SAMPLES, COUNT = 22050, 24000, 1024, 24


def chirp(seconds: float, rate: int, offset_s: float = 0.0) -> np.ndarray:
    """Rises from 200 Hz by 900 Hz a second, so that no other place of it looks the same."""
    time_s = offset_s + np.arange(round(seconds * rate)) / rate
    return 0.5 * np.sin(2 * np.pi * (200 * time_s + 450 * time_s**2))


@pytest.mark.parametrize("start", [0, 1, 7, 40])
def test_a_target_begins_at_the_sample_of_its_first_latent(start: int) -> None:
    wave = (chirp(4.0, RATE) * 32767).astype(np.int16)[None]

    target = target_segments(wave, np.array([wave.shape[1]]), np.array([start]), COUNT)[0]

    wanted = chirp(2.0, OUTPUT_RATE, start * LATENT_SAMPLES / RATE)[: len(target)]
    assert len(target) == samples_of(COUNT)
    # A sample early or late would be off by 0.03 to 0.3. The clip's own first sample has no sound before it.
    inner = slice(64, None) if start == 0 else slice(None)
    assert np.max(np.abs(target - wanted)[inner]) < 5e-3
    late = chirp(2.0, OUTPUT_RATE, start * LATENT_SAMPLES / RATE + 1 / OUTPUT_RATE)[: len(target)]
    assert np.max(np.abs(target - late)) > 2e-2


def test_a_target_is_silent_beyond_the_end_of_its_clip() -> None:
    length = 10 * LATENT_SAMPLES
    wave = np.full((1, 40 * LATENT_SAMPLES), 9000, np.int16)

    target = target_segments(wave, np.array([length]), np.array([0]), COUNT)[0]

    end = round(length * OUTPUT_RATE / RATE)
    assert np.allclose(target[100 : end - 100], 9000 / 32768, atol=1e-3)
    assert np.max(np.abs(target[end + 200 :])) < 1e-3


def test_segments_lie_within_their_clips_and_reach_both_ends() -> None:
    lengths = np.array([4 * RATE] * 3 + [RATE // 2])
    latents = (4 * RATE // 256 + 1 + 3) // 4

    starts = segment_starts(lengths, np.array([0.0, 0.5, 0.9999999, 0.7], np.float32), COUNT)

    assert starts[0] == 0
    assert 0 < starts[1] < starts[2]
    assert starts[2] + COUNT == latents
    assert starts[3] == 0, "a clip shorter than a segment begins at its beginning"


def test_references_are_cut_and_resampled_for_the_speaker_encoder() -> None:
    reference = np.stack([(chirp(3.0, RATE) * 32767).astype(np.int16)] * 2)

    waves, lengths = speaker_waves(reference, np.array([3 * RATE, RATE]), 1.5)

    assert lengths.tolist() == [24000, 16000]
    assert np.max(np.abs(waves[0, 100:23900] - chirp(1.5, 16000)[100:23900])) < 5e-3
    assert not waves[1, 16000:].any()


def test_a_short_reference_is_repeated_where_silence_would_follow() -> None:
    waves = np.array([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]], np.float32)

    assert repeated(waves, np.array([5, 2], np.int32)).tolist() == [[1, 2, 3, 4, 5], [6, 7, 6, 7, 6]]


def test_a_stage_that_is_made_shorter_keeps_a_quarter_of_its_steps_for_the_discriminators() -> None:
    small = XTTSConfig(model_size="small")
    given = XTTSConfig(model_size="small", discriminator_start=5)

    assert [hifigan.discriminator_start(small, steps) for steps in (100, 3000, 100_000)] == [75, 2250, 5000]
    assert hifigan.discriminator_start(given, 3000) == 5


def test_the_mel_discriminator_joins_after_a_third_of_its_steps() -> None:
    assert [mel_decoder.discriminator_start(XTTSConfig(model_size="tiny"), steps) for steps in (4, 500, 1500)] == [
        1,
        166,
        500,
    ]
    assert mel_decoder.discriminator_start(XTTSConfig(model_size="tiny", discriminator_start=0), 500) == 0


def test_a_stage_that_epochs_make_shorter_than_its_warm_up_still_reaches_its_learning_rate() -> None:
    recipe = recipe_for(XTTSConfig(model_size="normal"), GPT_STAGE)

    assert recipe.warmup_steps == 2000
    assert with_steps(recipe, 300).warmup_steps == 30


def test_a_run_that_is_made_longer_keeps_its_discriminators() -> None:
    size = XTTSConfig(model_size="tiny", decoder="hifigan", **SIZES)
    frozen = FrozenParts(
        dvae=DVAE(size.model), conditioning=Conditioning(size.model), gpt=GPT(size.model), speaker_encoder=None
    )

    def stage_of(steps: int) -> HiFiGANStage:
        parts = HiFiGAN(size.model), SpeakerEncoder(size.model)
        return HiFiGANStage(*parts, frozen, SETTINGS["tiny"], hifigan.discriminator_start(size, steps))

    short, longer, given = stage_of(1000), stage_of(4000), stage_of(4000)
    longer.set_state(short.get_state(), size.training)
    given.set_state(short.get_state(), replace(size.training, discriminator_start=3000))

    assert not short.begin_step(749)
    assert short.begin_step(750)
    assert longer.begin_step(1000), "it learns against them from its first step on"
    assert not given.begin_step(1000)
