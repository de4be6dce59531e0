"""What GPUs do, for `tests/gpu/test_real_gpus.py`: each question's answer is printed as JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.cli.validate import ToneSource
from myxtts.config.config import XTTSConfig
from myxtts.errors import TrainingError
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.runtime.seeds import seed_everything
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.trainer import XTTSTrainer
from tests.small_model import SIZES

Seen = dict[str, Any]


def config(**settings: Any) -> XTTSConfig:
    return XTTSConfig(model_size="tiny", stage="codec", max_steps=30, **SIZES, **settings)


def on(tensor: tf.Tensor) -> str:
    return "/" + str(tensor.backing_device).rsplit("device:", 1)[1]


def limits() -> Seen:
    trainer = MemoryIsolatedDualGPUTrainer(config(), 0, 1, 1024, 2048)
    trainer.start_stage("codec")
    trainer.train_batch(trainer.transfer_batch(trainer.process_batch(next(ToneSource()))))

    def fits(device: str, mb: int) -> bool:
        try:
            with tf.device(device):
                return float(tf.reduce_sum(tf.zeros([mb * 2**18]))) == 0.0
        except tf.errors.ResourceExhaustedError:
            return False

    assert trainer.plan.data is not None
    data, model = trainer.plan.data.name, trainer.plan.model.name
    return {
        "fits": [fits(data, 256), fits(model, 1024)],
        "crosses": [fits(data, 1500), fits(model, 3000)],
        "stats": trainer.get_memory_stats(),
    }


def batch_beyond_the_limit() -> Seen:
    trainer = MemoryIsolatedDualGPUTrainer(config(), 0, 1, 1024, 512)
    trainer.start_stage("codec")
    try:
        for clips in (64, 512, 4096, 32768):
            mel = tf.random.normal([clips, 512, 80])
            trainer.train_step(tf.zeros([clips, 4], tf.int32), mel, tf.fill([clips], 4), tf.fill([clips], 512))
    except TrainingError as error:
        return {"said": str(error)}
    return {"said": ""}


def placement(data_gpu: str, model_gpu: str) -> Seen:
    trainer = XTTSTrainer(config(data_gpu=int(data_gpu), model_gpu=int(model_gpu)))
    trainer.start_stage("codec")
    with tf.device(trainer.plan.producer_device):
        processed = trainer.current_stage().process(next(ToneSource()))
    assert trainer.optimizer is not None
    return {
        "processed": on(processed["mel"]),
        "variables": sorted({on(v.value.read_value()) for v in trainer.current_stage().trainable_variables}),
        "moments": sorted({on(v.read_value()) for v in trainer.optimizer.variables}),
    }


def learning(mixed: str, steps: str) -> Seen:
    """So many steps on one batch, in 16 bits or not."""
    seed_everything(0)
    trainer = XTTSTrainer(config(mixed_precision=mixed == "mixed"))
    trainer.start_stage("codec")
    stage = trainer.current_stage()
    with tf.device(trainer.plan.producer_device):
        batch = stage.process(next(ToneSource()))
    stage.measure([batch])
    return {
        "losses": [trainer.learn([trainer._whole_batch(batch)]).loss for _ in range(int(steps))],
        "skipped": trainer.skipped_steps,
        "types": sorted({str(v.dtype) for v in stage.trainable_variables}),
        "policy": keras.config.dtype_policy().name,
        "growth": trainer.plan.memory_growth,
        "device": trainer.model_device,
    }


def data_work_beside_a_busy_model() -> Seen:
    devices = TensorFlowDevices()
    trainer = XTTSTrainer(config(data_gpu=0, model_gpu=1))
    trainer.start_stage("codec")
    stage, source = trainer.current_stage(), ToneSource()
    data, model = trainer.plan.producer_device, trainer.plan.model.name

    def process() -> Any:
        with tf.device(data):
            out = stage.process(next(source))
        devices.finish(out, data)
        return out

    @tf.function  # type: ignore[untyped-decorator]
    def long_work(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(400):
            x = tf.matmul(x, x) * 1e-4
        return x

    with tf.device(model):
        start = tf.random.normal([4096, 4096])
        long_work(start).numpy()
        process()
        began = time.perf_counter()
        long_work(start)[0, 0].numpy()
        alone_s = time.perf_counter() - began
        began = time.perf_counter()
        pending = long_work(start)
    processed = process()
    ready_s = time.perf_counter() - began
    moved = devices.copy([processed], [model]).replicas[0]
    pending[0, 0].numpy()
    return {
        "alone_s": alone_s,
        "ready_s": ready_s,
        "device": on(moved["mel"]),
        "equal": bool(np.array_equal(moved["mel"].numpy(), processed["mel"].numpy())),
    }


def details() -> list[Seen]:
    return [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]


QUESTIONS: dict[str, Any] = {
    question.__name__: question
    for question in (limits, batch_beyond_the_limit, placement, learning, data_work_beside_a_busy_model, details)
}


def main(question: str, *arguments: str) -> None:
    print(json.dumps(QUESTIONS[question](*arguments)))
