"""What a stage is, declared in one object. Pure: commands read it before TensorFlow is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from myxtts.config.model import DecoderKind, ModelConfig
from myxtts.config.training import Stage

if TYPE_CHECKING:
    from myxtts.training.stages.stage import StageContext, TrainingStage


@dataclass(frozen=True, kw_only=True)
class StageRecipe:
    """How a stage learns at one size: steps, batch, optimiser."""

    steps: int
    batch_size: int | None = None
    batch_seconds: float = 120.0
    learning_rate: float
    warmup_steps: int = 100
    final_learning_rate_share: float = 0.05
    """Share of the highest learning rate that is left at the end of the cosine."""
    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.98
    clip_norm: float = 1.0
    """Largest global norm of each parameter group's gradient."""
    reference_seconds: float = 3.0
    """Longest reference clip; XTTS v2 takes up to 6 s, a corpus of short sentences has about 3."""
    ema: float = 0.0
    """Decay of the averaged weights that the voice gets; 0 keeps none."""


@dataclass(frozen=True, kw_only=True)
class BatchFeatures:
    """What a stage's batches hold beside waves and texts, and which augmentation they may have while learning."""

    text: bool = True
    """Whether the stage reads texts: its weights then fit one vocabulary only."""
    reference: bool = False
    """A reference clip of the same speaker."""
    voice_reference: bool = False
    """One too, but only where the model has a voice vector."""
    alignment: bool = False
    """Forced alignments of text and audio, where the run has an aligner."""
    concatenation: bool = False
    code_offset: bool = False
    """Clips begin at any sample of their first code, so that the same speech gives other codes."""
    speed_perturbation: bool = False
    """Implies `code_offset`."""
    text_dropout: bool = False
    token_corruption: bool = False


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What changes in a stage that goes on from a voice's own weights."""

    rate_share: float = 0.1
    """Of the learning rate from scratch: at the size big it gives 5e-6, XTTS v2's own rate for fine-tuning."""
    steps_share: float = 0.1
    """Of the steps from scratch."""


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """One stage: what it learns from what, how, and where its code is."""

    name: Stage
    module: str
    """The module whose `build(context)` makes the stage; imported when it runs, for it imports TensorFlow."""
    requires: tuple[str, ...]
    """Parts that must be trained before; the producer computes with frozen copies of them."""
    learns: tuple[str, ...]
    """Parts that it trains, the one that it is for last."""
    separable: tuple[str, ...] = ()
    """Those of `learns` that can be taken from another voice without the others."""
    recipes: Mapping[str, StageRecipe]
    """By size of the model."""
    features: BatchFeatures = field(default_factory=BatchFeatures)
    decoder: DecoderKind | None = None
    """The decoder of the models that have this stage; None for all models."""
    fine_tuned: bool = False
    """Whether it runs in a fine-tuning although the voice has its parts already."""
    fine_tuning: FineTuning = FineTuning()

    @property
    def purpose(self) -> str:
        """The part by which one sees that the stage has learnt."""
        return self.learns[-1]

    def belongs_to(self, model: ModelConfig) -> bool:
        return self.decoder is None or self.decoder == model.decoder

    def build(self, context: StageContext) -> TrainingStage:
        """The stage itself, over the context's model. Call it outside any strategy's scope."""
        stage: TrainingStage = importlib.import_module(self.module).build(context)
        return stage
