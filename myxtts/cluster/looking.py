"""What a node sees: its version of this package, the corpus, and the folder of the run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from myxtts import __version__
from myxtts.errors import DataError, MissingDependencyError, TrainingError


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node's answer."""

    version: str
    corpus: str | None
    """A digest; None where the folder is not there."""
    run_holder: str | None
    """What the run folder's lock says, which is the driver's process where the folder is the driver's."""


def look_at(train_data: str | None, run_dir: str) -> NodeView:
    try:
        holder = (Path(run_dir) / ".lock").read_text().strip()
    except OSError:
        holder = None
    corpus = corpus_digest(Path(train_data)) if train_data is not None else None
    return NodeView(version=__version__, corpus=corpus, run_holder=holder)


def corpus_digest(folder: Path) -> str | None:
    """Of every file's name and size, and of the transcripts themselves; None where there is no such folder."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(place) / name
            digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
            if path.suffix.lower() in (".csv", ".tsv", ".txt", ".jsonl"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def refuse_other_views(views: Sequence[tuple[str, NodeView]], ours: NodeView, *, running: bool) -> None:
    """All nodes (by address) must see what the driver sees."""
    for address, view in views:
        if view.version != ours.version:
            raise MissingDependencyError(
                f"node {address} has MyXTTS {view.version}, this machine {ours.version}",
                hint="install the same version on all nodes, with the same constraints.txt",
            )
        if view.corpus != ours.corpus:
            what = "does not see --train-data" if view.corpus is None else "sees another corpus under --train-data"
            raise DataError(
                f"node {address} {what}",
                hint="put the corpus on storage that all nodes share, or copy the same files to the same path of each",
            )
        if running and view.run_holder != ours.run_holder:
            raise TrainingError(
                f"node {address} does not see the run's folder as this machine does",
                hint="put --run-dir on storage that all nodes share, under the same path",
            )
