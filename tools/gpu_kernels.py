"""Writes the table of GPU kernels that `myxtts.runtime.kernels` reads, from a GPU build of TensorFlow.

The GPU build needs no GPU to list its kernels. Unpacked beside the installed one, it answers in a process of its own:

    pip install --target /tmp/gpu-build --no-deps tensorflow==2.21.0
    PYTHONPATH=/tmp/gpu-build python tools/gpu_kernels.py

Only kernels that a GPU can run are kept: those registered for GPU, for every device (DEFAULT), and for XLA on GPUs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

TABLE = Path(__file__).parent.parent / "myxtts" / "runtime" / "gpu_kernels.json.gz"
DEVICES = ("GPU", "DEFAULT", "XLA_GPU_JIT")


def main() -> None:
    if not tf.test.is_built_with_cuda():
        raise SystemExit(f"{tf.__file__} is not a GPU build of TensorFlow")
    # XLA registers its kernels when it first compiles.
    tf.function(lambda x: x + 1.0, jit_compile=True)(tf.constant(1.0))
    table = {
        "tensorflow": tf.__version__,
        "cuda": tf.sysconfig.get_build_info()["cuda_version"],
        "kernels": grouped(kernels.get_all_registered_kernels().kernel),
    }
    text = json.dumps(table, separators=(",", ":"), sort_keys=True)
    # Without a time, so that the same build gives the same bytes.
    TABLE.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{len(table['kernels'])} operations of TensorFlow {tf.__version__}: {TABLE.stat().st_size / 1000:.0f} kB")


def grouped(registered: Iterable[Any]) -> dict[str, dict[str, list[Any]]]:
    """Operation to device to kernels, each its types by attribute and its arguments in host memory."""
    table: dict[str, dict[str, list[Any]]] = {}
    for kernel in sorted(registered, key=lambda kernel: kernel.SerializeToString(deterministic=True)):
        # A label marks a kernel that only a graph which names it gets.
        if kernel.device_type not in DEVICES or kernel.label:
            continue
        types = {constraint.name: names_of(constraint) for constraint in kernel.constraint}
        if not all(types.values()):
            print(f"left out, for it asks for more than types: {kernel.op} on {kernel.device_type}")
            continue
        entry = [types, sorted(set(kernel.host_memory_arg))]
        own = table.setdefault(kernel.op, {}).setdefault(kernel.device_type, [])
        if entry not in own:
            own.append(entry)
    return {op: {device: joined(own) for device, own in devices.items()} for op, devices in table.items()}


def names_of(constraint: Any) -> list[str]:
    """Types, or the strings that `bad_indices_policy` may be."""
    allowed = constraint.allowed_values.list
    return sorted([*(tf.as_dtype(number).name for number in allowed.type), *(word.decode() for word in allowed.s)])


def joined(entries: list[Any]) -> list[Any]:
    """Kernels that differ in one attribute's types as one: a tenth of the table."""
    for attribute in sorted({name for types, _ in entries for name in types}):
        by_rest: dict[str, Any] = {}
        for types, host in entries:
            rest = json.dumps([{**types, attribute: None}, host], sort_keys=True) if attribute in types else ""
            if rest and rest in by_rest:
                known = by_rest[rest][0]
                known[attribute] = sorted({*known[attribute], *types[attribute]})
            else:
                by_rest[rest or json.dumps([types, host], sort_keys=True)] = [types, host]
        entries = list(by_rest.values())
    return entries


if __name__ == "__main__":
    main()
