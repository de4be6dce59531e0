"""The pipeline over three logical CPUs, proven from the tensors: each question's answer is printed as JSON."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bench.gpu import copy_gb_s
from myxtts.pipeline import Pipeline, Producer, SequentialPipeline, split_rows
from myxtts.pipeline.devices import TensorFlowDevices

process_devices: list[str] = []


class Source:
    def __init__(self, count: int) -> None:
        self.count, self.position = count, 0

    def __next__(self) -> dict[str, Any]:
        if self.position >= self.count:
            raise StopIteration
        self.position += 1
        rng = np.random.default_rng(self.position)
        return {"wave": rng.normal(size=(4, 3000)).astype(np.float32)}

    def get_state(self) -> dict[str, int]:
        return {"position": self.position}

    def set_state(self, state: Mapping[str, int]) -> None:
        self.position = state["position"]


spectrum = tf.function(lambda wave: tf.abs(tf.signal.stft(wave, 256, 128)))


def process(batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    mel = spectrum(tf.constant(batch["wave"]))
    process_devices.append(mel.backing_device[-5:])
    return {"mel": mel, "rows": tf.constant(np.arange(4, dtype=np.int32))}


def digest(tensors: Mapping[str, tf.Tensor]) -> str:
    return hashlib.sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))).hexdigest()


def pipeline_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pipeline-")]


def arrivals() -> dict[str, Any]:
    kept: list[dict[str, tf.Tensor]] = []

    def keeping_process(batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        kept.append(process(batch))
        return kept[-1]

    def arrived(*, deep_copy: bool) -> list[Any]:
        kept.clear()
        producers = [Producer(keeping_process, "/CPU:1")]
        with Pipeline(
            Source(3), producers, model_devices=["/CPU:2"], devices=TensorFlowDevices(deep_copy=deep_copy)
        ) as pipeline:
            return [batch.tensors for batch in pipeline]

    def address(tensor: tf.Tensor) -> int:
        return int(np.asarray(memoryview(tensor)).__array_interface__["data"][0])

    def shared(tensors: list[Any]) -> list[bool]:
        return [address(a["mel"]) == address(k["mel"]) for a, k in zip(tensors, kept, strict=True)]

    identity_shares = shared(arrived(deep_copy=False))
    copies = arrived(deep_copy=True)
    return {
        "process": sorted(set(process_devices)),
        # Integers of 32 bits stay in the host's memory, whatever device they are on.
        "arrived": sorted({tensors["mel"].backing_device[-5:] for tensors in copies}),
        "identity_shares": all(identity_shares),
        "copied": not any(shared(copies)),
        "equal": all(digest(a) == digest(k) for a, k in zip(copies, kept, strict=True)),
        "threads": pipeline_threads(),
    }


def same_bits() -> dict[str, Any]:
    def seen(make: Any, data: Sequence[str], model: str, **settings: Any) -> list[tuple[int, int, str]]:
        producers = [Producer(process, device) for device in data]
        with make(Source(25), producers, model_devices=[model], **settings) as pipeline:
            return [(batch.index, batch.state["position"], digest(batch.tensors)) for batch in pipeline]

    single = seen(SequentialPipeline, ["/CPU:0"], "/CPU:0")
    dual = seen(Pipeline, ["/CPU:1"], "/CPU:2", devices=TensorFlowDevices(deep_copy=True), buffer_size=5)
    identity = seen(Pipeline, ["/CPU:1"], "/CPU:2", buffer_size=1)
    process_devices.clear()
    two = seen(Pipeline, ["/CPU:0", "/CPU:1"], "/CPU:2", devices=TensorFlowDevices(deep_copy=True), buffer_size=5)
    return {
        "dual": dual == single,
        "identity": identity == single,
        "two producers": two == single,
        "on both": [process_devices.count("CPU:0"), process_devices.count("CPU:1")],
        "batches": len(single),
    }


def replicas() -> dict[str, Any]:
    models = ["/CPU:1", "/CPU:2"]
    with Pipeline(
        Source(4),
        [Producer(process, "/CPU:0")],
        model_devices=models,
        devices=TensorFlowDevices(deep_copy=True),
        split=split_rows,
    ) as pipeline:
        batches = list(pipeline)
    return {
        "devices": sorted({tuple(r["mel"].backing_device[-5:] for r in batch.replicas) for batch in batches}),
        "rows": [r["rows"].numpy().tolist() for r in batches[0].replicas],
        "process": sorted(set(process_devices)),
    }


def missing_devices() -> dict[str, Any]:
    def error_of(data: str, model: str) -> str:
        try:
            with Pipeline(
                Source(4), [Producer(process, data)], model_devices=[model], devices=TensorFlowDevices(deep_copy=True)
            ) as pipeline:
                list(pipeline)
        except Exception as error:  # noqa: BLE001 - which one it is, is the answer
            return type(error).__name__
        return "none"

    return {"data": error_of("/CPU:7", "/CPU:1"), "model": error_of("/CPU:0", "/CPU:7")}


def compiled_error() -> dict[str, Any]:
    def check(wave: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(tf.reduce_max(wave), 3.0, message="too loud")
        return wave

    checked = tf.function(check)
    loud = Producer(lambda batch: {"w": checked(tf.constant(batch["wave"] * 10))}, "/CPU:1")
    found = ""
    try:
        with Pipeline(
            Source(200), [loud], model_devices=["/CPU:2"], devices=TensorFlowDevices(deep_copy=True)
        ) as pipeline:
            list(pipeline)
    except tf.errors.InvalidArgumentError as error:
        found = str(error)
    return {"named": "too loud" in found, "threads": pipeline_threads()}


def bandwidth() -> dict[str, float]:
    return {
        "copied": copy_gb_s("/CPU:1", "/CPU:2", deep_copy=True),
        "not copied": copy_gb_s("/CPU:1", "/CPU:2"),
    }


QUESTIONS = {
    question.__name__: question
    for question in (arrivals, same_bits, replicas, missing_devices, compiled_error, bandwidth)
}


def main(question: str) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    tf.config.set_soft_device_placement(False)
    print(json.dumps(QUESTIONS[question]()))
