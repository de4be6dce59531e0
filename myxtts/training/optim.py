"""AdamW, the same under every strategy: gradients are summed over replicas, averaged over batches, clipped, applied.

Keras's optimisers clip each replica before the reduction and cannot accumulate under MirroredStrategy. This one takes
gradients that are already the same on all replicas and updates every copy with TensorFlow's fused kernel; it also
traces in a tenth of the time, which is what a user waits for before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from myxtts.training.stages.spec import StageRecipe

EPSILON = 1e-8
FIRST_SCALE = 2.0**15
LARGEST_SCALE = 2.0**24
GROW_AFTER_STEPS = 2000


def learning_rate_at(recipe: StageRecipe, step: int) -> float:
    """Linear warm-up to the highest rate, then a cosine down to `final_learning_rate_share` of it at the last step."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    final = recipe.final_learning_rate_share
    return recipe.learning_rate * (final + (1.0 - final) * cosine)


class AdamW:
    """Moments and, where the recipe asks, averaged weights. Build it under the strategy's scope."""

    def __init__(
        self, recipe: StageRecipe, variables: list[Any], strategy: Any, *, rate_shares: list[float] | None = None
    ) -> None:
        """`rate_shares`: for each variable the share of the learning rate that it learns at; all of it by default."""
        self._recipe = recipe
        self._strategy = strategy
        self._rate_shares = [1.0] * len(variables) if rate_shares is None else rate_shares
        self._targets = [variable.value for variable in variables]
        self._moments = [_zeros_like(target) for target in self._targets]
        self._squares = [_zeros_like(target) for target in self._targets]
        self._averages = [_copy_of(target) for target in self._targets] if recipe.ema else []
        # Vectors are biases and gains; pulling those to 0 does harm.
        self._decays = [recipe.weight_decay > 0.0 and len(target.shape) > 1 for target in self._targets]

    @property
    def variables(self) -> list[Any]:
        return [*self._moments, *self._squares, *self._averages]

    @contextmanager
    def averages_in_place(self) -> Iterator[None]:
        """The variables hold their averages inside, and what they held before afterwards; nothing without averages."""
        before = [target.numpy() for target in self._targets] if self._averages else []
        self.adopt_averages()
        try:
            yield
        finally:
            for target, value in zip(self._targets, before, strict=False):
                target.assign(value)

    def adopt_averages(self) -> None:
        """The variables take their averages for good; nothing without averages."""
        for target, average in zip(self._targets, self._averages, strict=False):
            target.assign(average.numpy())

    def factors(self, step: int) -> tf.Tensor:
        """What changes from step to step, as one tensor: learning rate, bias corrections, weight of the average."""
        powers = (self._recipe.beta_1 ** (step + 1), self._recipe.beta_2 ** (step + 1))
        # Early on a shorter average: a long one would remember the initial weights, which know nothing.
        kept = min(self._recipe.ema, (1 + step) / (10 + step))
        return tf.constant([learning_rate_at(self._recipe, step), *powers, 1.0 - kept], tf.float32)

    def apply(self, gradients: list[Any], factors: tf.Tensor) -> None:
        """In cross-replica context: update every copy of every variable with its own copy of the same gradient."""
        # Scalars are made here, once for all variables: made in each update, they would be most of the graph.
        rate, power_1, power_2, fresh = tf.unstack(factors, num=4)
        settings = {"beta1": self._recipe.beta_1, "beta2": self._recipe.beta_2, "epsilon": EPSILON}
        adam = {name: tf.constant(value) for name, value in settings.items()}
        adam.update(beta1_power=power_1, beta2_power=power_2)
        rates = {share: rate * share for share in set(self._rate_shares)}
        lost = {share: own_rate * self._recipe.weight_decay for share, own_rate in rates.items()}
        for number, target in enumerate(self._targets):
            share = self._rate_shares[number]
            average = (self._averages[number], fresh) if self._averages else ()
            self._strategy.extended.update(
                target,
                _update_one,
                args=(self._moments[number], self._squares[number], gradients[number], *average),
                kwargs={
                    "adam": {**adam, "lr": rates[share]},
                    "lost": lost[share] if self._decays[number] else None,
                },
                group=False,
            )


def _update_one(
    target: Any, moment: Any, square: Any, gradient: Any, *average: Any, adam: dict[str, Any], lost: Any
) -> None:
    if lost is not None:
        # Not before the gradient is there: TensorFlow would make all these products first and hold them.
        with tf.control_dependencies([gradient]):
            target.assign_sub(target * lost)
    tf.raw_ops.ResourceApplyAdam(var=target.handle, m=moment.handle, v=square.handle, grad=gradient, **adam)
    if average:
        kept, fresh = average
        kept.assign_sub((kept - target) * fresh)


def clipped_means(
    by_group: list[list[tf.Tensor]], scale: tf.Tensor, norms_P: tf.Tensor, clip_norm: float
) -> list[tf.Tensor]:
    """All groups' gradients times `scale`, in a row; a group's that are then longer than `clip_norm`, that long.

    `norms_P` are the lengths after scaling. Both are one factor a group, so each variable costs one operation.
    """
    factors = tf.unstack(scale * clip_norm / tf.maximum(norms_P, clip_norm), num=len(by_group))
    return [factor * gradient for factor, own in zip(factors, by_group, strict=True) for gradient in own]


def sum_over_replicas(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """In a replica: every tensor's sum over all replicas."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, tensors))


def shares_of_counts(counts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """In a replica: its share of the positions of each term over all replicas."""
    totals = sum_over_replicas(list(counts.values()))
    # A term may have no position at all: the alignment of a batch whose texts are all hidden.
    each = zip(counts.items(), totals, strict=True)
    return {name: tf.math.divide_no_nan(count, total) for (name, count), total in each}


def sums_with_loss(
    gradients: list[tf.Tensor],
    terms: Mapping[str, dict[str, tf.Tensor]],
    figures: Mapping[str, tf.Tensor],
    shares: Mapping[str, tf.Tensor],
) -> tuple[list[tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]:
    """In a replica: sums over all of them of the gradients, of the stage's loss, and of each term and figure by name.

    The stage's loss is that of its first group. A figure without a share counts the same on every replica.
    """
    equal = 1.0 / tf.distribute.get_strategy().num_replicas_in_sync
    own = {name: value for group in terms.values() for name, value in group.items()}
    own |= {name: value * shares.get(name, equal) for name, value in figures.items()}
    reduced = sum_over_replicas([*gradients, *own.values()])
    summed = dict(zip(own, reduced[len(gradients) :], strict=True))
    return reduced[: len(gradients)], tf.add_n([summed[name] for name in next(iter(terms.values()))]), summed


def _zeros_like(target: Any) -> Any:
    return tf.Variable(tf.zeros(target.shape, target.dtype), trainable=False)


def _copy_of(target: Any) -> Any:
    return tf.Variable(tf.zeros(target.shape, target.dtype) + target, trainable=False)


class LossScale:
    """Loss scaling for 16-bit floats: gradients are taken of a larger loss, or the smallest of them would become 0.

    A scale that is too large makes the gradient infinite, which skips the step: the scale is halved then, and doubled
    again after many good steps. Powers of two, which round nothing. Other precisions have float32's range and keep 1.
    """

    def __init__(self, compute_dtype: str) -> None:
        self.moves = compute_dtype == "float16"
        self.factor = FIRST_SCALE if self.moves else 1.0
        self._good_steps = 0

    def learnt(self, finite: bool) -> bool:
        """Take note of a step; whether an infinite gradient may be the scale's doing rather than the data's."""
        if not self.moves:
            return False
        if finite:
            self._good_steps += 1
            if self._good_steps == GROW_AFTER_STEPS:
                self.factor, self._good_steps = min(2.0 * self.factor, LARGEST_SCALE), 0
            return False
        blamed = self.factor > 1.0
        self.factor, self._good_steps = max(0.5 * self.factor, 1.0), 0
        return blamed

    def get_state(self) -> dict[str, Any]:
        return {"factor": self.factor, "good_steps": self._good_steps}

    def set_state(self, state: dict[str, Any] | None) -> None:
        """What a checkpoint kept; nothing where it was written with another precision."""
        if state is not None and self.moves and state["factor"] > 1.0:
            self.factor, self._good_steps = float(state["factor"]), int(state["good_steps"])
