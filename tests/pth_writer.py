"""Writes `.pth` files byte by byte as PyTorch does, without PyTorch: for the reader's tests and for whole folders."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np


class Named:
    """Pickles as the global `module.name`, whether or not that can be imported here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Pickles as a call of a global with arguments."""

    def __init__(self, function: Named, *args: Any) -> None:
        self.function, self.args = function, args


class Storage:
    def __init__(self, kind: str, key: str, values: np.ndarray) -> None:
        self.kind, self.key, self.values = kind, key, values


class Writer(pickle._Pickler):  # the Python pickler: the C one cannot write a global that is not importable
    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    def persistent_id(self, item: Any) -> Any:
        if isinstance(item, Storage):
            return ("storage", Named("torch", item.kind), item.key, "cpu", item.values.size)
        return None

    def save_named(self, item: Named) -> None:
        self.write(pickle.GLOBAL + f"{item.module}\n{item.name}\n".encode())

    def save_call(self, item: Call) -> None:
        self.save(item.function)
        self.save(item.args)
        self.write(pickle.REDUCE)

    dispatch[Named] = save_named
    dispatch[Call] = save_call


def tensor(values: np.ndarray, key: str, kind: str = "FloatStorage", shape: Any = None, stride: Any = None) -> Call:
    shape = values.shape if shape is None else shape
    stride = tuple(step // values.itemsize for step in values.strides) if stride is None else stride
    storage = Storage(kind, key, values)
    rebuild = Named("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, 0, tuple(shape), tuple(stride), False, Call(Named("collections", "OrderedDict")))


def write(path: Path, content: Any, storages: dict[str, np.ndarray], compression: int = zipfile.ZIP_STORED) -> Path:
    program = io.BytesIO()
    Writer(program, protocol=2).dump(content)
    return write_program(path, program.getvalue(), storages, compression)


def write_program(
    path: Path, program: bytes, storages: Mapping[str, np.ndarray], compression: int = zipfile.ZIP_STORED
) -> Path:
    """A file of a pickle that was made by hand."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        for key, values in storages.items():
            archive.writestr(f"archive/data/{key}", values.tobytes())
    return path


def write_state(path: Path, state: Mapping[str, np.ndarray]) -> Path:
    """A state dict of float32 tensors."""
    content = {name: tensor(value, str(index)) for index, (name, value) in enumerate(state.items())}
    return write(path, content, {str(index): value for index, value in enumerate(state.values())})
