"""Checkpoints that are whole or not there: written aside, synced, renamed, and verified before they are used.

A checkpoint is a folder `step-00000500` with `arrays.safetensors` (every variable by name), and `manifest.json` (names,
shapes, checksum of the arrays, and the run's state as plain JSON). The folder's name appears only after both files
are on the disk, so a kill leaves the one before it in place. Knows nothing of TensorFlow: arrays in, arrays out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from myxtts.errors import CheckpointError

logger = logging.getLogger(__name__)

ARRAYS = "arrays.safetensors"
MANIFEST = "manifest.json"
BEST = "best.json"
FORMAT_VERSION = 1
_STEP_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on: arrays by name, and plain values."""

    step: int
    arrays: Mapping[str, np.ndarray]
    state: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int = 3) -> Path:
    """Write one checkpoint atomically, then drop all but the newest `keep` and the best."""
    target = folder / f"step-{checkpoint.step:08d}"
    temporary = folder / f".writing-{checkpoint.step:08d}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        temporary.mkdir()
        arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
        save_file(arrays, temporary / ARRAYS)
        manifest = {
            "format": FORMAT_VERSION,
            "step": checkpoint.step,
            "arrays": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
            "sha256": _sha256(temporary / ARRAYS),
            "state": checkpoint.state,
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        for path in (temporary / ARRAYS, temporary / MANIFEST, temporary):
            _sync(path)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        _sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint of step {checkpoint.step} cannot be written to {folder}: {error}",
            hint="free disk space or choose another --checkpoint-dir; the checkpoints before it are untouched",
        ) from error
    _rotate(folder, keep)
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify it; a damaged one is a `CheckpointError` that says what is wrong with it."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        expected = manifest["sha256"]
        actual = _sha256(path / ARRAYS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if actual != expected:
        raise _damaged(path, f"checksum of {ARRAYS} is {actual[:12]}, manifest says {str(expected)[:12]}")
    arrays = load_file(path / ARRAYS)
    listed = manifest["arrays"]
    if set(arrays) != set(listed) or any(list(arrays[name].shape) != listed[name]["shape"] for name in listed):
        raise _damaged(path, "arrays and manifest do not list the same")
    return Checkpoint(step=manifest["step"], arrays=arrays, state=manifest["state"])


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole. A damaged one is reported and the one before it used; none is `None`."""
    damaged: list[CheckpointError] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError as error:
            logger.warning("%s; trying the one before it", error.problem)
            damaged.append(error)
            continue
        return checkpoint
    if damaged:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged ({len(damaged)} tried); the newest: {damaged[0].problem}",
            hint="start over with --fresh, or restore the folder from a copy",
        )
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _STEP_NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def find_latest_checkpoint(directory: str | Path) -> str | None:
    """Path of the newest finished checkpoint in a checkpoint folder or a run folder, or `None`."""
    found = list(_all_checkpoints(Path(directory)))
    if not found:
        return None
    return str(max(found, key=lambda path: ((path / MANIFEST).stat().st_mtime_ns, path.name)))


def _all_checkpoints(directory: Path) -> Iterator[Path]:
    yield from list_checkpoints(directory)
    if directory.is_dir():
        for inner in directory.iterdir():
            if inner.is_dir() and not inner.name.startswith((".", "step-")):
                yield from _all_checkpoints(inner)


def mark_best(folder: Path, step: int, validation_loss: float) -> bool:
    """Remember this step as the best if its loss is the lowest so far; rotation keeps it."""
    best = read_best(folder)
    if best is not None and best["loss"] <= validation_loss:
        return False
    temporary = folder / f".{BEST}-{os.getpid()}"
    temporary.write_text(json.dumps({"step": step, "loss": validation_loss}), encoding="utf-8")
    temporary.replace(folder / BEST)
    return True


def read_best(folder: Path) -> dict[str, Any] | None:
    try:
        best = json.loads((folder / BEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return best if isinstance(best, dict) and "loss" in best and "step" in best else None


def _rotate(folder: Path, keep: int) -> None:
    best = read_best(folder)
    for path in list_checkpoints(folder)[:-keep]:
        if best is None or path.name != f"step-{best['step']:08d}":
            shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """What a killed process left half-written."""
    for path in folder.glob(".writing-*"):
        shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path} is damaged: {reason}", hint="the one before it is used by itself")
