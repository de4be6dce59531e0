"""A step and a producer that ask for more memory than any machine has; what is said of it is printed as JSON."""

from __future__ import annotations

import json
from typing import Any

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


def main() -> None:
    make_steps_hungry()
    config = XTTSConfig(model_size="tiny", simulate_gpus=2, stage="codec", max_steps=2, **SIZES)
    trainer = MemoryIsolatedDualGPUTrainer(config, 0, 1, 4096, 8192)
    trainer.start_stage("codec")
    batch = trainer.transfer_batch(trainer.process_batch(next(ToneSource())))
    said = {}
    try:
        trainer.train_batch(batch)
    except TrainingError as error:
        said["model"] = [error.problem, error.hint]
    try:
        with tf.device(trainer.plan.producer_device):
            tf.random.uniform([TOO_MANY])
    except tf.errors.ResourceExhaustedError as error:
        found = out_of_memory(error, trainer.plan, "a batch of 8 clips of stage codec")
        said["data"] = [found.problem, found.hint]
    print(json.dumps(said))
