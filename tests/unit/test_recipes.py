"""What flags make of a size's recipe: how long a stage is, and what a batch holds."""

from __future__ import annotations

from typing import Any

import pytest

from myxtts.config.config import XTTSConfig
from myxtts.training.recipes import length_of, recipe_for, with_batches_of
from myxtts.training.stages import CODEC, GPT


@pytest.mark.parametrize(
    ("given", "steps", "words"),
    [
        ({"max_steps": 5000}, 5000, "--max-steps"),
        ({"max_steps": 5000, "epochs": 20}, 200, "20 passes over the corpus (--epochs)"),
        ({"codec_steps": 4000, "gpt_steps": 7}, 4000, "--codec-steps"),
        ({"codec_steps": 4000, "max_steps": 5000}, 4000, "--codec-steps"),
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
