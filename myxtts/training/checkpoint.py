"""Checkpoints that are whole or not there: written aside, synced, renamed, and verified before they are used.

A checkpoint is a folder `step-00000500` of weights (`myxtts.models.weights`: arrays, checksum, manifest) whose metadata
are the step and the run's state as plain JSON. The folder's name appears only after its files are on the disk, so a
kill leaves the one before it in place.
"""

from __future__ import annotations

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

from myxtts.config import earlier
from myxtts.errors import CheckpointError, DamagedError
from myxtts.files import make_folder, replacing, sync
from myxtts.models.weights import MANIFEST_FILE, read_arrays, read_manifest, save_arrays

logger = logging.getLogger(__name__)

BEST = "best.json"
EARLIER = "earlier-"
"""How the folders begin into which `--fresh` moves what was there."""
_STEP_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on: arrays by name, and plain values."""

    step: int
    arrays: Mapping[str, np.ndarray]
    state: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int = 3) -> Path:
    """Write one checkpoint atomically, then drop all but the newest `keep`, the best and this one.

    A step that is on the disk and whole is not written again: until the new one were there, there would be neither.
    """
    target = folder / f"step-{checkpoint.step:08d}"
    if target.exists():
        if _is_whole(target):
            return target
        _set_aside(target)
    temporary = folder / f".writing-{checkpoint.step:08d}-{os.getpid()}"
    try:
        make_folder(folder)
        for abandoned in folder.glob(".writing-*"):  # by a process that was killed
            shutil.rmtree(abandoned, ignore_errors=True)
        metadata = {"step": checkpoint.step, "state": checkpoint.state}
        arrays = save_arrays(temporary, checkpoint.arrays, metadata)
        for path in (arrays, temporary):
            sync(path)
        temporary.rename(target)
        sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint of step {checkpoint.step} cannot be written to {folder}: {error}",
            hint="free disk space, or move the checkpoints to a disk that has some and name it with --checkpoint-dir; "
            "those before it are untouched",
        ) from error
    best = read_best(folder)
    kept = {target.name, *([] if best is None else [f"step-{best['step']:08d}"])}
    for path in list_checkpoints(folder)[:-keep]:
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify it; a damaged one is a `DamagedError` that says what is wrong with it."""
    try:
        arrays = {earlier.checkpoint_name(name): value for name, value in read_arrays(path).items()}
        metadata = read_manifest(path).metadata
        return Checkpoint(step=metadata["step"], arrays=arrays, state=earlier.settings_of(metadata["state"]))
    except (DamagedError, AttributeError, KeyError, TypeError) as error:
        reason = error.problem if isinstance(error, DamagedError) else f"its manifest lacks {error}"
        raise DamagedError(
            f"checkpoint {path} is damaged: {reason}", hint="the one before it is used by itself"
        ) from error


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; none is `None`.

    A damaged one is reported and the one before it used. It is then set aside: the run goes on from a lower step, and
    by its number it would be the newest for good. One that cannot be read just now is an error, and stays where it is.
    """
    damaged: dict[Path, DamagedError] = {}
    for path in reversed(list_checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except DamagedError as error:
            logger.warning("%s; trying the one before it", error.problem)
            damaged[path] = error
            continue
        for other in damaged:
            _set_aside(other)
        return checkpoint
    if damaged:
        newest = next(iter(damaged.values()))
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged ({len(damaged)} tried); the newest: {newest.problem}",
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
    """Path of the newest finished checkpoint in a checkpoint folder or a run folder, or `None`.

    Those that `--fresh` moved aside are of another run.
    """
    found = [path for path in _all_checkpoints(Path(directory)) if (path / MANIFEST_FILE).is_file()]
    if not found:
        return None
    return str(max(found, key=lambda path: ((path / MANIFEST_FILE).stat().st_mtime_ns, path.name)))


def _all_checkpoints(directory: Path) -> Iterator[Path]:
    yield from list_checkpoints(directory)
    if directory.is_dir():
        for inner in directory.iterdir():
            if inner.is_dir() and not inner.name.startswith((".", "step-", EARLIER)):
                yield from _all_checkpoints(inner)


def mark_best(folder: Path, step: int, validation_loss: float) -> bool:
    """Remember this step as the best if its loss is the lowest so far; rotation keeps it."""
    best = read_best(folder)
    if best is not None and best["loss"] <= validation_loss:
        return False
    with replacing(folder / BEST) as part:
        part.write_text(json.dumps({"step": step, "loss": validation_loss}), encoding="utf-8")
    return True


def load_best(folder: Path) -> Checkpoint | None:
    """The checkpoint that `mark_best` remembers; None where there is none, or none that is whole."""
    best = read_best(folder)
    path = None if best is None else folder / f"step-{best['step']:08d}"
    return load_checkpoint(path) if path is not None and path.is_dir() and _is_whole(path) else None


def read_best(folder: Path) -> dict[str, Any] | None:
    try:
        best = json.loads((folder / BEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return best if isinstance(best, dict) and "loss" in best and "step" in best else None


def _is_whole(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except DamagedError:
        return False
    return True


def _set_aside(path: Path) -> None:
    """Keep a damaged checkpoint for who wants to look, under a name that is none of a checkpoint."""
    aside = path.with_name(f"{path.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        path.rename(aside)
    except OSError as error:
        logger.warning("%s cannot be set aside: %s", path, error)
    else:
        logger.warning("%s is now %s", path.name, aside)


def refuse_other_model(checkpoint: Checkpoint, variables: Mapping[str, Any], stage: str) -> None:
    """Names ("model/LAYER/NUMBER") or shapes that differ; a layer that the checkpoint has nothing of is named."""
    layers, known = (
        dict.fromkeys(name.split("/")[1] for name in names if name.startswith("model/"))
        for names in (variables, checkpoint.arrays)
    )
    if lacking := [layer for layer in layers if layer not in known]:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} has no {lacking[0]}: stage {stage} began without them",
            hint=f"learn the stage anew from what this run has: --run-dir NEW --init-from RUN --stage {stage}",
        )
    differing = [
        name
        for name in sorted(set(variables) | set(checkpoint.arrays))
        if name not in variables
        or name not in checkpoint.arrays
        or tuple(variables[name].shape) != checkpoint.arrays[name].shape
    ]
    if differing:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} is of another model: {len(differing)} variables differ, "
            f"first {differing[0]}",
            hint="use the settings that the run was started with, another --run-dir, or --fresh",
        )
