"""The optimiser: its schedule, its arithmetic beside Keras's AdamW, and averaged weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from myxtts.training.stages.spec import StageRecipe
from tests.processes import run_program


def test_the_learning_rate_warms_up_and_falls_to_its_last_share() -> None:
    from myxtts.training.optim import learning_rate_at

    recipe = StageRecipe(steps=1000, learning_rate=1e-3, warmup_steps=100, final_learning_rate_share=0.05)
    rates = [learning_rate_at(recipe, step) for step in range(1000)]

    assert rates[0] == pytest.approx(1e-5)
    assert max(rates) == pytest.approx(1e-3)
    assert rates.index(max(rates)) in (99, 100)
    assert rates[-1] == pytest.approx(5e-5, rel=0.01)
    assert all(later <= earlier for earlier, later in pairwise(rates[100:]))


def test_ten_steps_equal_kerass_adamw_and_averages_come_and_go() -> None:
    run_program("optimiser", "beside_keras")


def test_a_variable_learns_and_decays_at_its_share_of_the_rate() -> None:
    run_program("optimiser", "at_a_third_of_the_rate")


def test_a_gradient_is_scaled_and_only_a_parameter_group_with_a_long_one_is_clipped() -> None:
    import tensorflow as tf

    from myxtts.training.optim import clipped_means

    long, short = [tf.constant([6.0, 0.0]), tf.constant([[8.0]])], [tf.constant([0.6, 0.8])]
    scale = 0.5
    norms_P = scale * tf.stack([tf.linalg.global_norm(own) for own in (long, short)])

    made = clipped_means([long, short], tf.constant(scale), norms_P, clip_norm=2.0)

    for ours, wanted in zip(made, ([1.2, 0.0], [[1.6]], [0.3, 0.4]), strict=True):
        assert ours.numpy() == pytest.approx(np.array(wanted))
