"""Writing files: whole or not at all, by one process at a time, and what the system says against it names the file and
a way out."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import logging
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from myxtts.errors import OutputError

logger = logging.getLogger(__name__)

DAMAGED_ARRAYS = (ValueError, KeyError, EOFError, RuntimeError, MemoryError, TypeError, zipfile.BadZipFile, zlib.error)
"""What NumPy and zipfile raise for an .npz with a flipped bit, one kind for each place that it may be in."""

_SAFETENSORS_TYPES = {
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "uint32": "U32",
    "int32": "I32",
    "float16": "F16",
    "uint16": "U16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""In the order in which arrays stand in a file."""

_HERE, _RENAME_EXCHANGE = -100, 2
"""Of the system call renameat2."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def writing(target: str | Path, *, hint: str = "check the path, its rights and the room on its disk") -> Iterator[None]:
    """Around everything that writes `target`, the making of its folder included; a reader that left stays one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OutputError(f"{target} cannot be written: {reason}", hint=hint) from error


@contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path to write instead of `target`, which gets its name at the end; of a failure nothing is left.

    `durable` holds after a power cut too, and costs a few milliseconds of waiting for the disk.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        if durable:
            sync(part)
        part.replace(target)
        if durable:
            sync(target.parent)  # or a power cut may take the new name back
    finally:
        part.unlink(missing_ok=True)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> None:
    """Write the file that the library would, straight to its path.

    The library writes to a temporary file with a random name, which a kill leaves behind, and with the owner's rights
    alone.
    """
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    order = list(_SAFETENSORS_TYPES)
    names = sorted(kept, key=lambda name: (order.index(kept[name].dtype.name), name))
    end = 0
    for name in names:
        begin, end = end, end + kept[name].nbytes
        kind = _SAFETENSORS_TYPES[kept[name].dtype.name]
        header[name] = {"dtype": kind, "shape": list(kept[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(kept[name].reshape(-1).view(np.uint8).data)


def make_folder(path: Path) -> None:
    """The folder and all above it; a new one has its name on the disk, or what is synced inside would have none."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def exchange(one: Path, other: Path) -> bool:
    """Give two folders each other's name at once; `False` where the system or the file system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # no Linux, or an old C library
        return False
    if call(_HERE, bytes(one), _HERE, bytes(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


def try_lock(descriptor: int, path: Path) -> bool:
    """Take the lock of an open file, which goes with the process; False where another one has it.

    Network file systems may have no locks: that is said, and the file used without one.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning(
            "%s cannot be locked (%s): see to it that no second command writes there", path.parent, error.strerror
        )
    return True


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems know no syncing of folders; they keep names in order by themselves.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
