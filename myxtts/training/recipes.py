"""How each stage learns at each size: steps, batch, learning rate. Flags win over what stands here.

The tiny figures were found on two CPU cores with one to three hours of speech; the others scale them as is usual
for width and batch, and were not tried here for want of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage

STAGES: tuple[Stage, ...] = ("codec", "gpt", "decoder")


@dataclass(frozen=True, kw_only=True)
class StageRecipe:
    """Settings of one stage at one size."""

    steps: int
    batch_size: int | None = None
    batch_seconds: float = 120.0
    learning_rate: float
    warmup_steps: int = 100
    final_share: float = 0.05
    """Share of the highest learning rate that is left at the end of the cosine."""
    weight_decay: float = 0.01
    beta_2: float = 0.98
    clip_norm: float = 1.0
    ema: float = 0.0
    """Decay of the averaged weights; 0 keeps none."""


_TINY: dict[Stage, StageRecipe] = {
    "codec": StageRecipe(steps=1500, batch_size=24, learning_rate=2e-3, warmup_steps=50),
    "gpt": StageRecipe(steps=6000, batch_size=8, learning_rate=1e-3),
    "decoder": StageRecipe(steps=4000, batch_size=8, learning_rate=2e-4, weight_decay=0.0),
}
_SMALL: dict[Stage, StageRecipe] = {
    "codec": StageRecipe(steps=20_000, batch_size=64, learning_rate=5e-4),
    "gpt": StageRecipe(steps=60_000, batch_seconds=120.0, learning_rate=5e-4, warmup_steps=500),
    "decoder": StageRecipe(steps=100_000, batch_size=16, learning_rate=2e-4, weight_decay=0.0),
}
_NORMAL: dict[Stage, StageRecipe] = {
    "codec": StageRecipe(steps=50_000, batch_size=64, learning_rate=3e-4),
    "gpt": StageRecipe(steps=150_000, batch_seconds=160.0, learning_rate=2e-4, warmup_steps=2000, ema=0.999),
    "decoder": StageRecipe(steps=300_000, batch_size=16, learning_rate=1e-4, weight_decay=0.0),
}
_BIG: dict[Stage, StageRecipe] = {
    **_NORMAL,
    "gpt": replace(_NORMAL["gpt"], learning_rate=5e-5, steps=200_000),
}
RECIPES: dict[str, dict[Stage, StageRecipe]] = {"tiny": _TINY, "small": _SMALL, "normal": _NORMAL, "big": _BIG}


def recipe_for(config: XTTSConfig, stage: Stage) -> StageRecipe:
    """The size's recipe with what the flags say put over it."""
    recipe = RECIPES[config.model.model_size][stage]
    training, data = config.training, config.data
    given: dict[str, object] = {}
    if training.max_steps is not None:
        given["steps"] = training.max_steps
    if training.learning_rate is not None:
        given["learning_rate"] = training.learning_rate
    if data.batch_size is not None:
        given["batch_size"] = data.batch_size
    if data.batch_seconds is not None:
        given.update(batch_size=data.batch_size, batch_seconds=data.batch_seconds)
    recipe = replace(recipe, **given)  # type: ignore[arg-type]
    return replace(recipe, warmup_steps=min(recipe.warmup_steps, max(1, recipe.steps // 10)))
