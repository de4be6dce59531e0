"""What settings change of a size's recipe: how long a stage is, what a batch holds, and the optimiser."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.errors import ConfigError
from myxtts.training.recipes import length_of, recipe_for, stages_to_run, with_batches_of
from myxtts.training.stages import CODEC, GPT, stage_named


def test_a_stage_that_the_model_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError, match="--stage 'speech' is not known") as caught:
        stages_to_run(XTTSConfig(model_size="tiny", stage="speech"))

    assert "codec, decoder, gpt" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "steps", "words"),
    [
        ({"max_steps": 5000}, 5000, "--max-steps"),
        ({"max_steps": 5000, "epochs": 20}, 200, "20 passes over the corpus (--epochs)"),
        ({"codec_steps": 4000, "gpt_steps": 7}, 4000, "setting codec_steps"),
        ({"codec_steps": 4000, "max_steps": 5000}, 4000, "setting codec_steps"),
        ({"gpt_steps": 4000, "max_steps": 5000}, 5000, "--max-steps"),
        ({"epochs": 2000}, 7000, "the recipe's steps"),
        ({}, 2500, "250 passes over the corpus (--epochs or --max-steps change that)"),
        ({"grad_accum": 3}, 834, "250 passes over the corpus (--epochs or --max-steps change that)"),
    ],
)
def test_a_stage_is_as_long_as_was_asked_and_says_what_ends_it(given: dict[str, int], steps: int, words: str) -> None:
    length = length_of(XTTSConfig(model_size="tiny", **given), CODEC, batches_per_epoch=10)

    assert (length.steps, length.ended_by) == (steps, words)


@pytest.mark.parametrize(
    ("given", "clips", "seconds"),
    [
        ({}, 8, None),
        ({"batch_size": 3}, 3, None),
        ({"batch_seconds": 10.0}, None, 10.0),
        ({"batch_size": 3, "batch_seconds": 10.0}, 3, 10.0),
    ],
)
def test_a_batch_has_the_limits_that_were_given_and_no_others(
    given: dict[str, Any], clips: int | None, seconds: float | None
) -> None:
    config = XTTSConfig(model_size="tiny", **given)

    limits = with_batches_of(recipe_for(config, GPT), config.data)

    assert (limits.batch_size, limits.batch_seconds) == (clips, seconds)


@pytest.mark.parametrize("stage", ["codec", "gpt", "decoder"])
def test_the_optimiser_s_settings_win_over_the_recipe_s_and_none_leaves_them(stage: Stage) -> None:
    tiny = XTTSConfig(model_size="tiny")
    spec = stage_named(stage, tiny.model)
    config = XTTSConfig(
        model_size="tiny", beta_1=0.7, beta_2=0.95, weight_decay=0.2, warmup_steps=7, ema=0.9, clip_norm=3.0,
        final_learning_rate_share=0.5, learning_rate=0.25,
    )  # fmt: skip
    recipe, own = recipe_for(config, spec), recipe_for(tiny, spec)

    assert (recipe.beta_1, recipe.beta_2, recipe.weight_decay) == (0.7, 0.95, 0.2)
    assert (recipe.warmup_steps, recipe.ema, recipe.clip_norm) == (7, 0.9, 3.0)
    assert (recipe.final_learning_rate_share, recipe.learning_rate) == (0.5, 0.25)
    assert (recipe.steps, recipe.batch_size) == (own.steps, own.batch_size)
    assert recipe_for(XTTSConfig(model_size="tiny", weight_decay=0.0, ema=0.0), spec).weight_decay == 0.0
    assert recipe_for(XTTSConfig(model_size="tiny", beta_2=0.95), spec) == dataclasses.replace(own, beta_2=0.95)
