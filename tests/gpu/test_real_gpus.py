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
from tests.processes import run, run_program
from tests.training_processes import arguments, events

pytestmark = pytest.mark.gpu


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


def seen(question: str, *arguments: object) -> Any:
    return json.loads(
        run_program("real_gpus", question, *map(str, arguments), fresh=True, **all_gpus()).splitlines()[-1]
    )


def test_each_role_has_a_limit_that_it_cannot_cross_and_memory_is_measured() -> None:
    need(2)
    found = seen("limits")

    assert found["fits"] == [True, True]
    assert found["crosses"] == [False, False]
    for role, limit_mb in (("data", 1024), ("model", 2048)):
        stats = found["stats"][role]
        assert stats["source"] == "tensorflow"
        assert 0 < stats["current_mb"] <= stats["peak_mb"] <= limit_mb == stats["limit_mb"]
        assert 0 < stats["share"] <= 1


def test_a_batch_beyond_the_limit_is_an_error_that_names_flag_and_size() -> None:
    need(2)
    found = seen("batch_beyond_the_limit")

    assert "were asked" in found["said"]
    assert "--model-gpu-memory 512" in found["said"]


@pytest.mark.parametrize(("data_gpu", "model_gpu"), [(0, 1), (1, 0)])
def test_variables_and_data_work_are_where_the_roles_are(data_gpu: int, model_gpu: int) -> None:
    need(2)
    found = seen("placement", data_gpu, model_gpu)

    assert found["processed"] == f"/GPU:{data_gpu}"
    assert found["variables"] == found["moments"] == [f"/GPU:{model_gpu}"]


def test_one_gpu_grows_its_memory_and_learns() -> None:
    need(1)
    found = seen("learning", "whole", 8)

    assert found["device"] == "/GPU:0"
    assert found["growth"]
    assert found["losses"][-1] < found["losses"][0]


def test_sixteen_bits_learn_like_thirty_two_and_keep_whole_weights() -> None:
    need(1)
    mixed = "mixed_bfloat16" if capability_for_16_bits() >= (8, 0) else "mixed_float16"
    whole, half = (seen("learning", asked, 20) for asked in ("whole", "mixed"))

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
    found = seen("data_work_beside_a_busy_model")

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
    found = seen("details")
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
