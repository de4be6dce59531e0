"""Records a writer, then reads every state that a power cut could leave at any of its operations."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import Disk, digest_of, read_record, read_tree, write_tree
from tests.crash.writers import WRITERS
from tests.processes import run
from tests.shim import library


@dataclass
class Checked:
    """Figures of one writer."""

    operations: int = 0
    syncs: int = 0
    states: int = 0
    """Trees that differ, or in which another version is expected."""
    bad: list[str] = field(default_factory=list)


def check_writer(name: str, folder: Path) -> Checked:
    """The version that is read is the one before the operation or the one that it belongs to; once a version was said
    to be written, it is that one or a later."""
    written, log, corpora = folder / "written", folder / "record", folder / "corpora"
    written.mkdir()
    corpora.mkdir()
    done = run(
        *("-m", "tests.programs", "crash_writer", name, str(written), str(log), str(corpora)),
        LD_PRELOAD=str(library()),
    )
    assert done.returncode == 0, done.stderr
    operations, disk, checked = read_record(log), Disk(written), Checked()
    drawn, seen = random.Random(name), set()
    least = 0
    for number, operation in enumerate(operations):
        if operation.kind == "mark":
            least = int(operation.other)
        else:
            disk.do(operation)
            checked.operations += 1
            checked.syncs += operation.kind == "sync"
        for tree in disk.possible(drawn):
            if (key := (digest_of(tree), least)) in seen:
                continue
            seen.add(key)
            checked.states += 1
            problem = _problem(WRITERS[name][1], tree, least, folder, corpora)
            if problem:
                checked.bad.append(f"after operation {number}, {operation.kind} {operation.path}: {problem}")
    assert disk.tree() == read_tree(written), "the record is not all that was written"
    return checked


def _problem(
    read: Callable[[Path, Path], int], tree: dict[str, bytes | None], least: int, folder: Path, corpora: Path
) -> str:
    state = folder / "state"
    write_tree(state, tree)
    try:
        version = read(state, corpora)
    except Exception as error:  # noqa: BLE001 - whatever it is, the state is a bad one
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(state, ignore_errors=True)
    return "" if least <= version <= least + 1 else f"version {version}, and {least} was written"
