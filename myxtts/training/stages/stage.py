"""What a stage is: the producer's half, the consumer's half, and the terms of its loss.

A loss term is a mean over some positions of a replica's batch; `counts` says over how many. The trainer weighs the
means by their counts over all replicas, so that a batch split over devices gives the gradient of the whole batch. A
figure without a count is shown as the mean over the replicas.

An adversarial stage has two parameter groups, generator and discriminator: each has variables of its own and learns
from the terms that name it. The first group is the one that the stage is for; the stage's loss is the sum of its
terms.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage as StageName
from myxtts.config.training import TrainingConfig
from myxtts.models.aligner import CTCNetwork
from myxtts.models.gpt import AlignmentHeads
from myxtts.models.layers import layers_in
from myxtts.models.xtts import XTTS
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.precision import choose_precision
from myxtts.runtime.seeds import keep_drawing_order

AnyLayer = TypeVar("AnyLayer")

Tensors = Mapping[str, Any]

WAVES_BS = tf.TensorSpec([None, None], tf.int16)
TOKENS_BU = tf.TensorSpec([None, None], tf.int32)
LENGTHS_B = tf.TensorSpec([None], tf.int32)
"""What host batches hold, of any size: the producer's functions are traced once for all of them."""


GENERATOR = "generator"
"""The only group of most stages."""


class LossTerm(NamedTuple):
    """A mean over this replica's positions, its weight in the loss, and who learns from it."""

    mean: tf.Tensor
    weight: Any = 1.0
    group: str = GENERATOR


class Objective(NamedTuple):
    """What one pass gives: terms to learn from, figures to show, tensors that the update after the step needs."""

    terms: dict[str, LossTerm]
    figures: dict[str, tf.Tensor]
    auxiliary: dict[str, tf.Tensor]

    def weighted(self, shares: Tensors, parameter_groups: Iterable[str]) -> dict[str, dict[str, tf.Tensor]]:
        """For each group its terms by name, each times its weight and this replica's share of its positions."""
        return {
            group: {
                name: term.weight * term.mean * shares[name] for name, term in self.terms.items() if term.group == group
            }
            for group in parameter_groups
        }


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """What a stage is built over."""

    config: XTTSConfig
    model: XTTS
    plan: DevicePlan
    data_device: str
    """Where `process` of this stage works; each of several data devices has a stage built for it."""
    steps: int
    """Of the whole stage."""
    pretrained: frozenset[str] = frozenset()
    """Parts whose weights came with a voice."""

    def frozen(self, part: str) -> Any:
        """A copy of the model's part on the data device; the part itself where both share the only device."""
        layer = getattr(self.model, part)
        if len(self.plan.roles) == 1:
            return layer
        precision = choose_precision(self.config.training.mixed_precision, self.plan, "data")
        with keep_drawing_order(), layers_in(precision), tf.device(self.data_device):
            return copy_weights(layer, type(layer)(self.config.model))


def copy_weights(source: AnyLayer, target: AnyLayer) -> AnyLayer:
    """The target, built under the caller's scope, with the source's weights."""
    target.build()  # type: ignore[attr-defined]
    for theirs, ours in zip(source.weights, target.weights, strict=True):  # type: ignore[attr-defined]
        ours.assign(theirs.numpy())
    return target


class TrainingStage(abc.ABC):
    """One stage over one model. `process` runs on the data device, everything else on the model's."""

    name: StageName
    measured_batches: int = 0
    """Processed batches that `measure` wants to see before the first step."""
    slower_layers: ClassVar[Mapping[str, float]] = {}
    """Layers that learn at a share of the stage's learning rate, by name."""
    postfilter: Mapping[str, list[float]] = MappingProxyType({})
    """For the part that makes mels, the gains that `validate_together` measured: see `myxtts.audio.postfilter`."""
    alignment_heads: AlignmentHeads | None = None
    """Heads of the GPT that alignments supervise here; None where the stage leaves the GPT as it is."""
    selects_best: ClassVar[bool] = True
    """Whether the held-out loss tells which of its weights speak best; a fine-tuning then ends with those."""
    takes_ctc_loss: ClassVar[bool] = False
    """Whether it makes mels that a CTC network can compare with the recording's: see `add_ctc_loss`."""

    @property
    @abc.abstractmethod
    def layers(self) -> dict[str, Any]:
        """The layers that this stage trains, by name: what is checkpointed."""

    @property
    def parameter_groups(self) -> dict[str, list[Any]]:
        """The variables of each group, the stage's own first; no variable is in two groups."""
        return {GENERATOR: [v for layer in self.layers.values() for v in layer.trainable_variables]}

    def build(self) -> None:  # noqa: B027
        """Make what only training needs; called once, under the strategy's scope and the model's device."""

    def add_ctc_loss(self, network: CTCNetwork, weight: float) -> None:  # noqa: B027
        """Learn also from the CTC perceptual loss by a trained aligner; only where `takes_ctc_loss`."""

    def initialise(self, seed: int) -> None:  # noqa: B027
        """Initial weights beyond those that layers are built with; not called for pretrained parts or a resumed run."""

    def measure(self, batches: list[Tensors]) -> None:  # noqa: B027
        """Set statistics from `measured_batches` batches before the first step; not called when a run is resumed."""

    def get_state(self) -> dict[str, Any]:
        """Plain values that a checkpoint keeps beside the variables, for `set_state`."""
        return {}

    def set_state(self, state: Mapping[str, Any], training: TrainingConfig) -> None:  # noqa: B027
        """Continue from a checkpoint's state, unless the settings say otherwise."""

    def ready_to_speak(self, step: int) -> bool:
        """Whether a voice is better with what this stage has learnt in so many steps than without."""
        return True

    def begin_step(self, step: int) -> bool:
        """Called before each step; true where the objective is another one from here on and must be compiled anew."""
        return False

    @abc.abstractmethod
    def process(self, host_batch: Mapping[str, Any]) -> Tensors:
        """A data device's work on one host batch, with the frozen parts and with nothing that is learnt here."""

    @abc.abstractmethod
    def from_mels(self, text: Any, mel: Any, text_lengths: Any, mel_lengths: Any) -> Tensors:
        """The same batch from mels, for the documented train step."""

    @abc.abstractmethod
    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        """For each term of the objective, the number of positions that its mean is over; figures may have one too."""

    @abc.abstractmethod
    def objective(self, batch: Tensors, *, seed: tf.Tensor | None, step: tf.Tensor) -> Objective:
        """The loss of one replica's batch; `seed` turns dropout on. Runs inside a tf.function."""

    def validate_together(self, batches: Sequence[Tensors]) -> dict[str, float]:
        """Figures that held-out batches give together, beside the means of their losses; none by default."""
        return {}

    def after_update(self, batch: Tensors, auxiliary: Tensors, *, step: tf.Tensor) -> None:  # noqa: B027
        """What changes beside the optimiser's variables after a step; nothing by default."""

    def check_health(self, step: int) -> None:  # noqa: B027
        """Raise a `TrainingError` where this stage has failed for good; called now and then."""

    @property
    def trainable_variables(self) -> list[Any]:
        return [v for variables in self.parameter_groups.values() for v in variables]

    @property
    def rate_shares(self) -> list[float]:
        """For each of the trainable variables the share of the learning rate that it learns at."""
        shares = {id(v): share for name, share in self.slower_layers.items() for v in self.layers[name].weights}
        return [shares.get(id(v), 1.0) for v in self.trainable_variables]

    @property
    def variables(self) -> dict[str, Any]:
        """Every variable of the stage's layers by a name that is unique and the same in every run."""
        return {f"{name}/{i:04d}": v for name, layer in self.layers.items() for i, v in enumerate(layer.weights)}
