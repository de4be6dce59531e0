"""The folder of a run: when another run may use it, and who is in it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from myxtts.config.config import XTTSConfig
from myxtts.config.data import DataConfig
from myxtts.config.loading import as_plain_values
from myxtts.data.prepare import prepare
from myxtts.errors import CheckpointError, OutputError, TrainingError
from myxtts.training.run_folder import (
    RunFolder,
    corpus_marks,
    refuse_other_configuration,
    refuse_other_corpus,
    with_absolute_paths,
    without_same_validation_folder,
)
from myxtts.training.stages import CODEC, GPT
from tests.corpus_maker import make_ljspeech, settings
from tests.limits import no_file_larger_than


def test_a_run_knows_its_corpora_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    data = with_absolute_paths(DataConfig(train_data="mine", val_data="/elsewhere/held"))

    monkeypatch.chdir("/")
    assert (data.train_data, data.val_data) == (str(tmp_path / "mine"), "/elsewhere/held")
    assert with_absolute_paths(DataConfig(train_data="/mine")).val_data is None


def test_the_training_folder_as_its_own_validation_folder_holds_out_clips_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    monkeypatch.chdir(tmp_path)

    assert without_same_validation_folder(DataConfig(train_data="mine", val_data="held")).val_data == "held"
    assert not caplog.text
    assert (
        without_same_validation_folder(DataConfig(train_data="mine", val_data=str(tmp_path / "link"))).val_data is None
    )
    assert "one clip of every 20" in caplog.text


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


@pytest.mark.parametrize("place", ["disk", "first/checkpoints"])
def test_two_runs_do_not_write_one_checkpoint_folder(tmp_path: Path, place: str) -> None:
    first = RunFolder(tmp_path / "first", tmp_path / "disk" if place == "disk" else None)

    with (
        first.lock(),
        pytest.raises(TrainingError, match=rf"process {os.getpid()}\) is writing .*{place}\n.*--checkpoint-dir"),
        RunFolder(tmp_path / "second", tmp_path / place).lock(),
    ):
        pass
    with RunFolder(tmp_path / "second", tmp_path / place).lock():
        pass  # The first one has ended.


def test_a_run_may_keep_its_checkpoints_in_the_run_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("run")

    for checkpoints in (tmp_path / "run", tmp_path / "link"):
        with RunFolder(tmp_path / "run", checkpoints).lock():
            assert (tmp_path / "run" / ".lock").is_file()


@pytest.mark.parametrize("content", ["", "- a list", "a: [", "\0", "a: &a [*a]", "a: 0x_"])
def test_settings_that_a_full_disk_left_empty_are_named_with_the_way_out(tmp_path: Path, content: str) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text(content)

    with pytest.raises(CheckpointError, match=r"config\.yaml is empty or damaged") as caught:
        folder.saved_settings()

    assert "remove it" in caught.value.hint


def test_a_run_goes_on_only_with_the_vocabulary_that_its_text_weights_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["clip_0|abc é", "clip_1|abd"]
    before = prepare(make_ljspeech(tmp_path / "a", 2, lines=lines), settings(tmp_path / "cache"), workers=1)
    moved = prepare(make_ljspeech(tmp_path / "b", 2, lines=lines), settings(tmp_path / "cache"), workers=1)
    # As many letters, in another order of numbers.
    other = prepare(
        make_ljspeech(tmp_path / "c", 2, lines=["clip_0|abc è", "clip_1|abd"]),
        settings(tmp_path / "cache"),
        workers=1,
    )
    assert other.tokenizer.size == before.tokenizer.size
    marks = corpus_marks(before)

    with pytest.raises(CheckpointError, match="another vocabulary than this corpus gives") as caught:
        refuse_other_corpus(marks, other, GPT, "a", tmp_path)
    assert "--init-from" in caught.value.hint
    refuse_other_corpus(marks, before, GPT, "a", tmp_path)
    assert not caplog.text, "the same corpus is nothing to speak of"

    refuse_other_corpus(marks, moved, GPT, "b", tmp_path)
    assert "The corpus is not as it was" in caplog.text
    assert "other clips are held out" in caplog.text
    refuse_other_corpus(marks, other, CODEC, "a", tmp_path)
    refuse_other_corpus({"step": 3}, other, GPT, "a", tmp_path)  # as an earlier version wrote it


def test_a_run_does_not_go_on_with_another_corpus_where_clips_may_come_and_go(tmp_path: Path) -> None:
    lines = ["clip_0|abc", "clip_1|abd"]
    before = prepare(make_ljspeech(tmp_path / "a", 2, lines=lines), settings(tmp_path / "cache"), workers=1)
    moved = prepare(make_ljspeech(tmp_path / "b", 2, lines=lines), settings(tmp_path / "cache"), workers=1)
    other = prepare(make_ljspeech(tmp_path / "c", 2, lines=lines[:1]), settings(tmp_path / "cache"), workers=1)
    saved = {**corpus_marks(before), "config": {"data": {"train_data": str(tmp_path / "a")}}}

    refuse_other_corpus(saved, moved, CODEC, "b", tmp_path / "run")
    refuse_other_corpus(saved, other, CODEC, "elsewhere/a", tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"run was trained on .*a, and --train-data is c") as caught:
        refuse_other_corpus(saved, other, CODEC, "c", tmp_path / "run")
    assert "--init-from" in caught.value.hint
    assert "--fresh" in caught.value.hint


def test_a_setting_that_was_left_out_is_called_the_default(tmp_path: Path) -> None:
    saved = as_plain_values(XTTSConfig())

    with pytest.raises(CheckpointError, match=r"batch_size: the default in the run, 4 now") as raised:
        refuse_other_configuration(saved, XTTSConfig(batch_size=4), tmp_path)

    assert "None" not in raised.value.problem


def test_a_fresh_start_moves_checkpoints_from_another_file_system_too(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        checkpoints = Path(elsewhere) / "kept"
        if checkpoints.parent.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm and the temporary folder are one file system here")
        folder = RunFolder(tmp_path, checkpoints)
        folder.config.write_text("training: {}\n")
        (folder.checkpoints("codec") / "step-00000001").mkdir(parents=True)

        aside = folder.start_afresh()

        assert aside is not None
        assert sorted(path.name for path in aside.iterdir()) == ["config.yaml", "kept"]
        assert (aside / "kept" / "codec" / "step-00000001").is_dir()
        assert not folder.has_saved()


def test_a_fresh_start_that_finds_no_room_says_so_and_leaves_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text("training: {}\n")
    (folder.checkpoints("codec") / "step-00000001").mkdir(parents=True)

    def full_disk(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "move", full_disk)

    with pytest.raises(TrainingError, match=r"cannot be moved.*No space left") as error:
        folder.start_afresh()

    assert "--run-dir" in error.value.hint
    assert folder.has_saved()


def test_a_fresh_start_leaves_what_is_not_of_the_run_in_its_checkpoint_folder(tmp_path: Path) -> None:
    own = tmp_path / "disk"
    (own / "my_corpus").mkdir(parents=True)
    folder = RunFolder(tmp_path / "run", own)
    (folder.checkpoints("gpt") / "step-00000001").mkdir(parents=True)

    aside = folder.start_afresh()

    assert aside is not None
    assert [path.name for path in own.iterdir()] == ["my_corpus"]
    assert (aside / "disk" / "gpt" / "step-00000001").is_dir()
    assert folder.start_afresh() is None, "there is nothing more to move"


def test_a_file_system_without_locks_is_said_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with RunFolder(tmp_path).lock():
        assert "cannot be locked (No locks available)" in caplog.text


def test_a_full_disk_at_the_lock_is_named_with_the_way_out(tmp_path: Path) -> None:
    with (
        no_file_larger_than(0),
        pytest.raises(OutputError, match=rf"{tmp_path} cannot be written: File too large\n.*--run-dir"),
        RunFolder(tmp_path).lock(),
    ):
        pass
    with RunFolder(tmp_path).lock():
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
