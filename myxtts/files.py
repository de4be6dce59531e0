"""Writing files: whole or not at all, by one process at a time, and what the system says against it names the file and
a way out."""

from __future__ import annotations

import ctypes
import errno
import fcntl
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
from safetensors.numpy import save_file

from myxtts.errors import OutputError

logger = logging.getLogger(__name__)

DAMAGED_ARRAYS = (ValueError, KeyError, EOFError, RuntimeError, MemoryError, TypeError, zipfile.BadZipFile, zlib.error)
"""What NumPy and zipfile raise for an .npz with a flipped bit, one kind for each place that it may be in."""

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
    """Write arrays with the rights that any new file has: the library's own are the owner's alone."""
    path.touch()
    rights = path.stat().st_mode & 0o777
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path, metadata)
    path.chmod(rights)


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
