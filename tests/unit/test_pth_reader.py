"""The `.pth` reader: files are made here byte by byte as PyTorch writes them, without PyTorch."""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from myxtts.errors import CheckpointError
from myxtts.models.coqui.reader import read_pth, state_dict
from tests.pth_writer import Call, Named, tensor, write

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_tensors_come_back_as_they_were(tmp_path: Path, compression: int) -> None:
    content = OrderedDict(weight=tensor(MATRIX, "0"), transposed=tensor(MATRIX, "0", shape=(4, 3), stride=(1, 4)))

    read = read_pth(write(tmp_path / "model.pth", content, {"0": MATRIX}, compression))

    np.testing.assert_array_equal(read["weight"], MATRIX)
    np.testing.assert_array_equal(read["transposed"], MATRIX.T)


@pytest.mark.parametrize(("kind", "dtype"), [("LongStorage", np.int64), ("HalfStorage", np.float16)])
def test_other_element_types_are_read(tmp_path: Path, kind: str, dtype: type) -> None:
    values = np.array([1, 2, 3], dtype)

    read = read_pth(write(tmp_path / "model.pth", {"x": tensor(values, "0", kind)}, {"0": values}))

    np.testing.assert_array_equal(read["x"], values)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    values = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)

    read = read_pth(write(tmp_path / "model.pth", {"x": tensor(values, "0", "BFloat16Storage")}, {"0": values}))

    np.testing.assert_array_equal(read["x"], [1.5, -2.0])


def test_a_trainers_configuration_is_read_past(tmp_path: Path) -> None:
    config = Call(Named("TTS.tts.configs.xtts_config", "XttsConfig"), 1, "x")
    content = {"model": {"w": tensor(MATRIX, "0")}, "config": config, "step": 7}
    path = write(tmp_path / "model.pth", content, {"0": MATRIX})

    assert list(state_dict(read_pth(path), path)) == ["w"]


def test_a_pickle_that_wants_to_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    bomb = Call(Named(os.system.__module__, "system"), f"touch {trace}")
    path = write(tmp_path / "model.pth", {"w": bomb}, {})

    with pytest.raises(CheckpointError, match="system"):
        read_pth(path)
    assert not trace.exists()


@pytest.mark.parametrize("module", ["builtins", "torch.hub", "numpy"])
def test_no_other_global_is_known(tmp_path: Path, module: str) -> None:
    path = write(tmp_path / "model.pth", Call(Named(module, "eval"), "1"), {})

    with pytest.raises(CheckpointError, match=f"{module}.eval"):
        read_pth(path)


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pth", {"x": tensor(MATRIX, "0", shape=(9, 9), stride=(9, 1))}, {"0": MATRIX})

    with pytest.raises(CheckpointError, match="beyond its storage"):
        read_pth(path)


def test_a_storage_cut_short_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pth", {"x": tensor(MATRIX, "0")}, {"0": MATRIX.ravel()[:5]})

    with pytest.raises(CheckpointError, match="20 bytes, must have 48"):
        read_pth(path)


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    path.write_bytes(b"\x80\x02old format")

    with pytest.raises(CheckpointError, match="not a PyTorch zip"):
        read_pth(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.pth does not exist"):
        read_pth(tmp_path / "none.pth")
