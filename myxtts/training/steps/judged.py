"""A stage whose model learns against judges, which learn to tell what it makes from what was recorded.

What learns from distances alone makes the mean of everything that its input may have stood for, which is smoother than
any of it. The judges join once the model has learnt from distances for a while: until then they teach little.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from myxtts.config.training import TrainingConfig
from myxtts.models.discriminators import FEATURE_WEIGHT, adversarial_loss, discriminator_loss, feature_loss
from myxtts.training.steps.stage import MODEL, LossTerm, TrainingStage

JUDGES = "judges"


class JudgedStage(TrainingStage):
    """Two players: the model, and judges that speaking never needs."""

    adversarial_weight: ClassVar[float] = 1.0
    feature_weight: ClassVar[float] = FEATURE_WEIGHT

    def __init__(self, mel_only_steps: int) -> None:
        self.mel_only_steps = mel_only_steps
        self._judged = mel_only_steps == 0

    @abc.abstractmethod
    def make_judges(self) -> Any:
        """A layer that says of a batch what each of its judges finds."""

    @property
    @abc.abstractmethod
    def learners(self) -> list[Any]:
        """The layers of the model that learn."""

    def build(self) -> None:
        self.judges = self.make_judges()
        self.judges.build()

    @property
    def players(self) -> dict[str, list[Any]]:
        return {
            MODEL: [v for layer in self.learners for v in layer.trainable_variables],
            JUDGES: list(self.judges.trainable_variables),
        }

    def kept(self) -> dict[str, Any]:
        return {"mel_only_steps": self.mel_only_steps}

    def resume(self, kept: Mapping[str, Any], training: TrainingConfig) -> None:
        """A run with other steps than before keeps its judges, or goes on without them, as it began."""
        if training.mel_only_steps is None and "mel_only_steps" in kept:
            self.mel_only_steps = kept["mel_only_steps"]

    def begin_step(self, step: int) -> bool:
        judged = step >= self.mel_only_steps
        changed, self._judged = judged != self._judged, judged
        return changed

    def judged_counts(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict.fromkeys(("adversarial", "features", JUDGES), tf.cast(rows, tf.float32))

    def judged_terms(self, real: tf.Tensor, made: tf.Tensor, *, learning: bool) -> dict[str, LossTerm]:
        """None before the judges join, and none held out: what they say changes as they learn."""
        if not (self._judged and learning):
            return {}
        # One look at what was made serves both: each player's gradient is taken for its own variables only.
        of_real, of_made = self.judges(real), self.judges(made)
        return {
            "adversarial": LossTerm(adversarial_loss(of_made), self.adversarial_weight),
            "features": LossTerm(feature_loss(of_real, of_made), self.feature_weight),
            JUDGES: LossTerm(discriminator_loss(of_real, of_made), player=JUDGES),
        }
