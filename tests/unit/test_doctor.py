"""What `myxtts doctor` says of the table of GPU kernels."""

from __future__ import annotations

from myxtts.cli.doctor import gpu_kernels
from myxtts.runtime.kernels import stored_table


def test_the_tables_own_tensorflow_is_known() -> None:
    known = stored_table().tensorflow

    assert (
        gpu_kernels(known).text
        == f"every operation that training puts on a GPU has a kernel there in TensorFlow {known}"
    )


def test_another_tensorflow_is_named_with_the_way_to_try_it() -> None:
    finding = gpu_kernels("2.16.1")

    assert f"known of TensorFlow {stored_table().tensorflow}, not of 2.16.1" in finding.text
    assert "myxtts validate" in finding.text
    assert finding.fix is None, "nothing is broken: the exit code stays 0"
