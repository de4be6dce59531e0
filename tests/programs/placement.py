"""The documented placements, read from tensors and variables, printed as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.cli.validate import ToneSource
from myxtts.config.config import XTTSConfig
from myxtts.pipeline import Pipeline, SequentialPipeline
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.runtime.seeds import seed_everything
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.trainer import XTTSTrainer
from myxtts.utils.commons import early_gpu_configuration, ensure_gpu_placement, get_device_context, setup_gpu_strategy
from tests.small_model import SIZES


def short(device: str) -> str:
    return "/" + device.rsplit("device:", 1)[1]


def dual(data: str, model: str, device: str, data_device: str) -> None:
    """`device` may be empty: the plan decides then."""
    data_gpu, model_gpu = int(data), int(model)
    configured = early_gpu_configuration(data_gpu=data_gpu, model_gpu=model_gpu)
    config = XTTSConfig(model_size="tiny", data_gpu=data_gpu, model_gpu=model_gpu, max_steps=4, dropout=0.0, **SIZES)
    trainer = XTTSTrainer(config, model_device=device or None)
    trainer.start_stage("codec")
    rng = np.random.default_rng(0)
    text, text_lengths = rng.integers(4, 60, (2, 9)).astype("int32"), np.array([9, 5], "int32")
    mel, mel_lengths = rng.normal(size=(2, 64, 80)).astype("float32"), np.array([64, 40], "int32")
    losses = [trainer.train_step(text, mel, text_lengths, mel_lengths)["loss"] for _ in range(2)]
    with get_device_context(data_device):
        produced = tf.random.uniform([4])
    assert trainer.optimizer is not None
    answer = {
        "configured": configured,
        "variables": sorted({short(v.value.device) for v in trainer.current_stage().trainable_variables}),
        "moments": sorted({short(v.device) for v in trainer.optimizer.variables}),
        "all_model": sorted({short(v.value.device) for v in trainer.model.weights}),
        "produced": short(produced.backing_device),
        "moved": short(ensure_gpu_placement(produced).backing_device),
        "strategy": type(setup_gpu_strategy()).__name__,
        "soft": tf.config.get_soft_device_placement(),
        "losses": losses,
    }
    print(json.dumps(answer))


def isolated() -> None:
    config = XTTSConfig(model_size="tiny", simulate_gpus=2, max_steps=8, learning_rate=3e-4)
    seed_everything(1)
    trainer = MemoryIsolatedDualGPUTrainer(
        config, data_gpu_id=0, model_gpu_id=1, data_gpu_memory_limit=4096, model_gpu_memory_limit=8192
    )
    trainer.start_stage("codec")
    processed = trainer.process_batch(next(ToneSource()))
    trainer.current_stage().measure([processed])
    moved = trainer.transfer_batch(processed)
    results = [trainer.train_batch(moved) for _ in range(8)]
    answer = {
        "inherits": isinstance(trainer, XTTSTrainer),
        "processed": short(processed["mel"].backing_device),
        "moved": short(moved.tensors["mel"].backing_device),
        "losses": [result.loss for result in results],
        "limits": [role.memory_limit_mb for role in trainer.plan.roles],
        "growth": trainer.plan.memory_growth,
        "stats": trainer.get_memory_stats(),
        "leak": trainer.check_memory_leak().leaking,
    }
    print(json.dumps(answer))


def overlapped_and_one_by_one() -> None:
    """Whether fifty steps of both schedules have the same losses, and how many different ones there are."""
    config = XTTSConfig(model_size="tiny", data_gpu=0, model_gpu=1, simulate_gpus=2, max_steps=50, **SIZES)

    def losses(kind: Any) -> list[float]:
        seed_everything(3)
        trainer = XTTSTrainer(config)
        trainer.start_stage("codec")
        models = [trainer.plan.model.name]
        with kind(
            ToneSource(),
            trainer.producers,
            model_devices=models,
            start_delay_s=0.1,
            devices=TensorFlowDevices(deep_copy=True),
        ) as pipeline:
            return [trainer.learn([next(pipeline)]).loss for _ in range(50)]

    overlapped, one_by_one = losses(Pipeline), losses(SequentialPipeline)
    print(overlapped == one_by_one, len(set(overlapped)))


QUESTIONS = {question.__name__: question for question in (dual, isolated, overlapped_and_one_by_one)}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
