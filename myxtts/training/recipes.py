"""How long and how fast a stage of a run learns: the size's recipe, with what the settings say put over it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.presets import given
from myxtts.config.training import OPTIMISER_SETTINGS, TrainingConfig
from myxtts.training.stages import stage_named, stages_of
from myxtts.training.stages.spec import StageRecipe, StageSpec

DEFAULT_EPOCHS = 250
"""Where neither passes nor steps are asked for: a recipe's steps are too many for a few minutes of speech. Half an
hour has all of them."""
FINE_TUNING_EPOCHS = (3, 40)
"""Fewest and most passes of a fine-tuning: an hour or more is learnt three times, a minute no more than forty."""
XTTS_REFERENCE_SECONDS = 6.0
"""Longest reference for published weights: XTTS v2 was trained with 3 to 6 s, and batches have all or half."""


def stages_to_run(config: XTTSConfig) -> tuple[StageSpec, ...]:
    """The stages of a run, in order; of a fine-tuning those that are fine-tuned or whose parts the voice lacks."""
    if config.training.stage is not None:
        return (stage_named(config.training.stage, config.model),)
    inherited = set(config.training.init_parts)
    return tuple(
        spec for spec in stages_of(config.model) if spec.fine_tuned or not {*spec.requires, *spec.learns} <= inherited
    )


def is_fine_tuning(config: XTTSConfig, spec: StageSpec) -> bool:
    """Whether the stage goes on from the weights of the voice of `--init-from`."""
    return spec.purpose in config.training.init_parts


def recipe_for(config: XTTSConfig, spec: StageSpec) -> StageRecipe:
    """The size's recipe; settings that were given win over it."""
    recipe = spec.recipes[config.model.model_size]
    if is_fine_tuning(config, spec):
        shares = spec.fine_tuning
        recipe = replace(
            recipe,
            learning_rate=recipe.learning_rate * shares.rate_share,
            steps=max(1, int(recipe.steps * shares.steps_share)),
        )
    if config.model.normed_conditioning:
        recipe = replace(recipe, reference_seconds=XTTS_REFERENCE_SECONDS)
    training, data = config.training, config.data
    over = given(training, OPTIMISER_SETTINGS) | given(data, ("batch_size",))
    if (asked := training.steps_asked_for(spec.name)) is not None:
        over["steps"] = asked[1]
    if data.batch_seconds is not None:
        over.update(batch_size=data.batch_size, batch_seconds=data.batch_seconds)
    recipe = replace(recipe, **over)
    return with_steps(recipe, recipe.steps)


def with_steps(recipe: StageRecipe, steps: int) -> StageRecipe:
    """The recipe over so many steps; a short one warms up for a tenth of them."""
    return replace(recipe, steps=steps, warmup_steps=min(recipe.warmup_steps, max(1, steps // 10)))


@dataclass(frozen=True)
class StageLength:
    """The steps of a whole stage."""

    steps: int
    ended_by: str
    """What ends it there, for the log."""


def length_of(config: XTTSConfig, spec: StageSpec, batches_per_epoch: int) -> StageLength:
    """The steps that were asked for or the recipe's, and no more than the passes over the corpus asked for."""
    training, recipe = config.training, recipe_for(config, spec)
    asked = training.steps_asked_for(spec.name)
    by_steps = "the recipe's steps" if asked is None else asked[0]
    epochs = training.epochs
    if epochs is None:
        if asked is not None:
            return StageLength(recipe.steps, by_steps)
        epochs = DEFAULT_EPOCHS
        if is_fine_tuning(config, spec):
            fewest, epochs = FINE_TUNING_EPOCHS
            recipe = replace(recipe, steps=max(recipe.steps, _steps_of(fewest, batches_per_epoch, training)))
    passes = _steps_of(epochs, batches_per_epoch, training)
    if passes < recipe.steps:
        by_epochs = "--epochs" if training.epochs is not None else "--epochs or --max-steps change that"
        return StageLength(passes, f"{epochs} passes over the corpus ({by_epochs})")
    return StageLength(recipe.steps, by_steps)


def _steps_of(epochs: int, batches_per_epoch: int, training: TrainingConfig) -> int:
    return max(1, math.ceil(epochs * batches_per_epoch / training.grad_accum))


def with_batches_of(recipe: StageRecipe, data: DataConfig) -> DataConfig:
    """The settings with the limits of a stage's batches: clips or seconds, as its recipe has them, or both by flag."""
    seconds = recipe.batch_seconds if recipe.batch_size is None or data.batch_seconds is not None else None
    return replace(data, batch_size=recipe.batch_size, batch_seconds=seconds)
