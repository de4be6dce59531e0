"""Writes all versions of one kind of file while the shim records it."""

from __future__ import annotations

from pathlib import Path

from tests.crash.writers import WRITERS
from tests.shim import Fault, arm, record


def main(name: str, folder: str, log: str, corpora: str) -> None:
    arm(Fault(under=()))
    record([Path(folder)], Path(log))
    WRITERS[name][0](Path(folder), Path(corpora))
