"""Writers of checkpoints that a test disturbs."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import numpy as np

from myxtts.errors import CheckpointError
from myxtts.training.checkpoint import Checkpoint, load_latest, save_checkpoint

LIMIT_BYTES = 100_000


def on_a_full_disk(folder: Path) -> None:
    """Step 2 does not fit; what is left is printed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
    try:
        save_checkpoint(folder, Checkpoint(step=2, arrays={"big": np.zeros(1_000_000, np.float32)}))
    except CheckpointError as error:
        print(error)
    latest = load_latest(folder)
    assert latest is not None
    print("left:", sorted(path.name for path in folder.iterdir()), latest.step)


def slowly(folder: Path) -> None:
    """Step 2 is large enough to be killed on the way."""
    arrays = {"big": np.zeros(50_000_000, np.float32)}
    print("ready", flush=True)
    save_checkpoint(folder, Checkpoint(step=2, arrays=arrays))


def main(how: str, folder: str) -> None:
    {"on_a_full_disk": on_a_full_disk, "slowly": slowly}[how](Path(folder))
