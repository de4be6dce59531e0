"""The folder of a run: when another run may use it, and who is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from myxtts.errors import TrainingError
from myxtts.training.run_folder import RunFolder


def test_a_run_that_saved_nothing_binds_no_later_one(tmp_path: Path) -> None:
    """Out of memory at its first step, say: the way out is other settings, and they must be taken."""
    folder = RunFolder(tmp_path)
    folder.config.write_text("training: {}\n")
    folder.checkpoints("codec").mkdir(parents=True)
    assert not folder.has_saved()

    (folder.checkpoints("codec") / "step-00000100").mkdir()

    assert folder.has_saved()


def test_a_voice_is_something_saved(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text("training: {}\n")

    folder.voice.mkdir()

    assert folder.has_saved()


def test_a_folder_in_use_names_its_process_and_how_to_watch_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    with (
        folder.lock(),
        pytest.raises(TrainingError, match=rf"process {os.getpid()}\) is writing .*\n.*myxtts monitor {tmp_path}"),
        RunFolder(tmp_path).lock(),
    ):
        pass
