"""What a stage is: the producer's half, the consumer's half, and the terms of its loss.

A loss term is a mean over some positions of a replica's batch; `counts` says over how many. The trainer weighs the
means by their counts over all replicas, so that a batch split over devices gives the gradient of the whole batch.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.config.training import Stage as StageName

Tensors = Mapping[str, Any]


class LossTerm(NamedTuple):
    """A mean over this replica's positions, and its weight in the loss."""

    mean: tf.Tensor
    weight: Any = 1.0


class Objective(NamedTuple):
    """What one pass gives: terms to learn from, figures to show, tensors that the update after the step needs."""

    terms: dict[str, LossTerm]
    figures: dict[str, tf.Tensor]
    aftermath: dict[str, tf.Tensor]


class TrainingStage(abc.ABC):
    """One stage over one model. `process` runs on the data device, everything else on the model's."""

    name: StageName

    @property
    @abc.abstractmethod
    def layers(self) -> dict[str, Any]:
        """The layers that this stage trains, by name: what is checkpointed and published."""

    @abc.abstractmethod
    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        """The producer's work on one host batch."""

    @abc.abstractmethod
    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        """The same batch from mels, for the documented train step."""

    @abc.abstractmethod
    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        """For each term of the objective, the number of positions that its mean is over."""

    @abc.abstractmethod
    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        """The loss of one replica's batch; `seed` turns dropout on. Runs inside a tf.function."""

    def after_update(self, batch: Tensors, aftermath: Tensors, *, step: tf.Tensor) -> None:  # noqa: B027
        """What changes beside the optimiser's variables after a step; nothing by default."""

    def check(self, step: int) -> None:  # noqa: B027
        """Raise a `TrainingError` where this stage has failed for good; called now and then."""

    @property
    def trainable_variables(self) -> list[Any]:
        return [v for layer in self.layers.values() for v in layer.trainable_variables]

    @property
    def variables(self) -> dict[str, Any]:
        """Every variable of the stage's layers by a name that is unique and the same in every run."""
        return {f"{name}/{i:04d}": v for name, layer in self.layers.items() for i, v in enumerate(layer.weights)}
