"""The optimiser: its schedule, its arithmetic beside Keras's AdamW, and averaged weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from myxtts.training.stages.spec import StageRecipe
from tests.processes import run_script


def test_the_learning_rate_warms_up_and_falls_to_its_last_share() -> None:
    from myxtts.training.optim import learning_rate_at

    recipe = StageRecipe(steps=1000, learning_rate=1e-3, warmup_steps=100, final_share=0.05)
    rates = [learning_rate_at(recipe, step) for step in range(1000)]

    assert rates[0] == pytest.approx(1e-5)
    assert max(rates) == pytest.approx(1e-3)
    assert rates.index(max(rates)) in (99, 100)
    assert rates[-1] == pytest.approx(5e-5, rel=0.01)
    assert all(later <= earlier for earlier, later in pairwise(rates[100:]))


def test_ten_steps_equal_kerass_adamw_and_averages_come_and_go() -> None:
    run_script(
        """
import keras, numpy as np, tensorflow as tf
from myxtts.training.optim import AdamW, learning_rate_at
from myxtts.training.stages.spec import StageRecipe

recipe = StageRecipe(steps=1000, learning_rate=1e-2, warmup_steps=1, final_share=1.0, ema=0.9, beta_2=0.98)
start = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
ours, theirs = keras.Variable(start), keras.Variable(start)
optimizer = AdamW(recipe, [ours], tf.distribute.get_strategy())
reference = keras.optimizers.AdamW(1e-2, weight_decay=recipe.weight_decay, beta_2=0.98, epsilon=1e-8)
seen = []
for step in range(10):
    gradient = tf.constant(np.random.default_rng(step).normal(size=(3, 4)), tf.float32)
    optimizer.apply([gradient], optimizer.factors(step))
    reference.apply([gradient], [theirs])
    seen.append(ours.numpy())
assert np.allclose(ours.numpy(), theirs.numpy(), atol=1e-6), np.abs(ours.numpy() - theirs.numpy()).max()
last = ours.numpy()
with optimizer.averages_in_place():
    averaged = ours.numpy()
assert np.array_equal(ours.numpy(), last)
assert not np.array_equal(averaged, last)
low, high = np.min(seen, axis=0), np.max(seen, axis=0)
assert np.all((averaged >= low - 1e-6) & (averaged <= high + 1e-6)), "the average still remembers the first weights"
"""
    )


def test_a_variable_learns_and_decays_at_its_share_of_the_rate() -> None:
    run_script(
        """
import keras, numpy as np, tensorflow as tf
from myxtts.training.optim import AdamW
from myxtts.training.stages.spec import StageRecipe

recipe = StageRecipe(steps=1000, learning_rate=1e-2, warmup_steps=1, final_share=1.0)
start = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
full, third = keras.Variable(start), keras.Variable(start)
optimizer = AdamW(recipe, [full, third], tf.distribute.get_strategy(), rate_shares=[1.0, 1 / 3])
gradient = tf.constant(np.random.default_rng(1).normal(size=(3, 4)), tf.float32)
optimizer.apply([gradient, gradient], optimizer.factors(0))
moved, moved_less = full.numpy() - start, third.numpy() - start
assert np.abs(moved).min() > 5e-3, moved
assert np.allclose(moved_less, moved / 3, rtol=1e-3), moved_less / moved
"""
    )


def test_a_gradient_is_scaled_and_only_a_parameter_group_with_a_long_one_is_clipped() -> None:
    import tensorflow as tf

    from myxtts.training.optim import clipped_means

    long, short = [tf.constant([6.0, 0.0]), tf.constant([[8.0]])], [tf.constant([0.6, 0.8])]
    scale = 0.5
    norms_P = scale * tf.stack([tf.linalg.global_norm(own) for own in (long, short)])

    made = clipped_means([long, short], tf.constant(scale), norms_P, clip_norm=2.0)

    for ours, wanted in zip(made, ([1.2, 0.0], [[1.6]], [0.3, 0.4]), strict=True):
        assert ours.numpy() == pytest.approx(np.array(wanted))
