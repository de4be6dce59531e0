"""Reads PyTorch's `.pth` files without PyTorch and without running anything that is in them.

A `.pth` is a zip of one pickle and of raw numbers. A pickle is a program, so this reader knows only the few calls of
which a checkpoint of tensors consists; classes of the trainer's configuration become inert stand-ins, and a pickle that
asks for anything else is refused by name. Tensors are made only of storages that this reader read itself, and reach no
further than these. The numbers are mapped, not copied: a file of 2 GB costs what is used of it.
"""

from __future__ import annotations

import collections
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from myxtts.errors import CheckpointError

_DTYPES: dict[str, str] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}
# What a trainer stores beside the weights: read past, never imported.
_INERT_MODULES = ("TTS.", "trainer.", "coqpit", "torch.optim.", "pathlib")
_MOST_AXES = 8
_INERT_NAMES = {"torch.device", "torch.Size", "torch.float16", "torch.float32", "torch.bfloat16"}


class Inert:
    """Stands for an object that we do not need; takes whatever a pickle gives it and does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, value: object) -> None:
        pass

    def extend(self, values: object) -> None:
        pass


class _StorageType:
    """The element type of a storage, named as PyTorch names it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Storage:
    """Numbers of the file. A pickle can pass it on, and can neither make one nor change it: it has nothing to set."""

    __slots__ = ("_values",)
    _values: np.ndarray

    def __init__(self, values: np.ndarray) -> None:
        object.__setattr__(self, "_values", values)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"a storage is given a {name[:40]}")

    @property
    def values(self) -> np.ndarray:
        return self._values


def read_pth(path: str | Path) -> Any:
    """What the file holds, with every tensor as a read-only NumPy array."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist", hint="give the folder of a published XTTS v2 model")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"{path} is not a PyTorch zip file (PyTorch 1.6 and later write these)",
            hint="the file may be cut short: compare its size with the published one, and download it again",
        )
    try:
        with zipfile.ZipFile(path) as archive:
            return _Archive(path, archive).load()
    except CheckpointError:
        raise
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, LookupError, ValueError, TypeError, AttributeError,
            AssertionError, OverflowError, RuntimeError, struct.error, OSError) as error:  # fmt: skip
        raise CheckpointError(
            f"{path} cannot be read as a PyTorch checkpoint: {str(error)[:200]}",
            hint="download it again, or save it again",
        ) from error


def state_dict(loaded: Any, path: str | Path) -> dict[str, np.ndarray]:
    """The named tensors of a checkpoint, which trainers wrap in {"model": ...}."""
    if isinstance(loaded, dict) and isinstance(loaded.get("model"), dict):
        loaded = loaded["model"]
    named = {
        name: value for name, value in loaded.items() if isinstance(name, str) and isinstance(value, np.ndarray)
    } if isinstance(loaded, dict) else {}  # fmt: skip
    if not named:
        raise CheckpointError(f"{path} holds no named tensors", hint="give model.pth of an XTTS v2 model")
    return named


class _Archive:
    """One open `.pth` file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._storages: dict[str, tuple[tuple[str, int], _Storage]] = {}
        if packed := [info.filename for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED]:
            raise CheckpointError(
                f"{path} holds compressed files ({packed[0][:80]!r}), which PyTorch does not write",
                hint="save it with torch.save, or use the published file",
            )
        programs = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise CheckpointError(
                f"{path} holds {len(programs)} files named data.pkl, must be 1",
                hint="save it with torch.save, or use the published file",
            )
        self._program = programs[0]
        self._root = self._program.removesuffix("data.pkl")
        order = f"{self._root}byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            raise CheckpointError(f"{path} was written big-endian", hint="save it on a little-endian machine")

    def load(self) -> Any:
        with self._archive.open(self._program) as file:
            return _Unpickler(file, self._path, self._storage).load()

    def _storage(self, type_name: str, key: str, count: int) -> _Storage:
        """Read once, however often the pickle names it."""
        kind = (type_name, count)
        if key not in self._storages:
            self._storages[key] = kind, _Storage(self._numbers(type_name, key, count))
        known, storage = self._storages[key]
        if known != kind:
            raise pickle.UnpicklingError(f"storage {key[:40]!r} is named with two types or lengths")
        return storage

    def _numbers(self, type_name: str, key: str, count: int) -> np.ndarray:
        dtype = np.dtype(_DTYPES[type_name])
        info = self._archive.getinfo(f"{self._root}data/{key}")
        if info.file_size < count * dtype.itemsize:
            raise CheckpointError(
                f"{self._path}: storage {key} has {info.file_size} bytes, must have {count * dtype.itemsize}",
                hint="the file is damaged: download it again",
            )
        if count == 0:
            return np.zeros(0, dtype)
        values = np.memmap(self._path, dtype, mode="r", offset=self._offset(info), shape=(count,))
        if type_name == "BFloat16Storage":
            # bfloat16 is the upper half of a float32.
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values

    def _offset(self, info: zipfile.ZipInfo) -> int:
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(30)
        signature, name_bytes, extra_bytes = struct.unpack("<4s22xHH", header)
        if signature != b"PK\x03\x04":
            raise zipfile.BadZipFile(f"no local header for {info.filename}")
        return info.header_offset + len(header) + int(name_bytes) + int(extra_bytes)


class _Unpickler(pickle._Unpickler):
    """Knows tensors, plain containers and inert stand-ins; imports nothing.

    Python's own, not the C one: that makes a table as long as the highest number a pickle gives to an object, and 12
    bytes are 32 GB.
    """

    def __init__(self, file: IO[bytes], path: Path, storage: Callable[[str, str, int], _Storage]) -> None:
        super().__init__(file)
        self._path = path
        self._storage = storage

    def _load_bytearray(self) -> None:
        # It would be made as long as it says it is, before a byte of it is read.
        raise pickle.UnpicklingError("a bytearray, which PyTorch does not write")

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _load_bytearray}

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("collections", "defaultdict"): collections.defaultdict,
            ("builtins", "dict"): dict,
            ("builtins", "list"): list,
            ("builtins", "set"): set,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in _DTYPES:
            return _StorageType(name)
        if f"{module}.{name}" in _INERT_NAMES or f"{module}.".startswith(_INERT_MODULES):
            return Inert
        raise CheckpointError(
            f"{self._path} asks to run {module}.{name}, which no checkpoint of weights needs",
            hint="do not trust this file; use the published one",
        )

    def persistent_load(self, pid: Any) -> _Storage:
        # Types first: to print what a pickle gives here may take all memory, so its values are not printed.
        if not isinstance(pid, tuple) or len(pid) != 5:
            raise pickle.UnpicklingError("a reference that is no storage")
        kind, storage_type, key, _, count = pid
        if not isinstance(kind, str) or kind != "storage" or type(storage_type) is not _StorageType:
            raise pickle.UnpicklingError("a reference that is no storage")
        if not isinstance(key, str) or type(count) is not int or count < 0 or storage_type.name not in _DTYPES:
            raise pickle.UnpicklingError("a storage without a name and a number of values")
        return self._storage(storage_type.name, key, count)


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> np.ndarray:
    if type(storage) is not _Storage:
        raise pickle.UnpicklingError(f"a tensor of a {type(storage).__name__}, not of a storage")
    if type(size) is not tuple or type(stride) is not tuple or len(size) != len(stride) or len(size) > _MOST_AXES:
        raise pickle.UnpicklingError("a tensor whose size and stride do not belong together")
    if any(type(number) is not int or not 0 <= number < 2**63 for number in (offset, *size, *stride)):
        raise pickle.UnpicklingError("a tensor whose offset, size or stride is no length")
    values = storage.values
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    # Many values out of few (a stride of 0) are a few bytes here and all memory later.
    if 0 not in size and (last >= len(values) or math.prod(size) > len(values)):
        raise pickle.UnpicklingError(f"tensor of size {size} reaches beyond its storage of {len(values)} values")
    if 0 in size:
        return np.zeros(size, values.dtype)
    strides = tuple(step * values.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(values[offset:], size, strides, writeable=False)


def _rebuild_parameter(data: Any, *_: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray):
        raise pickle.UnpicklingError(f"a parameter of a {type(data).__name__}, not of a tensor")
    return data
