"""How each stage learns at each size: steps, batch, learning rate. Flags win over what stands here.

The tiny figures were found on two CPU cores with one to three hours of speech; the others scale them as is usual
for width and batch, and were not tried here for want of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from myxtts.config.config import XTTSConfig
from myxtts.config.model import ModelConfig
from myxtts.config.training import Stage, VoicePart

STAGES: tuple[Stage, ...] = ("codec", "gpt", "decoder")
STANDS_ON: dict[Stage, tuple[VoicePart, ...]] = {
    "codec": (),
    "gpt": ("dvae",),
    "decoder": ("dvae", "conditioning", "gpt"),
}
"""Parts that a stage finds trained."""


def parts_after(stage: Stage, model: ModelConfig) -> tuple[VoicePart, ...]:
    """Parts that speak once a stage is done; the last one is what the stage is for."""
    learnt: dict[Stage, tuple[VoicePart, ...]] = {
        "codec": ("dvae",),
        "gpt": ("conditioning", "gpt"),
        "decoder": model.decoder_parts,
    }
    return (*STANDS_ON[stage], *learnt[stage])


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
    beta_1: float = 0.9
    beta_2: float = 0.98
    clip_norm: float = 1.0
    """Longest gradient of each group."""
    reference_seconds: float = 3.0
    """Longest reference clip of the `gpt` stage; XTTS v2 takes up to 6 s, a corpus of short sentences has about 3."""
    ema: float = 0.0
    """Decay of the averaged weights; 0 keeps none."""


@dataclass(frozen=True, kw_only=True)
class DecoderSettings:
    """What HiFi-GAN's stage has beside its recipe."""

    segment_latents: int = 32
    """Latents of a segment, 46 ms each."""
    discriminator_start: int = 0
    """Steps before the discriminators join: they cost more than half of a step, and teach little until speech is
    roughly there."""
    discriminator_shrink: int = 1
    """Divides the widths of HiFi-GAN's discriminators."""
    speaker_seconds: float = 3.0
    """Longest piece of the reference that the speaker encoder reads in a step."""


# HiFi-GAN's optimiser.
_GAN = StageRecipe(
    steps=1, batch_size=16, learning_rate=2e-4, weight_decay=0.0, beta_1=0.8, beta_2=0.99, clip_norm=100.0
)

_TINY: dict[Stage, StageRecipe] = {
    # About 17 CPU-minutes.
    "codec": StageRecipe(steps=7000, batch_size=16, learning_rate=2e-3, warmup_steps=50),
    # 40 to 55 CPU-minutes; the held-out loss of half an hour of speech falls up to about step 6,000.
    "gpt": StageRecipe(steps=9000, batch_size=8, learning_rate=1e-3, reference_seconds=1.5),
    "decoder": replace(_GAN, steps=4000, batch_size=8, learning_rate=1e-3),
}
_SMALL: dict[Stage, StageRecipe] = {
    "codec": StageRecipe(steps=20_000, batch_size=64, learning_rate=5e-4),
    "gpt": StageRecipe(steps=60_000, batch_seconds=120.0, learning_rate=5e-4, warmup_steps=500),
    "decoder": replace(_GAN, steps=100_000),
}
_NORMAL: dict[Stage, StageRecipe] = {
    "codec": StageRecipe(steps=50_000, batch_size=64, learning_rate=3e-4),
    "gpt": StageRecipe(steps=150_000, batch_seconds=160.0, learning_rate=2e-4, warmup_steps=2000, ema=0.999),
    "decoder": replace(_GAN, steps=300_000, learning_rate=1e-4),
}
_BIG: dict[Stage, StageRecipe] = {
    **_NORMAL,
    "gpt": replace(_NORMAL["gpt"], learning_rate=5e-5, steps=200_000),
}
RECIPES: dict[str, dict[Stage, StageRecipe]] = {"tiny": _TINY, "small": _SMALL, "normal": _NORMAL, "big": _BIG}
"""Stage decoder is HiFi-GAN's here."""

# Without weight decay, which would wear a discriminator away that has not joined yet.
_LARGER_MEL = StageRecipe(steps=20_000, batch_seconds=120.0, learning_rate=3e-4, warmup_steps=500, weight_decay=0.0)
MEL_DECODER: dict[str, StageRecipe] = {
    # About 15 CPU-minutes.
    "tiny": StageRecipe(steps=1500, batch_size=8, learning_rate=2e-3, weight_decay=0.0, reference_seconds=1.5),
    "small": _LARGER_MEL,
    "normal": _LARGER_MEL,
    "big": _LARGER_MEL,
}
"""Stage decoder where it makes mels."""
MEL_DECODER_DISCRIMINATOR_START = 1 / 3
"""Share of the mel decoder's steps before its discriminator joins."""

DECODER: dict[str, DecoderSettings] = {
    "tiny": DecoderSettings(segment_latents=16, discriminator_start=3000, discriminator_shrink=8, speaker_seconds=1.0),
    "small": DecoderSettings(discriminator_start=5000),
    "normal": DecoderSettings(discriminator_start=5000),
    "big": DecoderSettings(discriminator_start=5000),
}


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


def stages_for(config: XTTSConfig) -> tuple[Stage, ...]:
    """The stages of a run, in order; of a run from a voice gpt and those whose parts the voice does not bring."""
    if config.training.stage is not None:
        return (config.training.stage,)
    inherited = set(config.training.init_parts)
    return tuple(stage for stage in STAGES if stage == "gpt" or not set(parts_after(stage, config.model)) <= inherited)


def discriminator_start_for(config: XTTSConfig, steps: int) -> int:
    """Steps of stage decoder before its discriminators join; one of HiFi-GAN with fewer `steps` than usual keeps a
    quarter of them for the discriminators."""
    given = config.training.discriminator_start
    if given is not None:
        return given
    if config.model.decoder == "mel":
        return int(steps * MEL_DECODER_DISCRIMINATOR_START)
    return min(DECODER[config.model.model_size].discriminator_start, 3 * steps // 4)


def fine_tuning_recipe(recipe: StageRecipe) -> StageRecipe:
    """The recipe for weights that can speak already."""
    return replace(
        recipe,
        learning_rate=recipe.learning_rate * FINE_TUNING.rate_share,
        steps=max(1, int(recipe.steps * FINE_TUNING.steps_share)),
    )


def recipe_for(config: XTTSConfig, stage: Stage) -> StageRecipe:
    """The size's recipe with what the flags say put over it."""
    size = config.model.model_size
    recipe = MEL_DECODER[size] if stage == "decoder" and config.model.decoder == "mel" else RECIPES[size][stage]
    if parts_after(stage, config.model)[-1] in config.training.init_parts:
        recipe = fine_tuning_recipe(recipe)
    if config.model.normed_conditioning:
        recipe = replace(recipe, reference_seconds=FINE_TUNING.xtts_reference_seconds)
    training, data = config.training, config.data
    given: dict[str, object] = {}
    if (asked := training.steps_asked_for(stage)) is not None:
        given["steps"] = asked[1]
    if training.learning_rate is not None:
        given["learning_rate"] = training.learning_rate
    if data.batch_size is not None:
        given["batch_size"] = data.batch_size
    if data.batch_seconds is not None:
        given.update(batch_size=data.batch_size, batch_seconds=data.batch_seconds)
    recipe = replace(recipe, **given)  # type: ignore[arg-type]
    return with_steps(recipe, recipe.steps)


def with_steps(recipe: StageRecipe, steps: int) -> StageRecipe:
    """The recipe over so many steps; a short one warms up for a tenth of them."""
    return replace(recipe, steps=steps, warmup_steps=min(recipe.warmup_steps, max(1, steps // 10)))
