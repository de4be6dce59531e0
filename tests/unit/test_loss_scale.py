"""The loss scale of 16-bit floats finds its place, and other precisions know none."""

from __future__ import annotations

from myxtts.training.optim import FIRST_SCALE, GROW_AFTER_STEPS, LossScale


def test_an_infinite_gradient_halves_the_scale_and_many_good_steps_double_it() -> None:
    scale = LossScale("float16")

    assert scale.learnt(finite=False)
    assert scale.factor == FIRST_SCALE / 2
    for _ in range(GROW_AFTER_STEPS):
        assert not scale.learnt(finite=True)
    assert scale.factor == FIRST_SCALE


def test_once_the_scale_is_1_the_data_are_to_blame() -> None:
    scale = LossScale("float16")

    blamed = [scale.learnt(finite=False) for _ in range(17)]

    assert blamed == [True] * 15 + [False] * 2
    assert scale.factor == 1.0


def test_a_resumed_run_goes_on_with_its_scale_and_one_of_another_precision_does_not() -> None:
    half, again, whole = LossScale("float16"), LossScale("float16"), LossScale("bfloat16")
    half.learnt(finite=False)
    half.learnt(finite=True)

    again.set_state(half.get_state())
    whole.set_state(half.get_state())

    assert again.get_state() == half.get_state()
    assert whole.factor == 1.0
    assert not whole.learnt(finite=False)
