"""Stage `gpt`: conditioning collapse, and what the GPT reads in place of corrupted codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.data.alignments import codes_of
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.training.stages.gpt import COLLAPSED_VARIATION, GPTStage, variation_of
from tests.small_model import SIZES


@pytest.fixture
def stage() -> GPTStage:
    config = XTTSConfig(model_size="tiny", text_vocab=16, **SIZES).model
    parts = GPT(config), Conditioning(config), DVAE(config)
    for part in parts:
        part.build()
    return GPTStage(*parts)


def references(clips: int, speakers: int = 2) -> dict[str, Any]:
    mel = tf.random.stateless_normal([clips, 40, 80], [1, 1])
    return {"reference": mel, "reference_lengths": tf.fill([clips], 40), "speaker": tf.range(clips) % speakers}


def test_references_that_differ_are_no_collapse_whatever_batches_they_come_in(stage: GPTStage) -> None:
    whole = references(6)
    halves = [{name: tensor[rows] for name, tensor in whole.items()} for rows in (slice(0, 3), slice(3, 6))]

    variation = stage.validate_together([whole])["conditioning_variation"]

    assert COLLAPSED_VARIATION < variation < 1
    assert stage.validate_together(halves)["conditioning_variation"] == pytest.approx(variation, rel=1e-4)


def test_latents_that_see_nothing_of_the_reference_have_no_spread(stage: GPTStage) -> None:
    for weight in stage.conditioning.weights:
        if "key_value" in weight.path:
            weight.assign(tf.zeros_like(weight))

    assert stage.validate_together([references(3)])["conditioning_variation"] < 1e-5


def test_references_of_one_speaker_say_nothing(stage: GPTStage) -> None:
    """A voice that follows its references tells speakers apart and no clips: 0.0003 to 0.008 within one speaker."""
    assert stage.validate_together([references(3, speakers=1)]) == {}
    assert stage.validate_together([references(1)]) == {}


def test_the_spread_is_not_lost_in_the_sixteen_bits_that_a_gpu_computes_in() -> None:
    latents = 30 * np.random.default_rng(0).normal(1.0, 0.5, (64, 8, 192))

    assert variation_of([latents.astype(np.float16)]) == pytest.approx(variation_of([latents]), rel=0.01)


def test_the_gpt_reads_corrupted_codes_only_while_it_learns_and_still_predicts_the_true_ones() -> None:
    config = XTTSConfig(model_size="tiny", dropout=0.0, text_vocab=16, **SIZES).model
    parts = GPT(config), Conditioning(config), DVAE(config)
    for part in parts:
        part.build()
    stage = GPTStage(*parts)
    mel = tf.random.stateless_normal([2, 64, 80], [1, 2])
    batch = stage.from_mels(tf.ones([2, 6], tf.int32), mel, tf.constant([6, 5]), tf.constant([64, 60]))
    codes_BT = batch["codes"].numpy()
    corruption_BT = np.where(np.arange(codes_BT.shape[1]) % 3 == 1, (codes_BT + 7) % config.audio_codes, -1)
    replaced_BT = np.where(corruption_BT < 0, codes_BT, corruption_BT)

    def loss(seed: Any = None, **tensors: Any) -> float:
        made = {**batch, **{name: tf.constant(value, tf.int32) for name, value in tensors.items()}}
        return float(stage.objective(made, seed=seed, step=tf.constant(0)).terms["audio"].mean)

    seed = tf.constant([1, 2])
    clean, corrupted = loss(seed), loss(seed, corruption=corruption_BT)
    assert corrupted != clean
    assert corrupted != loss(seed, codes=replaced_BT), "the targets were replaced too"
    assert loss(corruption=corruption_BT) == clean
    assert loss(seed, corruption=np.full_like(codes_BT, -1)) == clean


def test_the_corruption_of_a_batch_has_a_place_for_every_code(stage: GPTStage) -> None:
    samples = 9_000
    host_batch = {
        "wave": np.zeros([2, samples], np.int16),
        "wave_lengths": np.array([samples, 8_000], np.int32),
        "text": np.ones([2, 4], np.int32),
        "text_lengths": np.array([4, 3], np.int32),
        "speaker": np.zeros(2, np.int32),
        "reference": np.zeros([2, 4_096], np.int16),
        "reference_lengths": np.array([4_096, 4_000], np.int32),
        "corruption": np.full([2, codes_of(samples)], 3, np.int32),
    }

    batch = stage.process(host_batch)

    assert batch["corruption"].shape == batch["codes"].shape
    assert batch["corruption"].dtype == batch["codes"].dtype
