"""Faults below Python: `faults.c`, compiled when it is first asked for and preloaded into processes of tests.

The process that is to suffer calls `arm` with a `Fault`, or `record` with a file for all that it writes.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
OPERATIONS = ("read", "write", "sync", "rename", "open", "remove", "make folder", "cut")
ACTIONS = ("none", "error", "signal", "full", "clock")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens at the `at`-th of the `operations` on files `under` some folders; with 0 they are only counted."""

    under: tuple[str, ...]
    operations: tuple[str, ...] = OPERATIONS
    at: int = 0
    action: str = "none"
    value: int = 0
    """The error's or the signal's number, or seconds that the clock jumps by."""
    for_good: bool = False
    """Every later operation fails too."""
    happened: str = ""
    """A file that is there once it has come."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Fault:
        given = json.loads(text)
        lists = {name: tuple(given[name]) for name in ("under", "operations")}
        return Fault(**{**given, **lists})


def library() -> Path:
    """The compiled shim, made once for each text of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"myxtts-faults-{os.getuid()}" / f"faults-{digest}.so"
    if not built.is_file():
        built.parent.mkdir(mode=0o700, exist_ok=True)
        part = built.with_suffix(f".{os.getpid()}")
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(part), str(SOURCE), "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        part.replace(built)
    return built


def arm(fault: Fault) -> None:
    """From now on, in this process."""
    chosen = sum(1 << OPERATIONS.index(name) for name in fault.operations)
    action = ACTIONS.index(fault.action)
    shim = ctypes.CDLL(None)
    shim.faults_arm.argtypes = [
        *(ctypes.c_char_p, ctypes.c_uint, ctypes.c_long, ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_char_p)
    ]
    under, happened = ":".join(fault.under).encode(), fault.happened.encode()
    shim.faults_arm(under, chosen, fault.at, action, fault.value, int(fault.for_good), happened)


def counts() -> dict[str, int]:
    """Operations since `arm`, by name."""
    shim = ctypes.CDLL(None)
    shim.faults_count.restype = ctypes.c_long
    return {name: shim.faults_count(number) for number, name in enumerate(OPERATIONS)}


def record(under: Sequence[Path], log: Path) -> None:
    """Write every change of files under these folders to `log`, which lies elsewhere."""
    assert ctypes.CDLL(None).faults_record(":".join(map(str, under)).encode(), str(log).encode()) >= 0


def mark(name: str) -> None:
    """A line in the record: what was asked for until now has returned."""
    ctypes.CDLL(None).faults_mark(name.encode())
