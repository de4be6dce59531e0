"""Everything that training puts on a GPU has a kernel there, held against the GPU build's own list of them.

Soft placement is off with two GPUs: an operation without a kernel ends the run at its first step. The functions are
those that training and speaking call (see `gpu_kernel_cases`); what a failure prints is the operation, its types, the
stage, the function and the line that asks for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import run_program

THREE = ("codec", "gpt", "decoder mel")


def seen_in(case: str, *arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(run_program("gpu_kernels", case, *arguments).splitlines()[-1])
    return seen


@pytest.mark.slow
def test_all_of_a_whole_dual_run_has_gpu_kernels(tmp_path: Path) -> None:
    write_demo_corpus(tmp_path / "corpus", DemoSettings(minutes=0.5), workers=1)

    seen = seen_in("whole_run", str(tmp_path / "corpus"), str(tmp_path))

    assert seen["missing"] == []
    # The aligner, the codec's clip there and back, and speech by both: a sample that fails is only a warning.
    assert [name.partition("-")[0] for name in seen["samples"]] == ["codec", "decoder", "gpt"]
    assert seen["traced"] > 30
    assert seen["combinations"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "level", "stages"),
    [
        ("float32", "basic", ("decoder hifigan",)),
        ("float32", "enhanced", THREE),
        ("mixed_float16", "basic", THREE),
        ("mixed_float16", "experimental", (*THREE, "decoder hifigan")),
    ],
)
def test_every_stage_has_gpu_kernels_and_waits_once_a_step(precision: str, level: str, stages: tuple[str, ...]) -> None:
    seen = seen_in("steps", precision, level, *stages)

    assert seen["missing"] == []
    assert {"float16", "bfloat16"} & set(seen["types"]) == ({"float16", "bfloat16"} if "mixed" in precision else set())
    assert (seen["compiled"] > 0) == (level != "basic")
    assert seen["anywhere"] == []
    # One row of figures to the host; what goes the other way, functions take with them.
    assert set(seen["learn"]) == set(stages)
    for copies in seen["learn"].values():
        assert list(copies.values()) == [1]
        assert next(iter(copies)).startswith("to the host")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "models"), [("mirrored", ("/CPU:1", "/CPU:2")), ("hybrid", ("/CPU:2", "/CPU:3"))])
def test_every_stage_has_gpu_kernels_on_several_model_devices(mode: str, models: tuple[str, ...]) -> None:
    stages = ("codec", "gpt", "decoder hifigan")

    seen = seen_in("replicated", mode, *stages)

    assert seen["missing"] == []
    assert seen["anywhere"] == []
    assert set(seen["collectives"]) == set(models)
    assert "frozen_vectors" in " ".join(seen["functions"])
    for stage in stages:
        assert sum(seen["learn"][stage].values()) == 1, seen["learn"][stage]


@pytest.mark.slow
def test_a_trace_in_float16_tells_what_one_in_bfloat16_would() -> None:
    seen = seen_in("both_kinds_of_sixteen_bits")

    assert seen["same"]
    assert seen["combinations"] > 100


def test_an_operation_without_a_kernel_is_named_with_its_types_its_function_and_its_line() -> None:
    seen = seen_in("without_a_kernel")

    place = f"tests/contract/gpu_kernel_cases.py:{seen['line']}"
    assert seen["missing"] == [f"Pad(T=int64, Tpaddings=int32) called on /CPU:2, stage gpt, padded, {place}"]
    assert seen["host"]["gpt"]["Pad"] == 1
