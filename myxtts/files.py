"""Writing for the user: what the system says against it becomes an error that names the file and a way out."""

from __future__ import annotations

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
