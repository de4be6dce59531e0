"""Limits of the system that bind root too: a disk that fills up, memory that ends."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def no_file_larger_than(size_bytes: int) -> Iterator[None]:
    """A write that would cross the limit stops there, as on a disk that fills up; the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_more_memory_than(extra_bytes: int) -> Iterator[None]:
    """What this process asks for beyond what it has and so many bytes is a `MemoryError`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
