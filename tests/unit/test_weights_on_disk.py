"""Weights in a folder: a kill at any moment of writing leaves what was there before or what is new, never neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from myxtts.models import weights
from myxtts.models.weights import MANIFEST_FILE, read_arrays, read_manifest, save_arrays


class KilledError(BaseException):
    """Stands for the end of the process: nothing after it runs."""


def save(folder: Path, number: int) -> None:
    save_arrays(folder, {"gpt/weight": np.full(1000, number, np.float32)}, {"number": number})


def number_of(folder: Path) -> int:
    """The number that was saved, in weights and manifest alike."""
    number = read_manifest(folder).metadata["number"]
    np.testing.assert_array_equal(read_arrays(folder)["gpt/weight"], np.full(1000, number, np.float32))
    return int(number)


def kill_at(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends in the middle of the weights, or just before the first or the second file takes its name."""
    if moment == "writing":

        def half(path: Path, arrays: object) -> None:
            path.write_bytes(b"half of the weights")
            raise KilledError

        monkeypatch.setattr(weights, "write_safetensors", half)
        return
    renames, rename = [], Path.replace

    def replace(self: Path, target: Path) -> Path:
        renames.append(self)
        if len(renames) == int(moment):
            raise KilledError
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)


def save_killed(folder: Path, number: int, moment: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        kill_at(moment, monkeypatch)
        with pytest.raises(KilledError):
            save(folder, number)


@pytest.mark.parametrize(("moment", "left"), [("writing", 1), ("1", 1), ("2", 2)])
def test_a_kill_while_writing_leaves_the_old_weights_or_the_new(tmp_path: Path, moment: str, left: int) -> None:
    save(tmp_path, 1)

    save_killed(tmp_path, 2, moment)

    assert number_of(tmp_path) == left
    save(tmp_path, 3)
    assert number_of(tmp_path) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST_FILE, "model.safetensors"]


def test_weights_that_a_kill_left_without_their_name_outlive_the_next_kill(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save_killed(tmp_path, 2, "2")

    save_killed(tmp_path, 3, "writing")

    assert number_of(tmp_path) == 2


def test_a_first_write_that_was_killed_is_written_again(tmp_path: Path) -> None:
    save_killed(tmp_path, 1, "1")

    save(tmp_path, 2)

    assert number_of(tmp_path) == 2
