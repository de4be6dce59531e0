"""The stored table of GPU kernels, and what is read from it."""

from __future__ import annotations

import pytest

from myxtts.runtime.kernels import KernelTable, stored_table

TABLE = KernelTable(
    tensorflow="2.21.0",
    cuda="12.5.1",
    kernels={
        "Pad": {
            "GPU": [({"T": ["float32"], "Tpaddings": ["int32", "int64"]}, ["paddings"])],
            "DEFAULT": [({"T": ["int32"]}, ["input", "paddings", "output"])],
            "XLA_GPU_JIT": [({"T": ["int64"]}, [])],
        },
        "NoOp": {"DEFAULT": [({}, [])]},
    },
)


def test_a_kernel_is_found_by_all_its_types_and_says_what_stays_on_the_host() -> None:
    on_gpu = TABLE.on_gpu("Pad", {"T": ["float32"], "Tpaddings": ["int64"]})

    assert on_gpu is not None
    assert on_gpu.host_arguments == {"paddings"}
    assert TABLE.on_gpu("Pad", {"T": ["float32"], "Tpaddings": ["float32"]}) is None
    assert TABLE.on_gpu("Pad", {"T": ["int64"], "Tpaddings": ["int32"]}) is None


def test_kernels_of_every_device_are_also_a_gpus() -> None:
    found = TABLE.on_gpu("Pad", {"T": ["int32"], "Tpaddings": ["int32"]})

    assert found is not None
    assert "output" in found.host_arguments
    assert TABLE.on_gpu("NoOp", {}) is not None
    assert TABLE.on_gpu("Unheard", {}) is None


def test_a_list_of_types_needs_a_kernel_for_each() -> None:
    assert TABLE.on_gpu("Pad", {"T": ["float32", "int64"]}) is None


def test_xla_has_kernels_of_its_own() -> None:
    assert TABLE.in_xla("Pad", {"T": ["int64"]}) is not None
    assert TABLE.in_xla("Pad", {"T": ["float32"]}) is None


@pytest.mark.parametrize(
    ("version", "known"), [("2.21.0", True), ("2.21.3", True), ("2.22.0", False), ("2.2.0", False)]
)
def test_it_knows_its_own_release(version: str, known: bool) -> None:
    assert TABLE.knows(version) == known


def test_the_stored_table_holds_what_was_found_by_trying() -> None:
    table = stored_table()

    assert table.on_gpu("PadV2", {"T": ["int64"], "Tpaddings": ["int32"]}) is None
    assert table.on_gpu("ConcatV2", {"T": ["int64"], "N": [], "Tidx": ["int32"]}) is not None
    assert table.on_gpu("CTCLoss", {"T": ["float32"]}) is None
    assert table.in_xla("PadV2", {"T": ["int64"], "Tpaddings": ["int32"]}) is not None
