"""What every part of the model must do: the same in every mode, whatever stands beside it in a batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.models.speaker_encoder import BatchNorm
from tests.contract import gpt_cases, layer_cases
from tests.contract.layer_cases import LayerCase
from tests.processes import run_program

CASES = [*layer_cases.CASES, *gpt_cases.CASES]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def the_same_weights_each_time() -> None:
    """A narrow ReLU of a small layer is dead for some weights, and then nothing learns through it."""
    keras.utils.set_random_seed(3)


@cases
def test_weights_by_path_make_an_equal_layer(case: LayerCase) -> None:
    one, other = case.build(), case.build()
    inputs = case.inputs(list(case.lengths[0]))
    stored = {weight.path: weight.value.numpy() for weight in one.weights}

    assert len(stored) == len(one.weights)
    for weight in other.weights:
        weight.assign(stored[weight.path])
    np.testing.assert_array_equal(case.run(one, inputs), case.run(other, inputs))


@cases
def test_compiled_equals_eager(case: LayerCase) -> None:
    layer, inputs = case.build(), case.inputs(list(case.lengths[0]))

    compiled = tf.function(lambda batch: case.run(layer, batch), autograph=False)(inputs)

    np.testing.assert_allclose(compiled, case.run(layer, inputs), atol=1e-5)


@cases
def test_a_row_gives_in_a_padded_batch_what_it_gives_alone(case: LayerCase) -> None:
    layer, lengths = case.build(), list(case.lengths[0])
    inputs = case.inputs(lengths)
    # Whatever stands in the padding must not matter.
    key = next(iter(inputs))
    for row, length in enumerate(lengths):
        inputs[key][row, length:] = 7.0
    batch = np.array(case.run(layer, inputs))

    for row, length in enumerate(lengths):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        alone[key] = alone[key][:, :length]
        made = np.array(case.run(layer, alone))
        valid = made.shape[1] if case.out_length is None else case.out_length(length)
        np.testing.assert_allclose(batch[row, :valid], made[0, :valid], atol=2e-5)


@cases
def test_gradients_reach_every_trainable_variable(case: LayerCase) -> None:
    layer, inputs = case.build(), case.inputs(list(case.lengths[0]))

    with tf.GradientTape() as tape:
        loss = case.loss(layer, inputs)
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_variables])
    # The gradient of a table is a few rows of it.
    gradients = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]

    without = [
        weight.path
        for weight, gradient in zip(layer.trainable_variables, gradients, strict=True)
        if gradient is None or not np.any(gradient) or not np.all(np.isfinite(gradient))
    ]
    assert without == []


@cases
def test_four_shapes_are_traced_four_times_at_most(case: LayerCase) -> None:
    layer, traces = case.build(), []

    @tf.function(autograph=False)
    def run(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        traces.append(1)
        return case.run(layer, inputs)

    for turn in range(20):
        run({name: tf.constant(value) for name, value in case.inputs(list(case.lengths[turn % 4])).items()})

    assert len(traces) <= 4


def test_variables_live_on_the_device_they_were_built_under() -> None:
    assert run_program("devices", "layers_on_the_second_device").strip() == "['device:CPU:1']"


def test_a_batch_that_is_not_finite_leaves_the_statistics_of_a_norm_as_they_were() -> None:
    """They change in the forward pass, before anyone can see that the step has to be skipped."""
    norm = BatchNorm(momentum=0.5)
    norm.build((None, 3))
    forward = tf.function(lambda x: norm(x, training=True))
    good = tf.constant([[1.0, 2.0, 3.0], [3.0, 6.0, 9.0]])

    forward(good)
    learnt = [weight.numpy() for weight in norm.non_trainable_variables]
    made = forward(tf.constant([[1.0, np.inf, 3.0], [1.0, 2.0, np.nan]]))

    np.testing.assert_allclose(learnt[0], [1.0, 2.0, 3.0])
    assert not np.isfinite(made.numpy()[:, 1:]).all(), "the step still shows what is wrong with it"
    for before, weight in zip(learnt, norm.non_trainable_variables, strict=True):
        np.testing.assert_allclose(weight.numpy()[1:], before[1:], rtol=1e-6)
    assert norm.moving_mean.numpy()[0] == pytest.approx(1.0), "where it is finite it goes on"
