"""How many steps a stage has, and which setting says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.training.recipes import recipe_for

DEFAULT_EPOCHS = 250
"""Where neither passes nor steps are asked for: a recipe's steps are too many for a few minutes of speech. Half an
hour has all of them."""


@dataclass(frozen=True)
class StageLength:
    """The steps of a whole stage."""

    steps: int
    ended_by: str
    """What ends it there, for the log."""


def length_of(config: XTTSConfig, stage: Stage, batches_per_epoch: int) -> StageLength:
    """The steps that were asked for or the recipe's, and no more than the passes over the corpus asked for."""
    training, recipe = config.training, recipe_for(config, stage)
    asked = training.steps_asked_for(stage)
    by_steps = "the recipe's steps" if asked is None else asked[0]
    epochs = training.epochs
    if epochs is None:
        if asked is not None:
            return StageLength(recipe.steps, by_steps)
        epochs = DEFAULT_EPOCHS
    passes = max(1, math.ceil(epochs * batches_per_epoch / training.grad_accum))
    if passes < recipe.steps:
        given = "--epochs" if training.epochs is not None else "--epochs or --max-steps change that"
        return StageLength(passes, f"{epochs} passes over the corpus ({given})")
    return StageLength(recipe.steps, by_steps)
