"""Our AdamW beside Keras's, and at shares of the learning rate; what is wrong is an assertion."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from myxtts.training.optim import AdamW
from myxtts.training.stages.spec import StageRecipe


def start() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


def gradient(number: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(number).normal(size=(3, 4)), tf.float32)


def beside_keras() -> None:
    recipe = StageRecipe(
        steps=1000, learning_rate=1e-2, warmup_steps=1, final_learning_rate_share=1.0, ema=0.9, beta_2=0.98
    )
    ours, theirs = keras.Variable(start()), keras.Variable(start())
    optimizer = AdamW(recipe, [ours], tf.distribute.get_strategy())
    reference = keras.optimizers.AdamW(1e-2, weight_decay=recipe.weight_decay, beta_2=0.98, epsilon=1e-8)
    seen = []
    for step in range(10):
        optimizer.apply([gradient(step)], optimizer.factors(step))
        reference.apply([gradient(step)], [theirs])
        seen.append(ours.numpy())
    assert np.allclose(ours.numpy(), theirs.numpy(), atol=1e-6), np.abs(ours.numpy() - theirs.numpy()).max()
    last = ours.numpy()
    with optimizer.averages_in_place():
        averaged = ours.numpy()
    assert np.array_equal(ours.numpy(), last)
    assert not np.array_equal(averaged, last)
    low, high = np.min(seen, axis=0), np.max(seen, axis=0)
    remembered = "the average still remembers the first weights"
    assert np.all((averaged >= low - 1e-6) & (averaged <= high + 1e-6)), remembered


def at_a_third_of_the_rate() -> None:
    recipe = StageRecipe(steps=1000, learning_rate=1e-2, warmup_steps=1, final_learning_rate_share=1.0)
    full, third = keras.Variable(start()), keras.Variable(start())
    optimizer = AdamW(recipe, [full, third], tf.distribute.get_strategy(), rate_shares=[1.0, 1 / 3])
    optimizer.apply([gradient(1), gradient(1)], optimizer.factors(0))
    moved, moved_less = full.numpy() - start(), third.numpy() - start()
    assert np.abs(moved).min() > 5e-3, moved
    assert np.allclose(moved_less, moved / 3, rtol=1e-3), moved_less / moved


def main(question: str) -> None:
    {"beside_keras": beside_keras, "at_a_third_of_the_rate": at_a_third_of_the_rate}[question]()
