"""Which operations a GPU can run, known without one: the kernels that the GPU build of TensorFlow registers.

`tools/gpu_kernels.py` writes the table from such a build. An operation that has no kernel for its types on the GPU
that it is placed on ends a dual run, for soft placement is off there. Imports no TensorFlow.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Types = Mapping[str, Sequence[str]]
"""Attribute of an operation to its types by TensorFlow's names: one, or those of a list."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, and the arguments that it reads or writes in the host's memory rather than the GPU's."""

    host_arguments: frozenset[str] = frozenset()


@dataclass(frozen=True)
class KernelTable:
    """The kernels of one build of TensorFlow that run on GPUs, by operation and by kind of device."""

    tensorflow: str
    cuda: str
    kernels: Mapping[str, Mapping[str, Sequence[tuple[Types, Sequence[str]]]]]

    def on_gpu(self, operation: str, types: Types) -> Kernel | None:
        """What a GPU would run; None where it has nothing for these types."""
        return self._first(operation, ("GPU", "DEFAULT"), types)

    def in_xla(self, operation: str, types: Types) -> Kernel | None:
        """The same inside a function that XLA compiles for a GPU."""
        return self._first(operation, ("XLA_GPU_JIT",), types)

    def knows(self, version: str) -> bool:
        """Whether a TensorFlow is of this table's release: kernels change with the second number, not with fixes."""
        return version.split(".")[:2] == self.tensorflow.split(".")[:2]

    def _first(self, operation: str, devices: Sequence[str], types: Types) -> Kernel | None:
        own = self.kernels.get(operation, {})
        for device in devices:
            for allowed, host in own.get(device, ()):
                if all(set(types.get(name, ())) <= set(names) for name, names in allowed.items()):
                    return Kernel(frozenset(host))
        return None


@cache
def stored_table() -> KernelTable:
    """The table that came with the package."""
    file = resources.files("myxtts.runtime").joinpath("gpu_kernels.json.gz")
    table: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return KernelTable(**table)
