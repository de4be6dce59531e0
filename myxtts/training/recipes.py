"""How long and how fast a stage of a run learns: the size's recipe, with what the settings say put over it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.presets import given
from myxtts.config.training import OPTIMISER_SETTINGS
from myxtts.training.stages import stage_named, stages_of
from myxtts.training.stages.spec import StageRecipe, StageSpec

DEFAULT_EPOCHS = 250
"""Where neither passes nor steps are asked for: a recipe's steps are too many for a few minutes of speech. Half an
hour has all of them."""


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What changes in a stage whose part came with `--init-from`."""

    rate_share: float = 0.1
    """Of the learning rate from scratch: at the size big it gives 5e-6, XTTS v2's own rate for fine-tuning."""
    steps_share: float = 0.1
    """Of the steps from scratch; the held-out loss says when a small corpus has had enough."""
    xtts_reference_seconds: float = 6.0
    """Longest reference for published weights: XTTS v2 was trained with 3 to 6 s, and batches have all or half."""


FINE_TUNING = FineTuning()


def stages_to_run(config: XTTSConfig) -> tuple[StageSpec, ...]:
    """The stages of a run, in order; of a fine-tuning those that are fine-tuned or whose parts the voice lacks."""
    if config.training.stage is not None:
        return (stage_named(config.training.stage, config.model),)
    inherited = set(config.training.init_parts)
    return tuple(
        spec for spec in stages_of(config.model) if spec.fine_tuned or not {*spec.requires, *spec.learns} <= inherited
    )


def fine_tuning_recipe(recipe: StageRecipe) -> StageRecipe:
    """The recipe for weights that can speak already."""
    return replace(
        recipe,
        learning_rate=recipe.learning_rate * FINE_TUNING.rate_share,
        steps=max(1, int(recipe.steps * FINE_TUNING.steps_share)),
    )


def recipe_for(config: XTTSConfig, spec: StageSpec) -> StageRecipe:
    """The size's recipe; settings that were given win over it."""
    recipe = spec.recipes[config.model.model_size]
    if spec.purpose in config.training.init_parts:
        recipe = fine_tuning_recipe(recipe)
    if config.model.normed_conditioning:
        recipe = replace(recipe, reference_seconds=FINE_TUNING.xtts_reference_seconds)
    training, data = config.training, config.data
    over = given(training, OPTIMISER_SETTINGS) | given(data, ("batch_size",))
    if training.final_learning_rate_share is not None:
        over["final_share"] = training.final_learning_rate_share
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
    passes = max(1, math.ceil(epochs * batches_per_epoch / training.grad_accum))
    if passes < recipe.steps:
        by_epochs = "--epochs" if training.epochs is not None else "--epochs or --max-steps change that"
        return StageLength(passes, f"{epochs} passes over the corpus ({by_epochs})")
    return StageLength(recipe.steps, by_steps)


def with_batches_of(recipe: StageRecipe, data: DataConfig) -> DataConfig:
    """The settings with the limits of a stage's batches: clips or seconds, as its recipe has them, or both by flag."""
    seconds = recipe.batch_seconds if recipe.batch_size is None or data.batch_seconds is not None else None
    return replace(data, batch_size=recipe.batch_size, batch_seconds=seconds)
