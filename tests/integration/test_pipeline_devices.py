"""Placement and equality on logical devices: each case in a process of its own, proven from the tensors."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from tests.processes import run_script

PRELUDE = """
import hashlib, json, threading
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
)
tf.config.set_soft_device_placement(False)
from myxtts.pipeline import Pipeline, SequentialPipeline, split_rows


class Source:
    def __init__(self, count):
        self.count, self.position = count, 0

    def __next__(self):
        if self.position >= self.count:
            raise StopIteration
        self.position += 1
        rng = np.random.default_rng(self.position)
        return {"wave": rng.normal(size=(4, 3000)).astype(np.float32)}

    def get_state(self):
        return {"position": self.position}

    def set_state(self, state):
        self.position = state["position"]


process_devices = []


@tf.function
def spectrum(wave):
    return tf.abs(tf.signal.stft(wave, 256, 128))


def process(batch):
    mel = spectrum(tf.constant(batch["wave"]))
    process_devices.append(mel.backing_device[-5:])
    return {"mel": mel, "rows": tf.constant(np.arange(4, dtype=np.int32))}


def digest(tensors):
    return hashlib.sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))).hexdigest()
"""


def run(body: str) -> dict[str, Any]:
    """Runs the body in a fresh process; it prints one JSON object as its last line."""
    printed = run_script(textwrap.dedent(PRELUDE) + textwrap.dedent(body), timeout_s=200)
    result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return result


@pytest.mark.slow
def test_data_work_stays_on_the_data_device_and_batches_arrive_as_copies_on_the_model_device() -> None:
    result = run("""
    kept = []

    def keeping_process(batch):
        tensors = process(batch)
        kept.append(tensors)
        return tensors

    def address(tensor):
        return np.asarray(memoryview(tensor)).__array_interface__["data"][0]

    def arrivals(deep_copy):
        kept.clear()
        with Pipeline(
            Source(3), keeping_process, data_device="/CPU:1", model_devices=["/CPU:2"], deep_copy=deep_copy
        ) as p:
            return [batch.tensors for batch in p]

    def shared(arrived):
        return [address(a["mel"]) == address(k["mel"]) for a, k in zip(arrived, kept)]

    identity_shares = shared(arrivals(False))
    arrived = arrivals(True)
    print(json.dumps({
        "process": sorted(set(process_devices)),
        "arrived": sorted({t.backing_device[-5:] for tensors in arrived for t in tensors.values()}),
        "identity_shares": all(identity_shares),
        "copied": not any(shared(arrived)),
        "equal": all(digest(a) == digest(k) for a, k in zip(arrived, kept)),
        "threads": [t.name for t in threading.enumerate() if t.name.startswith("pipeline-")],
    }))
    """)

    assert result == {
        "process": ["CPU:1"],
        "arrived": ["CPU:2"],
        "identity_shares": True,
        "copied": True,
        "equal": True,
        "threads": [],
    }


@pytest.mark.slow
def test_pipelined_dual_and_sequential_single_give_the_same_bits() -> None:
    result = run("""
    def run(make, **settings):
        with make(Source(25), process, **settings) as p:
            return [(batch.index, batch.state["position"], digest(batch.tensors)) for batch in p]

    single = run(SequentialPipeline, data_device="/CPU:0", model_devices=["/CPU:0"])
    dual = run(Pipeline, data_device="/CPU:1", model_devices=["/CPU:2"], deep_copy=True, buffer_size=5)
    identity = run(Pipeline, data_device="/CPU:1", model_devices=["/CPU:2"], deep_copy=False, buffer_size=1)
    print(json.dumps({"dual": dual == single, "identity": identity == single, "batches": len(single)}))
    """)

    assert result == {"dual": True, "identity": True, "batches": 25}


@pytest.mark.slow
def test_each_replica_gets_its_rows_on_its_own_device() -> None:
    result = run("""
    with Pipeline(
        Source(4), process, data_device="/CPU:0", model_devices=["/CPU:1", "/CPU:2"], deep_copy=True, split=split_rows
    ) as p:
        batches = list(p)
    print(json.dumps({
        "devices": sorted({tuple(r["mel"].backing_device[-5:] for r in batch.replicas) for batch in batches}),
        "rows": [r["rows"].numpy().tolist() for r in batches[0].replicas],
        "process": sorted(set(process_devices)),
    }))
    """)

    assert result == {"devices": [["CPU:1", "CPU:2"]], "rows": [[0, 1], [2, 3]], "process": ["CPU:0"]}


@pytest.mark.slow
def test_a_device_that_is_not_there_is_an_error_at_the_caller_and_no_silent_fallback() -> None:
    result = run("""
    def error_of(data, model):
        try:
            with Pipeline(Source(4), process, data_device=data, model_devices=[model], deep_copy=True) as p:
                list(p)
        except Exception as error:
            return type(error).__name__
        return "none"

    print(json.dumps({"data": error_of("/CPU:7", "/CPU:1"), "model": error_of("/CPU:0", "/CPU:7")}))
    """)

    assert "none" not in result.values(), result


@pytest.mark.slow
def test_an_error_inside_a_compiled_function_on_the_data_device_reaches_the_caller() -> None:
    result = run("""
    @tf.function
    def check(wave):
        tf.debugging.assert_less(tf.reduce_max(wave), 3.0, message="too loud")
        return wave

    try:
        with Pipeline(
            Source(200), lambda b: {"w": check(tf.constant(b["wave"] * 10))}, data_device="/CPU:1",
            model_devices=["/CPU:2"], deep_copy=True,
        ) as p:
            list(p)
        found = ""
    except tf.errors.InvalidArgumentError as error:
        found = str(error)
    left = [t.name for t in threading.enumerate() if t.name.startswith("pipeline-")]
    print(json.dumps({"named": "too loud" in found, "threads": left}))
    """)

    assert result == {"named": True, "threads": []}
