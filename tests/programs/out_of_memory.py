"""A step and a producer that ask for more memory than any machine has; what is said of it is printed as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.cli.validate import ToneSource
from myxtts.config.config import XTTSConfig
from myxtts.errors import TrainingError
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.out_of_memory import out_of_memory
from myxtts.training.stages.codec import CodecStage
from tests.small_model import SIZES

TOO_MANY = 2**44


def make_steps_hungry() -> None:
    learn = CodecStage.objective

    def objective(stage: CodecStage, batch: Any, *, seed: Any, step: Any) -> Any:
        whole = learn(stage, batch, seed=seed, step=step)
        # A size that is known only when it runs, and random numbers: anything else the graph's optimiser folds away.
        size = tf.cast(batch["mel_lengths"][0], tf.int64) * 0 + TOO_MANY
        return whole._replace(figures={**whole.figures, "huge": tf.reduce_sum(tf.random.uniform([size]))})

    CodecStage.objective = objective  # type: ignore[assignment, method-assign]


def make_steps_fail_in_cudnn() -> None:
    """As a convolution does that cuDNN has no memory for: not TensorFlow's own error."""
    learn = CodecStage.objective

    def no_memory() -> np.float32:
        raise RuntimeError("Failed to create a convolution plan: CUDNN_STATUS_ALLOC_FAILED")

    def objective(stage: CodecStage, batch: Any, *, seed: Any, step: Any) -> Any:
        whole = learn(stage, batch, seed=seed, step=step)
        fails = tf.ensure_shape(tf.numpy_function(no_memory, [], tf.float32), [])
        return whole._replace(figures={**whole.figures, "fails": fails})

    CodecStage.objective = objective  # type: ignore[assignment, method-assign]


def said_of_a_step(trainer: MemoryIsolatedDualGPUTrainer) -> list[str]:
    trainer.start_stage("codec")
    batch = trainer.transfer_batch(trainer.process_batch(next(ToneSource())))
    try:
        trainer.train_batch(batch)
    except TrainingError as error:
        return [error.problem, error.hint]
    raise AssertionError("the step went well")


def main() -> None:
    config = XTTSConfig(model_size="tiny", simulate_gpus=2, stage="codec", max_steps=2, **SIZES)
    trainer = MemoryIsolatedDualGPUTrainer(config, 0, 1, 4096, 8192)
    healthy, said = CodecStage.objective, {}
    make_steps_hungry()
    said["model"] = said_of_a_step(trainer)
    CodecStage.objective = healthy  # type: ignore[method-assign]
    make_steps_fail_in_cudnn()
    said["cudnn"] = said_of_a_step(trainer)
    try:
        with tf.device(trainer.plan.producer_device):
            tf.random.uniform([TOO_MANY])
    except tf.errors.ResourceExhaustedError as error:
        found = out_of_memory(error, trainer.plan, "a batch of 8 clips of stage codec")
        said["data"] = [found.problem, found.hint]
    print(json.dumps(said))
