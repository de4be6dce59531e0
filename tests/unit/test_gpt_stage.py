"""What stage `gpt` sees of its references: whether they are told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from myxtts.config.config import XTTSConfig
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


def test_references_that_differ_are_told_apart_whatever_batches_they_come_in(stage: GPTStage) -> None:
    whole = references(6)
    halves = [{name: tensor[rows] for name, tensor in whole.items()} for rows in (slice(0, 3), slice(3, 6))]

    spread = stage.validate_together([whole])["conditioning_variation"]

    assert COLLAPSED_VARIATION < spread < 1
    assert stage.validate_together(halves)["conditioning_variation"] == pytest.approx(spread, rel=1e-4)


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
