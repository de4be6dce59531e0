"""A stage whose generator learns against discriminators.

A regression loss alone gives the mean of everything that the input may have stood for, which is smoother than speech.
The discriminators join after `discriminator_start` steps: until then they teach little and cost more than the rest.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from myxtts.config.training import TrainingConfig
from myxtts.models.discriminators import FEATURE_WEIGHT, adversarial_loss, discriminator_loss, feature_loss
from myxtts.training.stages.stage import GENERATOR, LossTerm, TrainingStage

DISCRIMINATORS = "discriminators"


class AdversarialStage(TrainingStage):
    """Two parameter groups: the generator, and discriminators that speaking never needs."""

    # Against discriminators it sounds better while its distances grow.
    selects_best: ClassVar[bool] = False
    adversarial_weight: ClassVar[float] = 1.0
    feature_weight: ClassVar[float] = FEATURE_WEIGHT

    def __init__(self, discriminator_start: int) -> None:
        self.discriminator_start = discriminator_start
        self._adversarial = discriminator_start == 0

    @abc.abstractmethod
    def make_discriminators(self) -> Any:
        """A layer that gives, for a batch, the scores and features of each discriminator."""

    @property
    @abc.abstractmethod
    def learners(self) -> list[Any]:
        """The layers of the generator that learn."""

    def build(self) -> None:
        self.discriminators = self.make_discriminators()
        self.discriminators.build()

    @property
    def parameter_groups(self) -> dict[str, list[Any]]:
        return {
            GENERATOR: [v for layer in self.learners for v in layer.trainable_variables],
            DISCRIMINATORS: list(self.discriminators.trainable_variables),
        }

    def get_state(self) -> dict[str, Any]:
        return {"discriminator_start": self.discriminator_start}

    def set_state(self, state: Mapping[str, Any], training: TrainingConfig) -> None:
        """A run with other steps than before keeps the start of its discriminators, unless the settings name one."""
        if training.discriminator_start is None and "discriminator_start" in state:
            self.discriminator_start = state["discriminator_start"]

    def begin_step(self, step: int) -> bool:
        adversarial = step >= self.discriminator_start
        changed, self._adversarial = adversarial != self._adversarial, adversarial
        return changed

    def adversarial_counts(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict.fromkeys(("adversarial", "features", DISCRIMINATORS), tf.cast(rows, tf.float32))

    def adversarial_terms(self, real: tf.Tensor, made: tf.Tensor, *, learning: bool) -> dict[str, LossTerm]:
        """None before the discriminators join, and none in validation: their scores change as they learn."""
        if not (self._adversarial and learning):
            return {}
        # One pass serves both losses: each group's gradient is taken for its own variables only.
        of_real, of_made = self.discriminators(real), self.discriminators(made)
        return {
            "adversarial": LossTerm(adversarial_loss(of_made), self.adversarial_weight),
            "features": LossTerm(feature_loss(of_real, of_made), self.feature_weight),
            DISCRIMINATORS: LossTerm(discriminator_loss(of_real, of_made), group=DISCRIMINATORS),
        }
