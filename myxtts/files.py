"""Writing files: whole or not at all, and what the system says against it names the file and a way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from myxtts.errors import OutputError


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
