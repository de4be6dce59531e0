"""Placement and equality on logical devices: each case in a process of its own, proven from the tensors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processes import run_program


def answer(question: str) -> dict[str, Any]:
    printed = run_program("pipeline_devices", question, timeout_s=200)
    result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return result


@pytest.mark.slow
def test_data_work_stays_on_the_data_device_and_batches_arrive_as_copies_on_the_model_device() -> None:
    result = answer("arrivals")

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
    result = answer("same_bits")

    assert result == {"dual": True, "identity": True, "two producers": True, "on both": [13, 12], "batches": 25}


@pytest.mark.slow
def test_each_replica_gets_its_rows_on_its_own_device() -> None:
    result = answer("replicas")

    assert result == {"devices": [["CPU:1", "CPU:2"]], "rows": [[0, 1], [2, 3]], "process": ["CPU:0"]}


@pytest.mark.slow
def test_a_device_that_is_not_there_is_an_error_at_the_caller_and_no_silent_fallback() -> None:
    result = answer("missing_devices")

    assert "none" not in result.values(), result


@pytest.mark.slow
def test_an_error_inside_a_compiled_function_on_the_data_device_reaches_the_caller() -> None:
    result = answer("compiled_error")

    assert result == {"named": True, "threads": []}


@pytest.mark.slow
def test_the_gpu_bench_measures_copies_as_training_makes_them() -> None:
    result = answer("bandwidth")

    # Between logical CPUs training's copy is none unless it is a deep one: the bench sees which of them it is.
    assert 0.01 < result["copied"] < result["not copied"] / 4
