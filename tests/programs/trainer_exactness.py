"""The trainer's arithmetic in numbers, for `tests/integration/test_trainer_exactness.py`: printed as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import constant_op

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.errors import DataError, TrainingError
from myxtts.runtime.seeds import seed_everything
from myxtts.training.trainer import StepResult, XTTSTrainer
from tests.small_model import SIZES

Mels = tuple[Any, Any, Any, Any]
STAGES: tuple[Stage, ...] = ("codec", "gpt")
EXACT: dict[str, Any] = {"dropout": 0.0, "token_corruption": 0.0, "text_dropout": 0.0, "max_steps": 10}


def batch(number: int, rows: int = 4, tokens: int = 12, frames: int = 64) -> Mels:
    rng = np.random.default_rng(number)
    text_lengths = rng.integers(4, tokens, rows).astype("int32")
    mel_lengths = rng.integers(24, frames, rows).astype("int32")
    text = rng.integers(4, 60, (rows, tokens)).astype("int32")
    return text, rng.normal(size=(rows, frames, 80)).astype("float32"), text_lengths, mel_lengths


def weights(trainer: XTTSTrainer) -> list[Any]:
    return [np.asarray(v.numpy()) for v in trainer.current_stage().trainable_variables]


def like(trainer: XTTSTrainer, other: XTTSTrainer) -> None:
    for mine, theirs in zip(trainer.model.weights, other.model.weights, strict=True):
        mine.assign(theirs.numpy())


def two_trainers() -> tuple[XTTSTrainer, XTTSTrainer]:
    """One over two replicas and one over a single device, of one configuration."""
    # A low rate: Adam turns rounding in a gradient that is nearly 0 into a whole step, which is no fault of ours.
    sizes = SIZES | {"gpt_layers": 2}
    config = XTTSConfig(model_size="tiny", simulate_gpus=2, multi_gpu=True, learning_rate=1e-4, **EXACT, **sizes)
    seed_everything(5)
    return XTTSTrainer(config), XTTSTrainer(config, model_device="/CPU:1")


def largest_replica_difference(trainer: XTTSTrainer) -> float:
    """How far the replicas' copies of a variable are from each other, at most."""
    return max(
        float(np.max(np.abs(np.subtract(*[v.numpy() for v in variable.value.values]))))
        for variable in trainer.current_stage().trainable_variables
    )


def furthest(pairs: Sequence[Sequence[dict[str, float]]]) -> float:
    return max(abs(ours[name] - theirs[name]) for ours, theirs in pairs for name in ours)


def mirrored_and_single() -> dict[str, Any]:
    out: dict[str, Any] = {}
    mirrored, single = two_trainers()

    def held_out_batch(stage: Stage, **shape: int) -> dict[str, Any]:
        text, mel, text_lengths, mel_lengths = batch(20, **shape)
        text_lengths[0] = 0  # as text dropout hides it: the alignment of that clip counts on no replica
        tensors = mirrored.current_stage().from_mels(*map(tf.constant, (text, mel, text_lengths, mel_lengths)))
        return dict(tensors) if stage == "codec" else dict(tensors, alignment=2 * tf.ones_like(tensors["codes"]))

    for stage in STAGES:
        like(single, mirrored)
        for trainer in (mirrored, single):
            trainer.start_stage(stage)
        shapes = [{}, {"frames": 48}, {"tokens": 9}, {"rows": 2}, {"rows": 3, "tokens": 7, "frames": 40}]
        held_out = [held_out_batch(stage, **shape) for shape in shapes]
        validated = [t.evaluate([t._whole_batch(tensors) for tensors in held_out]) for t in (mirrored, single)]
        # The last one is the first one again: by then it is known.
        stepped = [[t.train_step(*batch(n)) for t in (mirrored, single)] for n in (*range(9), 0)]
        out[stage] = {
            "validation_difference": furthest([validated]),
            "validated": sorted(validated[0]),
            "validation_traces": mirrored._run_evaluation.experimental_get_tracing_count(),
            "replicas": mirrored.strategy.num_replicas_in_sync,
            "difference": furthest(stepped),
            "replica_difference": largest_replica_difference(mirrored),
            "losses": [stepped[0][0]["loss"], stepped[-1][0]["loss"]],
            "shown": sorted(stepped[0][0]),
        }
    return out


def accumulated() -> dict[str, Any]:
    """How far a step of two unlike batches is from the mean of their gradients, computed one by one beside it."""
    out: dict[str, Any] = {}
    mirrored, single = two_trainers()
    unlike = [batch(1, rows=5, tokens=12, frames=64), batch(2, rows=2, tokens=7, frames=32)]
    for stage in STAGES:
        like(single, mirrored)
        for trainer in (mirrored, single):
            trainer.start_stage(stage)
        wanted = _mean_gradient(single, unlike)
        steps = {"single": _learn(single, unlike), "mirrored": _learn(mirrored, unlike)}
        moments = {"single": _first_moments(single), "mirrored": _first_moments(mirrored)}
        out[stage] = {
            name: {
                "norm": [result.gradient_norm, float(np.linalg.norm(wanted))],
                "direction": _difference(moments[name], wanted),
                "loss": result.loss,
            }
            for name, result in steps.items()
        }
        out[stage]["replica_difference"] = largest_replica_difference(mirrored)
    return out


def _tensors(trainer: XTTSTrainer, mels: Mels) -> Any:
    return trainer.current_stage().from_mels(*map(tf.constant, mels))


def _learn(trainer: XTTSTrainer, batches: Sequence[Mels]) -> StepResult:
    return trainer.learn([trainer._whole_batch(_tensors(trainer, one)) for one in batches])


def _mean_gradient(trainer: XTTSTrainer, batches: Sequence[Mels]) -> Any:
    """By TensorFlow's tape alone: each batch's loss is the sum of its weighted means, a step's their mean."""
    stage = trainer.current_stage()
    variables = [v.value for v in stage.trainable_variables]
    total, seed = 0.0, tf.constant([0, 0], tf.int32)  # it draws nothing here, but the codec trains otherwise without
    for one in batches:
        with tf.device(trainer.model_device), tf.GradientTape() as tape:
            terms = stage.objective(_tensors(trainer, one), seed=seed, step=tf.constant(0, tf.int64)).terms
            loss = tf.add_n([term.weight * term.mean for term in terms.values()])
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # Of an embedding they are sparse.
        total = total + _flat([tf.convert_to_tensor(g) for g in gradients]) / len(batches)
    return total


def _first_moments(trainer: XTTSTrainer) -> Any:
    """Adam's first moments, which after one step are that step's gradient, shortened and clipped."""
    assert trainer.optimizer is not None
    return _flat(trainer.optimizer.variables[: len(trainer.current_stage().trainable_variables)])


def _flat(tensors: Sequence[Any]) -> Any:
    return np.concatenate([np.ravel(np.asarray(tensor.numpy(), np.float64)) for tensor in tensors])


def _difference(ours: Any, wanted: Any) -> float:
    """Between two directions, whatever their lengths: 0 for the same one."""
    return float(np.max(np.abs(ours / np.linalg.norm(ours) - wanted / np.linalg.norm(wanted))))


def odd_batches() -> dict[str, Any]:
    """A scaled loss, bad batches, batches of any shape, and batches that are too long."""
    config = XTTSConfig(model_size="tiny", stage="gpt", **EXACT, **SIZES)
    seed_everything(1)
    two = XTTSTrainer(config)
    two.start_stage("gpt")
    one = XTTSTrainer(config)
    like(one, two)
    one.start_stage("gpt")
    two.loss_scale.factor = 1024.0
    scaled = _learn(two, [batch(1), batch(1)])
    two.loss_scale.factor = 1.0
    plain = _learn(one, [batch(1)])
    difference = max(float(np.max(np.abs(a - b))) for a, b in zip(weights(one), weights(two), strict=True))
    bad = batch(2)
    bad[1][0, 0, 0] = np.nan
    before = weights(one)
    one.train_step(*bad)
    unchanged = all(np.array_equal(a, b) for a, b in zip(before, weights(one), strict=True))
    stopped = ""
    try:
        for _ in range(20):
            one.train_step(*bad)
    except TrainingError as error:
        stopped = str(error)
    two.train_step(*batch(3, rows=3, tokens=9, frames=48))
    mixed = _learn(two, [batch(5), batch(6, rows=3, tokens=9, frames=48)])
    refused = []
    for too_long in (batch(4, tokens=403), batch(4, frames=2440)):
        try:
            two.train_step(*too_long)
        except DataError as error:
            refused.append(str(error))
    return {
        "norms": [plain.gradient_norm, scaled.gradient_norm],
        "difference": difference,
        "unchanged": unchanged,
        "skipped_steps": one.skipped_steps,
        "stopped": stopped,
        "refused": refused,
        "mixed": [mixed.loss, mixed.figures["text"] + mixed.figures["audio"]],
        "traces": [traced.experimental_get_tracing_count() for traced in two._gradients_of.values()],
    }


def rates() -> dict[str, Any]:
    """How far the weights of each layer move in a first step."""
    config = XTTSConfig(model_size="tiny", dropout=0.0, max_steps=10, learning_rate=1e-3, **SIZES)
    trainer = XTTSTrainer(config)
    trainer.start_stage("gpt")
    layers = trainer.current_stage().layers
    before = {name: [v.numpy() for v in layer.trainable_variables] for name, layer in layers.items()}
    trainer.train_step(*batch(0))
    return {
        name: max(
            float(np.max(np.abs(v.numpy() - b))) for v, b in zip(layer.trainable_variables, before[name], strict=True)
        )
        for name, layer in layers.items()
    }


def numbers_kept() -> dict[str, Any]:
    """Python numbers that TensorFlow is given in each of some steps and validations: it keeps every one of them."""
    trainer = XTTSTrainer(XTTSConfig(model_size="tiny", **SIZES, **EXACT))
    trainer.start_stage("codec")
    given: set[float] = set()
    convert = constant_op.convert_to_eager_tensor

    def noting(value: Any, *rest: Any) -> Any:
        given.update([value] if isinstance(value, (int, float)) else [])
        return convert(value, *rest)

    fresh = []
    with mock.patch.object(constant_op, "convert_to_eager_tensor", noting):
        for _ in range(4):
            known = set(given)
            result = _learn(trainer, [batch(1)])
            trainer.evaluate([trainer._whole_batch(_tensors(trainer, batch(1)))])
            fresh.append(sorted(given - known))
    return {"learnt": result.step, "new": fresh[2:]}


QUESTIONS = {
    function.__name__: function for function in (mirrored_and_single, accumulated, odd_batches, rates, numbers_kept)
}


def main(question: str) -> None:
    print(json.dumps(QUESTIONS[question]()))
