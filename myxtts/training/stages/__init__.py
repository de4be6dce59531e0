"""The registry of stages, in the order in which they run. To add one: a module here with `build`, and an entry below.

The figures of the tiny size were found on two CPU cores with one to three hours of speech; the others scale them as is
usual for width and batch, and were not tried here for want of a GPU.
"""

from __future__ import annotations

from dataclasses import replace

from myxtts.config.model import ModelConfig
from myxtts.config.suggest import unknown_name
from myxtts.config.training import Stage
from myxtts.training.stages.spec import BatchFeatures, FineTuning, StageRecipe, StageSpec

_CODEC_NORMAL = StageRecipe(steps=50_000, batch_size=64, learning_rate=3e-4)
CODEC = StageSpec(
    name="codec",
    module="myxtts.training.stages.codec",
    requires=(),
    learns=("dvae",),
    features=BatchFeatures(text=False, voice_reference=True),
    recipes={
        # About 17 CPU-minutes.
        "tiny": StageRecipe(steps=7000, batch_size=16, learning_rate=2e-3, warmup_steps=50),
        "small": StageRecipe(steps=20_000, batch_size=64, learning_rate=5e-4),
        "normal": _CODEC_NORMAL,
        "big": _CODEC_NORMAL,
    },
)

_GPT_NORMAL = StageRecipe(steps=150_000, batch_seconds=160.0, learning_rate=2e-4, warmup_steps=2000, ema=0.999)
GPT = StageSpec(
    name="gpt",
    module="myxtts.training.stages.gpt",
    requires=("dvae",),
    learns=("conditioning", "gpt"),
    fine_tuned=True,
    features=BatchFeatures(
        reference=True,
        alignment=True,
        concatenation=True,
        code_offset=True,
        speed_perturbation=True,
        text_dropout=True,
        token_corruption=True,
    ),
    recipes={
        # 40 to 55 CPU-minutes; the held-out loss of half an hour of speech falls up to about step 6,000.
        "tiny": StageRecipe(steps=9000, batch_size=8, learning_rate=1e-3, reference_seconds=1.5),
        "small": StageRecipe(steps=60_000, batch_seconds=120.0, learning_rate=5e-4, warmup_steps=500),
        "normal": _GPT_NORMAL,
        "big": replace(_GPT_NORMAL, learning_rate=5e-5, steps=200_000),
    },
)

# Without weight decay, which would wear a discriminator away that has not joined yet.
_MEL_LARGER = StageRecipe(steps=20_000, batch_seconds=120.0, learning_rate=3e-4, warmup_steps=500, weight_decay=0.0)
MEL_DECODER = StageSpec(
    name="decoder",
    module="myxtts.training.stages.mel_decoder",
    decoder="mel",
    requires=("dvae", "conditioning", "gpt"),
    learns=("mel_decoder",),
    fine_tuned=True,
    fine_tuning=FineTuning(rate_share=0.25, steps_share=0.5),
    # The speed of the recordings is kept: its mels are what becomes sound.
    features=BatchFeatures(reference=True, alignment=True, concatenation=True, code_offset=True),
    recipes={
        # About 15 CPU-minutes.
        "tiny": StageRecipe(steps=1500, batch_size=8, learning_rate=2e-3, weight_decay=0.0, reference_seconds=1.5),
        "small": _MEL_LARGER,
        "normal": _MEL_LARGER,
        "big": _MEL_LARGER,
    },
)

# HiFi-GAN's optimiser.
_GAN = StageRecipe(
    steps=300_000, batch_size=16, learning_rate=1e-4, weight_decay=0.0, beta_1=0.8, beta_2=0.99, clip_norm=100.0
)
HIFIGAN = StageSpec(
    name="decoder",
    module="myxtts.training.stages.hifigan",
    decoder="hifigan",
    requires=("dvae", "conditioning", "gpt"),
    learns=("speaker_encoder", "hifigan"),
    separable=("speaker_encoder",),
    features=BatchFeatures(reference=True),
    recipes={
        "tiny": replace(_GAN, steps=4000, batch_size=8, learning_rate=1e-3),
        "small": replace(_GAN, steps=100_000, learning_rate=2e-4),
        "normal": _GAN,
        "big": _GAN,
    },
)

STAGES = [CODEC, GPT, MEL_DECODER, HIFIGAN]


def stage_names() -> tuple[Stage, ...]:
    """Of all models' stages, in order."""
    return tuple(dict.fromkeys(spec.name for spec in STAGES))


def stages_of(model: ModelConfig) -> tuple[StageSpec, ...]:
    """The stages that train this model, in order."""
    return tuple(spec for spec in STAGES if spec.belongs_to(model))


def stage_named(name: Stage, model: ModelConfig) -> StageSpec:
    """The stage of that name for this model; raises a `ConfigError` for a name that there is not."""
    found = {spec.name: spec for spec in stages_of(model)}
    if name not in found:
        raise unknown_name("--stage", name, found)
    return found[name]


def stages_before(spec: StageSpec, model: ModelConfig) -> tuple[StageSpec, ...]:
    """The stages of this model that must be done before this one."""
    stages = stages_of(model)
    return stages[: stages.index(spec)]


def stages_after(spec: StageSpec, model: ModelConfig) -> tuple[StageSpec, ...]:
    """The stages of this model that learn from what this one has learnt."""
    stages = stages_of(model)
    return stages[stages.index(spec) + 1 :]


def parts_after(spec: StageSpec, model: ModelConfig) -> tuple[str, ...]:
    """What a voice of this model has once this stage and all before it are done."""
    return tuple(part for other in (*stages_before(spec, model), spec) for part in other.learns)


def needed_with(part: str) -> tuple[str, ...]:
    """The parts without which this one of a voice is of no use: those trained before it and those trained with it."""
    for spec in STAGES:
        if part in spec.learns and part not in spec.separable:
            return (*reversed(spec.requires), *(other for other in spec.learns if other != part))
    return ()
