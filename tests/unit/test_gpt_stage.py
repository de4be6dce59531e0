"""What stage `gpt` sees of its references: whether they are told apart."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.training.steps.gpt import IGNORED_SPREAD, GPTStage
from tests.small_model import SIZES


@pytest.fixture
def stage() -> GPTStage:
    config = XTTSConfig(model_size="tiny", text_vocab=16, **SIZES).model
    parts = GPT(config), Conditioning(config), DVAE(config)
    for part in parts:
        part.build()
    return GPTStage(*parts)


def references(clips: int, seed: int) -> dict[str, Any]:
    mel = tf.random.stateless_normal([clips, 40, 80], [seed, 1])
    return {"reference": mel, "reference_lengths": tf.fill([clips], 40)}


def test_references_that_differ_are_told_apart_whatever_batches_they_come_in(stage: GPTStage) -> None:
    whole = references(6, seed=1)
    halves = [{name: tensor[rows] for name, tensor in whole.items()} for rows in (slice(0, 3), slice(3, 6))]

    spread = stage.look_over([whole])["reference_spread"]

    assert IGNORED_SPREAD < spread < 1
    assert stage.look_over(halves)["reference_spread"] == pytest.approx(spread, rel=1e-4)


def test_latents_that_see_nothing_of_the_reference_have_no_spread(stage: GPTStage) -> None:
    for weight in stage.conditioning.weights:
        if "key_value" in weight.path:
            weight.assign(tf.zeros_like(weight))

    assert stage.look_over([references(3, seed=1)])["reference_spread"] < 1e-5


def test_one_reference_alone_says_nothing(stage: GPTStage) -> None:
    assert stage.look_over([references(1, seed=1)]) == {}
