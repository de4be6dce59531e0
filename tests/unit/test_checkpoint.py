"""Checkpoints are whole or not there, verified, rotated; the best one stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from myxtts.errors import CheckpointError
from myxtts.models.weights import MANIFEST_FILE as MANIFEST
from myxtts.models.weights import WEIGHTS_FILE as ARRAYS
from myxtts.training.checkpoint import (
    Checkpoint,
    find_latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    mark_best,
    refuse_other_model,
    save_checkpoint,
)
from myxtts.training.run_folder import RunFolder
from tests.processes import ROOT, run_program


def checkpoint(step: int) -> Checkpoint:
    arrays = {"gpt/kernel": np.full((3, 4), step, np.float32), "optimizer/step": np.int64([step])}
    return Checkpoint(step=step, arrays=arrays, state={"epoch": 1, "data": {"position": step}})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (
            {"model/gpt/0000": (3, 4), "model/discriminators/0000": (2,)},
            "step 5 has no discriminators: stage decoder began without",
        ),
        ({"model/gpt/0000": (4, 4)}, "of another model: 1 variables differ, first model/gpt/0000"),
        (
            {"model/gpt/0000": (3, 4), "model/gpt/0001": (4,)},
            "of another model: 1 variables differ, first model/gpt/0001",
        ),
    ],
)
def test_weights_that_do_not_fit_the_model_are_named(now: dict[str, tuple[int, ...]], words: str) -> None:
    kept = Checkpoint(step=5, arrays={"model/gpt/0000": np.zeros((3, 4), np.float32)})

    refuse_other_model(kept, {"model/gpt/0000": np.zeros((3, 4))}, "decoder")
    with pytest.raises(CheckpointError, match=words):
        refuse_other_model(kept, {name: np.zeros(shape) for name, shape in now.items()}, "decoder")


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, checkpoint(7))

    loaded = load_checkpoint(path)

    assert (loaded.step, loaded.state) == (7, {"epoch": 1, "data": {"position": 7}})
    np.testing.assert_array_equal(loaded.arrays["gpt/kernel"], np.full((3, 4), 7, np.float32))


def test_only_the_newest_are_kept_and_the_best(tmp_path: Path) -> None:
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0), (4, 2.5), (5, 1.5)):
        save_checkpoint(tmp_path, checkpoint(step), keep=2)
        mark_best(tmp_path, step, loss)

    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000002", "step-00000004", "step-00000005"]


def truncate(path: Path) -> None:
    os.truncate(path / ARRAYS, (path / ARRAYS).stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray((path / ARRAYS).read_bytes())
    content[-3] ^= 1
    (path / ARRAYS).write_bytes(content)


def lose_the_arrays(path: Path) -> None:
    (path / ARRAYS).unlink()


def lose_the_manifest(path: Path) -> None:
    (path / MANIFEST).unlink()


def garble_the_manifest(path: Path) -> None:
    (path / MANIFEST).write_text("{", encoding="utf-8")


def change_the_step(path: Path) -> None:
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    manifest["metadata"]["step"] = 3
    (path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def change_the_data_position(path: Path) -> None:
    text = (path / MANIFEST).read_text(encoding="utf-8")
    (path / MANIFEST).write_text(text.replace('"position": 2', '"position": 3'), encoding="utf-8")


def lose_the_state_and_the_checksum(path: Path) -> None:
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    manifest["metadata"]["state"] = []
    del manifest["manifest_sha256"]
    (path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


DAMAGES = [
    *(truncate, flip_a_bit, lose_the_arrays),
    *(lose_the_manifest, garble_the_manifest, change_the_step, change_the_data_position),
    lose_the_state_and_the_checksum,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    newest = save_checkpoint(tmp_path, checkpoint(2))
    damage(newest)  # type: ignore[operator]

    loaded = load_latest(tmp_path)

    assert loaded is not None
    assert loaded.step == 1
    assert "step-00000002 is damaged" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002.damaged"]


def fail_to_read(path: Path, name: str) -> None:
    """The disk answers with EIO, as it does for the memory of a process at address 0."""
    (path / name).rename(path / "kept")
    (path / name).symlink_to("/proc/self/mem")


@pytest.mark.parametrize("name", [MANIFEST, ARRAYS])
def test_a_checkpoint_that_cannot_be_read_just_now_is_an_error_and_stays_the_newest(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    newest = save_checkpoint(tmp_path, checkpoint(2))
    fail_to_read(newest, name)

    for use in (load_latest, lambda folder: save_checkpoint(folder, checkpoint(2))):
        with pytest.raises(CheckpointError, match=rf"{name} cannot be read: Input/output error"):
            use(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    (newest / "kept").replace(newest / name)
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert loaded.step == 2


def test_a_flipped_bit_anywhere_in_the_manifest_is_found_or_changes_nothing(tmp_path: Path) -> None:
    manifest = save_checkpoint(tmp_path, checkpoint(2)) / MANIFEST
    whole, wanted = manifest.read_bytes(), load_checkpoint(manifest.parent)

    for place in range(len(whole)):
        manifest.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            found = load_checkpoint(manifest.parent)
        except CheckpointError:
            continue
        assert (found.step, found.state) == (wanted.step, wanted.state), f"byte {place}"


def test_a_manifest_without_a_checksum_is_one_of_before_and_loads(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, checkpoint(2))
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    del manifest["manifest_sha256"]
    (path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    assert load_checkpoint(path).step == 2


def test_a_checkpoint_of_a_later_version_is_an_error_and_stays_where_it_is(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    newest = save_checkpoint(tmp_path, checkpoint(2))
    (newest / MANIFEST).write_text(json.dumps({"version": 99, "metadata": {}}))

    with pytest.raises(CheckpointError, match="not a manifest of version 1"):
        load_latest(tmp_path)

    assert list_checkpoints(tmp_path)[-1] == newest


def test_a_run_that_goes_on_before_a_damaged_checkpoint_keeps_what_it_writes(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(4500))
    flip_a_bit(save_checkpoint(tmp_path, checkpoint(5000)))
    load_latest(tmp_path)

    written = save_checkpoint(tmp_path, checkpoint(4600), keep=1)

    assert list_checkpoints(tmp_path) == [written]
    assert load_checkpoint(written).step == 4600


def test_what_was_just_written_is_kept_though_others_have_higher_numbers(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(9))

    assert save_checkpoint(tmp_path, checkpoint(5), keep=1).is_dir()


def test_a_step_that_is_on_the_disk_is_left_as_it_is_unless_it_is_damaged(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, checkpoint(1))
    files = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in sorted(path.iterdir())]

    assert save_checkpoint(tmp_path, checkpoint(1)) == path
    assert [(file.stat().st_ino, file.stat().st_mtime_ns) for file in sorted(path.iterdir())] == files

    truncate(path)
    assert load_checkpoint(save_checkpoint(tmp_path, checkpoint(1))).step == 1


def test_when_all_are_damaged_it_says_so_instead_of_starting_over(tmp_path: Path) -> None:
    flip_a_bit(save_checkpoint(tmp_path, checkpoint(1)))

    for _ in range(2):
        with pytest.raises(CheckpointError, match="every checkpoint") as error:
            load_latest(tmp_path)

    assert "--fresh" in error.value.hint


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_latest(tmp_path / "nothing") is None
    assert find_latest_checkpoint(tmp_path) is None


def test_the_latest_is_found_in_a_run_folder_too(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoints" / "codec", checkpoint(9))
    latest = save_checkpoint(tmp_path / "checkpoints" / "gpt", checkpoint(2))

    assert find_latest_checkpoint(tmp_path) == str(latest)


def test_the_latest_is_none_that_lacks_its_manifest_or_that_a_fresh_start_moved_aside(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    save_checkpoint(run.checkpoints("codec"), checkpoint(3))
    run.start_afresh()
    lose_the_manifest(save_checkpoint(run.checkpoints("gpt"), checkpoint(5)))
    assert find_latest_checkpoint(tmp_path) is None

    whole = save_checkpoint(run.checkpoints("gpt"), checkpoint(4))

    assert find_latest_checkpoint(tmp_path) == str(whole)


def test_a_full_disk_is_named_and_the_checkpoint_before_stays(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(1))

    output = run_program("checkpoints", "on_a_full_disk", str(tmp_path), fresh=True)

    assert "checkpoint of step 2 cannot be written" in output
    assert "left: ['step-00000001'] 1" in output


def test_a_kill_while_writing_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(1))

    command = [sys.executable, "-m", "tests.programs", "checkpoints", "slowly", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        while not list(tmp_path.glob(".writing-*")):
            time.sleep(0.001)
        writer.kill()

    latest = load_latest(tmp_path)
    assert latest is not None
    assert latest.step == 1
