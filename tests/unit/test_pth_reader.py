"""The `.pth` reader: files are made here byte by byte as PyTorch writes them, without PyTorch."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from myxtts.errors import CheckpointError
from myxtts.models.coqui.reader import read_pth, state_dict


class Named:
    """Pickles as the global `module.name`, whether or not that can be imported here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Pickles as a call of a global with arguments."""

    def __init__(self, function: Named, *args: Any) -> None:
        self.function, self.args = function, args


class Storage:
    def __init__(self, kind: str, key: str, values: np.ndarray) -> None:
        self.kind, self.key, self.values = kind, key, values


class Writer(pickle._Pickler):  # the Python pickler: the C one cannot write a global that is not importable
    dispatch = dict(pickle._Pickler.dispatch)

    def persistent_id(self, item: Any) -> Any:
        if isinstance(item, Storage):
            return ("storage", Named("torch", item.kind), item.key, "cpu", item.values.size)
        return None

    def save_named(self, item: Named) -> None:
        self.write(pickle.GLOBAL + f"{item.module}\n{item.name}\n".encode())

    def save_call(self, item: Call) -> None:
        self.save(item.function)
        self.save(item.args)
        self.write(pickle.REDUCE)

    dispatch[Named] = save_named
    dispatch[Call] = save_call


def tensor(values: np.ndarray, key: str, kind: str = "FloatStorage", shape: Any = None, stride: Any = None) -> Call:
    shape = values.shape if shape is None else shape
    stride = tuple(step // values.itemsize for step in values.strides) if stride is None else stride
    storage = Storage(kind, key, values)
    rebuild = Named("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, 0, tuple(shape), tuple(stride), False, Call(Named("collections", "OrderedDict")))


def write(path: Path, content: Any, storages: dict[str, np.ndarray], compression: int = zipfile.ZIP_STORED) -> Path:
    import io

    program = io.BytesIO()
    Writer(program, protocol=2).dump(content)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, values in storages.items():
            archive.writestr(f"archive/data/{key}", values.tobytes())
    return path


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
