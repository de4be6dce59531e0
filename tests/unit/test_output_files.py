"""Places that cannot be written are named with their reason, whatever was to be written there."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from myxtts.errors import OutputError
from myxtts.files import replacing, write_safetensors, writing
from myxtts.synthesis.references import Speaker, VoiceLatents, save_latents, save_speakers
from myxtts.synthesis.speech import SpokenPiece, write_pcm16
from myxtts.synthesis.timings import write_timings
from tests.processes import run

LATENTS = VoiceLatents(np.zeros((1, 2), np.float32), None)
PIECE = SpokenPiece(np.ones(40_000, np.float32))


@pytest.mark.parametrize(
    "write",
    [
        lambda below: save_latents(below / "mine.safetensors", LATENTS, "digest"),
        lambda below: save_speakers(below, [Speaker("anna", "en", np.zeros(2, np.int16))]),
        lambda below: write_timings(below / "words.json", []),
    ],
    ids=["saved voice", "speakers", "timings"],
)
def test_below_a_file_nothing_can_be_written_and_the_path_is_named(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OutputError, match=r"file.* cannot be written: Not a directory"):
        write(tmp_path / "file" / "below")


def test_a_folder_with_the_name_of_the_file_is_no_traceback_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine.safetensors").mkdir()

    with pytest.raises(OutputError, match=r"mine\.safetensors cannot be written: Is a directory"):
        save_latents(tmp_path / "mine.safetensors", LATENTS, "digest")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors"]


def test_a_folder_that_takes_no_files_is_named_by_the_tensor_library_too() -> None:
    with pytest.raises(OutputError, match=r"/proc/mine\.safetensors cannot be written"):
        save_latents(Path("/proc/mine.safetensors"), LATENTS, "digest")


def test_a_full_disk_ends_a_stream_with_its_reason() -> None:
    with pytest.raises(OutputError, match="No space left"), Path("/dev/full").open("wb", buffering=0) as full:
        write_pcm16([PIECE], full)  # type: ignore[arg-type]


def test_a_reader_that_went_away_is_no_error_of_the_output() -> None:
    with pytest.raises(BrokenPipeError), writing("a pipe"):
        raise BrokenPipeError


def test_a_file_takes_the_place_of_the_old_one_only_once_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "scores.json"
    target.write_text("old", encoding="utf-8")

    def write(content: str, *, fails: bool) -> None:
        with replacing(target) as part:
            part.write_text(content, encoding="utf-8")
            assert target.read_text(encoding="utf-8") == "old"
            if fails:
                raise RuntimeError

    def found() -> list[tuple[str, str]]:
        return [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()]

    with pytest.raises(RuntimeError):
        write("half", fails=True)
    assert found() == [("scores.json", "old")]
    write("new", fails=False)
    assert found() == [("scores.json", "new")]


def test_what_holds_after_a_power_cut_is_the_file_its_name_and_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def watched_rename(self: Path, target: Path) -> Path:
        done.append(f"rename {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_rename)

    with replacing(tmp_path / "scores.json") as part:
        part.write_text("new", encoding="utf-8")

    assert done == [f"sync {part.name}", "rename scores.json", f"sync {tmp_path.name}"]


@pytest.mark.parametrize(("number", "refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_sync_folders_is_used_and_one_that_fails_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, refused: bool
) -> None:
    def fail_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail_for_folders)

    with pytest.raises(OSError, match="Input/output") if refused else nullcontext(), replacing(tmp_path / "x") as part:
        part.write_text("new", encoding="utf-8")


@pytest.mark.parametrize(("umask", "rights"), [(0o022, 0o644), (0o077, 0o600)])
def test_weights_have_the_rights_of_any_new_file(tmp_path: Path, umask: int, rights: int) -> None:
    before = os.umask(umask)
    try:
        write_safetensors(tmp_path / "a.safetensors", {"a": np.zeros(2)})
    finally:
        os.umask(before)

    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == rights


def test_a_kill_in_the_middle_of_weights_leaves_no_temporary_file(tmp_path: Path) -> None:
    """The kernel ends a process that writes beyond its limit; the library's own writer leaves a .tmp file then."""
    done = run("-m", "tests.programs", "cut_weights", str(tmp_path / "model.partial"))

    assert done.returncode == -signal.SIGXFSZ
    assert [path.name for path in tmp_path.iterdir()] == ["model.partial"]


def test_arrays_are_written_as_the_library_writes_them(tmp_path: Path) -> None:
    arrays = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "a": np.arange(3, dtype=np.int8),
        "scalar": np.array(2.5),
        "half \u06f1": np.ones((2, 0), np.float16),
        "c": np.array([True, False]),
    }
    write_safetensors(tmp_path / "own", arrays, {"format": "voice"})

    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    assert (tmp_path / "own").read_bytes() == save(contiguous, {"format": "voice"})
