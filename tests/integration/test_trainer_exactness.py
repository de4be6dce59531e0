"""The trainer's arithmetic: mirrored equals single, accumulation equals the mean, a bad batch changes nothing."""

from __future__ import annotations

import json

import pytest

from tests.processes import run_script
from tests.small_model import SIZES

BATCHES = """
import json
import numpy as np
import tensorflow as tf
from myxtts.config.config import XTTSConfig
from myxtts.errors import DataError, TrainingError
from myxtts.runtime.seeds import seed_everything
from myxtts.training.trainer import XTTSTrainer

def batch(number, rows=4, tokens=12, frames=64):
    rng = np.random.default_rng(number)
    text_lengths = rng.integers(4, tokens, rows).astype("int32")
    mel_lengths = rng.integers(24, frames, rows).astype("int32")
    text = rng.integers(4, 60, (rows, tokens)).astype("int32")
    return text, rng.normal(size=(rows, frames, 80)).astype("float32"), text_lengths, mel_lengths

def weights(trainer):
    return [np.asarray(v.numpy()) for v in trainer.current_stage().trainable_variables]

def like(trainer, other):
    for mine, theirs in zip(trainer.model.weights, other.model.weights, strict=True):
        mine.assign(theirs.numpy())
"""


def result_of(script: str, **environment: str) -> dict[str, object]:
    output = run_script(
        f"SIZES = {SIZES!r}\n" + BATCHES + script, few_steps=True, TF_NUM_INTRAOP_THREADS="1", **environment
    )
    result: dict[str, object] = json.loads(output.splitlines()[-1])
    return result


MIRRORED = """
out = {}
# A low rate: Adam turns rounding in a gradient that is nearly 0 into a whole step, which is no fault of ours.
recipe = dict(dropout=0.0, token_corruption=0.0, max_steps=10, learning_rate=1e-4)
config = XTTSConfig(model_size="tiny", simulate_gpus=2, multi_gpu=True, **recipe, **dict(SIZES, gpt_layers=2))
seed_everything(5)
mirrored, single = XTTSTrainer(config), XTTSTrainer(config, model_device="/CPU:1")
def held_out_batch(stage, **shape):
    text, mel, text_lengths, mel_lengths = batch(20, **shape)
    text_lengths[0] = 0  # as text dropout hides it: the alignment of that clip counts on no replica
    tensors = mirrored.current_stage().from_mels(*map(tf.constant, (text, mel, text_lengths, mel_lengths)))
    return tensors if stage == "codec" else dict(tensors, alignment=2 * tf.ones_like(tensors["codes"]))
def furthest(pairs):
    return max(abs(ours[name] - theirs[name]) for ours, theirs in pairs for name in ours)
for stage in ("codec", "gpt"):
    like(single, mirrored)
    for trainer in (mirrored, single):
        trainer.start_stage(stage)
    shapes = [dict(), dict(frames=48), dict(tokens=9), dict(rows=2), dict(rows=3, tokens=7, frames=40)]
    held_out = [held_out_batch(stage, **shape) for shape in shapes]
    validated = [t.evaluate([t._whole_batch(tensors) for tensors in held_out]) for t in (mirrored, single)]
    stepped = [[t.train_step(*batch(n)) for t in (mirrored, single)] for n in range(10)]
    apart = max(
        float(np.max(np.abs(np.subtract(*[v.numpy() for v in variable.value.values]))))
        for variable in mirrored.current_stage().trainable_variables
    )
    out[stage] = dict(
        validation_difference=furthest([validated]),
        validated=sorted(validated[0]),
        validation_traces=mirrored._run_evaluation.experimental_get_tracing_count(),
        replicas=mirrored.strategy.num_replicas_in_sync,
        difference=furthest(stepped),
        weight_difference=max(float(np.max(np.abs(a - b))) for a, b in zip(weights(mirrored), weights(single))),
        replicas_apart=apart,
        fell=stepped[-1][0]["loss"] != stepped[0][0]["loss"],
        shown=sorted(stepped[0][0]),
    )
print(json.dumps(out))
"""


FIGURES = {"codec": ("l1", "mse"), "gpt": ("text", "audio", "accuracy")}


@pytest.mark.slow
def test_mirrored_equals_single_over_ten_steps_and_in_validation_and_the_replicas_agree() -> None:
    for stage, seen in result_of(MIRRORED).items():
        assert isinstance(seen, dict)
        assert seen["replicas"] == 2, stage
        assert seen["replicas_apart"] == 0.0, stage
        assert seen["difference"] < 1e-5, (stage, seen)
        assert set(FIGURES[stage]) < set(seen["shown"]), (stage, seen)
        assert seen["fell"], stage
        assert seen["validation_difference"] < 1e-5, (stage, seen)
        assert (stage == "gpt") == ("alignment" in seen["validated"])
        assert seen["validation_traces"] == 1, "rows and lengths of any size share one trace"


ACCUMULATION = """
recipe = dict(dropout=0.0, token_corruption=0.0, max_steps=10)
config = XTTSConfig(model_size="tiny", stage="gpt", **recipe, **SIZES)
def gradients_of(trainer, batches):
    learnt = [trainer._whole_batch(trainer.current_stage().from_mels(*map(tf.constant, b))) for b in batches]
    before = weights(trainer)
    result = trainer.learn(learnt)
    return result, before, weights(trainer)
seed_everything(1)
two = XTTSTrainer(config)
two.start_stage("gpt")
one = XTTSTrainer(config)
like(one, two)
one.start_stage("gpt")
same = batch(1)
two.loss_scale.factor = 1024.0
r2, _, after_two = gradients_of(two, [same, same])
two.loss_scale.factor = 1.0
r1, _, after_one = gradients_of(one, [same])
difference = max(float(np.max(np.abs(a - b))) for a, b in zip(after_one, after_two))
bad = batch(2)
bad[1][0, 0, 0] = np.nan
before = weights(one)
skipped = one.train_step(*bad)
unchanged = all(np.array_equal(a, b) for a, b in zip(before, weights(one)))
stopped = ""
try:
    for _ in range(20):
        one.train_step(*bad)
except TrainingError as error:
    stopped = str(error)
good = two.train_step(*batch(3, rows=3, tokens=9, frames=48))
mixed, _, _ = gradients_of(two, [batch(5), batch(6, rows=3, tokens=9, frames=48)])
refused = []
for too_long in (batch(4, tokens=403), batch(4, frames=2440)):
    try:
        two.train_step(*too_long)
    except DataError as error:
        refused.append(str(error))
print(json.dumps(dict(
    norms=[r1.gradient_norm, r2.gradient_norm], difference=difference, unchanged=unchanged,
    skipped_steps=one.skipped_steps, stopped=stopped, good=good["loss"], refused=refused,
    mixed=[mixed.loss, mixed.figures["text"] + mixed.figures["audio"] + mixed.figures["finer"]],
    traces=[traced.experimental_get_tracing_count() for traced in two._gradients_of.values()],
)))
"""


def test_accumulated_gradients_are_averaged_the_loss_scale_cancels_out_and_bad_batches_change_nothing() -> None:
    seen = result_of(ACCUMULATION)

    assert isinstance(seen["norms"], list)
    assert abs(seen["norms"][0] - seen["norms"][1]) < 1e-4
    assert isinstance(seen["difference"], float)
    assert seen["difference"] < 1e-6
    assert seen["unchanged"] is True
    assert isinstance(seen["mixed"], list)
    assert seen["mixed"][0] == pytest.approx(seen["mixed"][1]), "the terms of all batches make the loss of all"
    assert seen["skipped_steps"] == 10
    assert seen["traces"] == [1], "rows and lengths of any size share one trace"
    assert "10 steps in a row had no finite gradient" in str(seen["stopped"])
    assert "--learning-rate" in str(seen["stopped"])
    assert "403 tokens is longer than the 402" in str(seen["refused"])
    assert "610 audio codes are more than the 605" in str(seen["refused"])


def test_the_conditioning_learns_at_a_third_of_the_gpts_rate() -> None:
    seen = result_of(
        """
config = XTTSConfig(model_size="tiny", dropout=0.0, max_steps=10, learning_rate=1e-3, **SIZES)
trainer = XTTSTrainer(config)
trainer.start_stage("gpt")
parts = trainer.current_stage().layers
before = {name: [v.numpy() for v in part.trainable_variables] for name, part in parts.items()}
trainer.train_step(*batch(0))
moved = {
    name: max(float(np.max(np.abs(v.numpy() - b))) for v, b in zip(part.trainable_variables, before[name], strict=True))
    for name, part in parts.items()
}
print(json.dumps(moved))
"""
    )

    # Adam's first step is the learning rate wherever there is a gradient, and weight decay next to nothing.
    assert seen["conditioning"] == pytest.approx(float(str(seen["gpt"])) / 3, rel=0.05)
