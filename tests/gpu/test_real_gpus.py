"""Limits, placement, 16-bit computing and asynchronous transfer on real GPUs, each case in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from myxtts.runtime.inventory import find_inventory
from tests.processes import run, run_program, run_script
from tests.small_model import SIZES
from tests.training_processes import arguments, events

pytestmark = pytest.mark.gpu

PRELUDE = f"""
import json, time
import numpy as np
import tensorflow as tf
from myxtts.cli.validate import ToneSource
from myxtts.config.config import XTTSConfig
from myxtts.errors import TrainingError
from myxtts.runtime.seeds import seed_everything
from myxtts.training.memory_isolated_trainer import MemoryIsolatedDualGPUTrainer
from myxtts.training.trainer import XTTSTrainer

SIZES = {SIZES!r}
def config(**settings):
    return XTTSConfig(model_size="tiny", stage="codec", max_steps=30, **SIZES, **settings)
def on(tensor):
    return "/" + tensor.backing_device.rsplit("device:", 1)[1]
"""


def all_gpus() -> dict[str, str]:
    """The other tests hide the GPUs from their processes."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu.index) for gpu in find_inventory().gpus)}


def need(count: int) -> None:
    found = len(find_inventory().gpus)
    if found < count:
        pytest.skip(f"needs {count} GPUs, found {found}")


def capability_for_16_bits() -> tuple[int, int]:
    capability = min(gpu.compute_capability or (0, 0) for gpu in find_inventory().gpus)
    if capability < (7, 0):
        pytest.skip(f"needs compute capability 7.0, found {capability}")
    return capability


def seen(script: str) -> Any:
    return json.loads(run_script(PRELUDE + script, fresh=True, **all_gpus()).splitlines()[-1])


def test_each_role_has_a_limit_that_it_cannot_cross_and_memory_is_measured() -> None:
    need(2)
    found = seen("""
trainer = MemoryIsolatedDualGPUTrainer(config(), 0, 1, 1024, 2048)
trainer.start_stage("codec")
trainer.train_batch(trainer.transfer_batch(trainer.process_batch(next(ToneSource()))))
def fits(device, mb):
    try:
        with tf.device(device):
            return float(tf.reduce_sum(tf.zeros([mb * 2**18]))) == 0.0
    except tf.errors.ResourceExhaustedError:
        return False
data, model = trainer.plan.data.name, trainer.plan.model.name
print(json.dumps(dict(
    fits=[fits(data, 256), fits(model, 1024)], crosses=[fits(data, 1500), fits(model, 3000)],
    stats=trainer.get_memory_stats(),
)))
""")

    assert found["fits"] == [True, True]
    assert found["crosses"] == [False, False]
    for role, limit_mb in (("data", 1024), ("model", 2048)):
        stats = found["stats"][role]
        assert stats["source"] == "tensorflow"
        assert 0 < stats["current_mb"] <= stats["peak_mb"] <= limit_mb == stats["limit_mb"]
        assert 0 < stats["share"] <= 1


def test_a_batch_beyond_the_limit_is_an_error_that_names_flag_and_size() -> None:
    need(2)
    found = seen("""
trainer = MemoryIsolatedDualGPUTrainer(config(), 0, 1, 1024, 512)
trainer.start_stage("codec")
said = ""
try:
    for clips in (64, 512, 4096, 32768):
        mel = tf.random.normal([clips, 512, 80])
        trainer.train_step(tf.zeros([clips, 4], tf.int32), mel, tf.fill([clips], 4), tf.fill([clips], 512))
except TrainingError as error:
    said = str(error)
print(json.dumps(dict(said=said)))
""")

    assert "were asked" in found["said"]
    assert "--model-gpu-memory 512" in found["said"]


@pytest.mark.parametrize(("data_gpu", "model_gpu"), [(0, 1), (1, 0)])
def test_variables_and_data_work_are_where_the_roles_are(data_gpu: int, model_gpu: int) -> None:
    need(2)
    found = seen(f"""
trainer = XTTSTrainer(config(data_gpu={data_gpu}, model_gpu={model_gpu}))
trainer.start_stage("codec")
with tf.device(trainer.plan.producer_device):
    processed = trainer.current_stage().process(next(ToneSource()))
variables = [*trainer.current_stage().trainable_variables]
print(json.dumps(dict(
    processed=on(processed["mel"]), variables=sorted({{on(v.value.read_value()) for v in variables}}),
    moments=sorted({{on(v.read_value()) for v in trainer.optimizer.variables}}),
)))
""")

    assert found["processed"] == f"/GPU:{data_gpu}"
    assert found["variables"] == found["moments"] == [f"/GPU:{model_gpu}"]


def test_one_gpu_grows_its_memory_and_learns() -> None:
    need(1)
    found = seen("""
seed_everything(0)
trainer = XTTSTrainer(config())
trainer.start_stage("codec")
stage, source = trainer.current_stage(), ToneSource()
with tf.device(trainer.plan.producer_device):
    batch = stage.process(next(source))
stage.measure([batch])
losses = [trainer.learn([trainer._whole_batch(batch)]).loss for _ in range(8)]
print(json.dumps(dict(losses=losses, growth=trainer.plan.memory_growth, device=trainer.model_device)))
""")

    assert found["device"] == "/GPU:0"
    assert found["growth"]
    assert found["losses"][-1] < found["losses"][0]


def test_sixteen_bits_learn_like_thirty_two_and_keep_whole_weights() -> None:
    need(1)
    script = """
import keras
seed_everything(0)
trainer = XTTSTrainer(config(mixed_precision=MIXED))
trainer.start_stage("codec")
stage = trainer.current_stage()
with tf.device(trainer.plan.producer_device):
    batch = stage.process(next(ToneSource()))
stage.measure([batch])
results = [trainer.learn([trainer._whole_batch(batch)]) for _ in range(20)]
print(json.dumps(dict(
    losses=[r.loss for r in results], skipped=trainer.skipped_steps,
    types=sorted({str(v.dtype) for v in stage.trainable_variables}), policy=keras.config.dtype_policy().name,
)))
"""
    mixed = "mixed_bfloat16" if capability_for_16_bits() >= (8, 0) else "mixed_float16"
    whole, half = (seen(f"MIXED = {asked}\n{script}") for asked in (False, True))

    assert (whole["policy"], half["policy"]) == ("float32", mixed)
    assert half["types"] == ["float32"]
    assert half["skipped"] == 0
    assert half["losses"][-1] == pytest.approx(whole["losses"][-1], rel=0.1)


def test_a_run_in_16_bits_learns_every_stage_and_speaks_its_samples(tmp_path: Path) -> None:
    need(1)
    capability_for_16_bits()
    write_demo_corpus(tmp_path / "demo", DemoSettings(minutes=0.5), workers=1)
    flags = ("--mixed-precision", "--ctc-loss-weight", "4", "--alignment-weight", "1", "--gpt-layers", "2")
    steps = ("--max-steps", "40", "--discriminator-start", "20", "--validate-every", "40")

    result = run(*arguments(tmp_path / "demo", tmp_path / "run", *flags, *steps), **all_gpus())

    assert result.returncode == 0, result.stderr
    assert "no sample of" not in result.stderr
    made = {event["stage"] for event in events(tmp_path / "run") if event["event"] == "sample"}
    assert made == {"codec", "gpt", "decoder"}


def test_data_work_does_not_wait_for_a_model_device_that_is_busy() -> None:
    need(2)
    found = seen("""
from myxtts.pipeline.devices import TensorFlowDevices
devices = TensorFlowDevices()
trainer = XTTSTrainer(config(data_gpu=0, model_gpu=1))
trainer.start_stage("codec")
stage, source = trainer.current_stage(), ToneSource()
data, model = trainer.plan.data.name, trainer.plan.model.name
def process():
    with tf.device(data):
        out = stage.process(next(source))
    devices.finish(out, data)
    return out
@tf.function
def long_work(x):
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
print(json.dumps(dict(
    alone_s=alone_s, ready_s=ready_s, device=on(moved["mel"]),
    equal=bool(np.array_equal(moved["mel"].numpy(), processed["mel"].numpy())),
)))
""")

    assert found["equal"]
    assert found["device"] == "/GPU:1"
    assert found["ready_s"] < 0.5 * found["alone_s"], "the data device waited for the model device's work"


def test_batches_are_copied_while_the_model_device_makes_its_steps(
    record_property: Callable[[str, object], None],
) -> None:
    need(2)
    found = json.loads(run_program("gpu_overlap", fresh=True, **all_gpus()).splitlines()[-1])
    for name, value in found.items():
        record_property(name, round(value, 5))

    assert found["equal"]
    assert found["copy_s"] < 0.5 * found["loop_s"], "a copy waited for more than the step at hand"
    assert found["loop_beside_copies_s"] < 1.5 * found["loop_s"], "copies held up the steps"
    assert found["copy_busy_s"] <= found["copy_s"]
    assert found["copy_busy_s"] < 5 * found["copy_alone_s"], "a wait for the model device was counted as copying"


def test_tensorflow_s_gpus_are_those_of_the_driver(record_property: Callable[[str, object], None]) -> None:
    need(1)
    found = seen("""
gpus = tf.config.list_physical_devices("GPU")
print(json.dumps([tf.config.experimental.get_device_details(gpu) for gpu in gpus]))
""")
    inventory = find_inventory().gpus
    record_property("details", sorted(found[0]))

    assert [one["device_name"] for one in found] == [gpu.name for gpu in inventory]
    assert [tuple(one["compute_capability"]) for one in found] == [gpu.compute_capability for gpu in inventory]


def test_deterministic_runs_repeat_themselves_and_the_cost_is_known(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    need(1)
    write_demo_corpus(tmp_path / "demo", DemoSettings(minutes=0.5), workers=1)
    runs = {"first": ("--deterministic",), "second": ("--deterministic",), "plain": ()}
    for name, flags in runs.items():
        result = run(
            *arguments(tmp_path / "demo", tmp_path / name, "--max-steps", "20", "--samples", "0", *flags), **all_gpus()
        )
        assert result.returncode == 0, result.stderr
        windows = [event for event in events(tmp_path / name) if event["event"] == "window"]
        record_property(f"{name}_step_ms", round(median(window["step_ms"] for window in windows), 1))

    first, second = (
        [(event["stage"], event["loss"]) for event in events(tmp_path / name) if event["event"] == "step"]
        for name in ("first", "second")
    )
    assert first == second


def test_the_five_part_check_passes() -> None:
    need(2)
    result = run("validate_dual_gpu_pipeline.py", "--data-gpu", "0", "--model-gpu", "1", **all_gpus())

    assert result.returncode == 0, result.stdout
    assert "All 5 parts passed." in result.stdout


@pytest.mark.parametrize(
    ("gpus", "flags"),
    [
        (2, ("--data-gpu", "0", "--model-gpu", "1", "--enable-memory-isolation", "--model-gpu-memory", "4096")),
        (2, ("--multi-gpu",)),
        (3, ("--data-gpu", "0", "--model-gpu", "1,2")),
        (3, ("--data-gpu", "0,1", "--model-gpu", "2")),
        (4, ("--data-gpu", "0,1", "--model-gpu", "2,3")),
    ],
    ids=["dual isolated", "mirrored", "1+2", "2+1", "2+2"],
)
def test_whole_runs_leave_a_voice_and_the_busy_shares_of_the_gpus(
    tmp_path: Path, gpus: int, flags: tuple[str, ...]
) -> None:
    need(gpus)
    write_demo_corpus(tmp_path / "demo", DemoSettings(minutes=0.5), workers=1)
    limits = ("--data-gpu-memory", "2048") if "--enable-memory-isolation" in flags else ()

    result = run(*arguments(tmp_path / "demo", tmp_path / "run", "--max-steps", "5", *flags, *limits), **all_gpus())

    assert result.returncode == 0, result.stderr
    window = next(event for event in events(tmp_path / "run") if event["event"] == "window")
    assert len([device for device in window["device_busy"] if device.startswith("/GPU")]) >= 2
    assert (tmp_path / "run" / "voice" / "model.safetensors").is_file()
