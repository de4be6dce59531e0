"""The `.pth` reader: files are made here byte by byte as PyTorch writes them, without PyTorch."""

from __future__ import annotations

import io
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
from tests.limits import no_more_memory_than
from tests.pth_writer import Call, Named, Storage, Writer, tensor, write, write_program

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    content = OrderedDict(weight=tensor(MATRIX, "0"), transposed=tensor(MATRIX, "0", shape=(4, 3), stride=(1, 4)))

    read = read_pth(write(tmp_path / "model.pth", content, {"0": MATRIX}))

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


REBUILD = Named("torch._utils", "_rebuild_tensor_v2")


def rebuilt(storage: Any, offset: Any = 0, size: Any = (2,), stride: Any = (1,)) -> Call:
    return Call(REBUILD, storage, offset, size, stride, False, Call(Named("collections", "OrderedDict")))


STORAGE = Storage("FloatStorage", "0", MATRIX)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        # A view of 4 numbers, 8 bytes apart: taken for a storage of 4, it lets a tensor reach far outside.
        (rebuilt(rebuilt(STORAGE, size=(4,), stride=(3,)), size=(4,), stride=(1,)), "of a ndarray, not of a storage"),
        (rebuilt(rebuilt(STORAGE, size=(3, 4), stride=(4, 1)), size=(3,), stride=(1,)), "of a ndarray"),
        (rebuilt("a text"), "of a str"),
        (rebuilt([1.0, 2.0]), "of a list"),
        (rebuilt(STORAGE, size=(2.0,)), "is no length"),
        (rebuilt(STORAGE, size=(-1,), stride=(-1,)), "is no length"),
        (rebuilt(STORAGE, offset=-1), "is no length"),
        (rebuilt(STORAGE, size=(2, 2), stride=(1,)), "do not belong together"),
        (rebuilt(STORAGE, size=[2], stride=[1]), "do not belong together"),
        (rebuilt(STORAGE, size=(10**12,), stride=(0,)), "beyond its storage"),
        (rebuilt(STORAGE, size=(2**62, 8), stride=(0, 0)), "beyond its storage"),
        (Call(Named("torch._utils", "_rebuild_parameter"), "a text"), "parameter of a str"),
    ],
)
def test_a_tensor_is_made_only_of_a_storage_and_within_it(tmp_path: Path, content: Call, words: str) -> None:
    path = write(tmp_path / "model.pth", {"x": content}, {"0": MATRIX})

    with pytest.raises(CheckpointError, match=words):
        read_pth(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_compressed_storages_are_refused(tmp_path: Path, compression: int) -> None:
    zeros = np.zeros(10**6, np.float32)
    path = write(tmp_path / "model.pth", {"x": tensor(zeros, "0")}, {"0": zeros}, compression)

    with pytest.raises(CheckpointError, match="holds compressed files"):
        read_pth(path)


def test_one_storage_has_one_type_and_length(tmp_path: Path) -> None:
    content = {"x": tensor(MATRIX, "0"), "y": tensor(MATRIX[:1], "0", "HalfStorage")}

    with pytest.raises(CheckpointError, match="two types or lengths"):
        read_pth(write(tmp_path / "model.pth", content, {"0": MATRIX}))


def doubled_often(times: int) -> list[Any]:
    nested: list[Any] = ["x"]
    for _ in range(times):
        nested = [nested, nested]
    return nested


class Reference:
    """Pickles as whatever reference a hostile file gives in the place of a storage's."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class HostileWriter(Writer):
    def persistent_id(self, item: Any) -> Any:
        return item.parts if isinstance(item, Reference) else super().persistent_id(item)


FLOATS = Named("torch", "FloatStorage")


@pytest.mark.parametrize(
    "reference",
    [
        Reference(),
        Reference(doubled_often(40), FLOATS, "0", "cpu", 12),
        Reference("storage", doubled_often(40), "0", "cpu", 12),
        Reference("storage", FLOATS, doubled_often(40), "cpu", 12),
        Reference("storage", FLOATS, "0", "cpu", doubled_often(40)),
        Reference("storage", FLOATS, "0", "cpu", -12),
        Reference("storage", FLOATS, "0", "cpu", 10**15),
        Reference("storage", FLOATS, "9", "cpu", 12),
    ],
    ids=["empty", "kind", "type", "key", "count", "negative", "huge", "not there"],
)
def test_a_reference_that_is_none_is_refused_without_being_printed(tmp_path: Path, reference: Reference) -> None:
    program = io.BytesIO()
    HostileWriter(program, protocol=2).dump({"x": reference})
    path = write_program(tmp_path / "model.pth", program.getvalue(), {"0": MATRIX})

    with no_more_memory_than(300 * 2**20), pytest.raises(CheckpointError) as caught:
        read_pth(path)

    assert len(caught.value.problem) < 1000


def test_twelve_bytes_do_not_take_all_memory(tmp_path: Path) -> None:
    """The 2-billionth object of the pickle is None."""
    program = pickle.PROTO + b"\2" + pickle.NONE + pickle.LONG_BINPUT + (2**31 - 1).to_bytes(4, "little") + pickle.STOP
    path = write_program(tmp_path / "model.pth", program, {})

    with no_more_memory_than(300 * 2**20):
        assert read_pth(path) is None


def test_a_bytearray_that_says_it_is_long_takes_no_memory(tmp_path: Path) -> None:
    # Found by the fuzzer.
    program = pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + (2**40).to_bytes(8, "little") + pickle.STOP
    path = write_program(tmp_path / "model.pth", program, {})

    with no_more_memory_than(300 * 2**20), pytest.raises(CheckpointError, match="which PyTorch does not write"):
        read_pth(path)


def test_a_storage_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    """BUILD gives an object a state: here attributes of a storage that is then used."""
    program = io.BytesIO()
    writer = Writer(program, protocol=2)
    writer.write(pickle.PROTO + b"\2")
    writer.save(STORAGE)
    writer.save((None, {"_values": "anything"}))
    writer.write(pickle.BUILD + pickle.STOP)

    with pytest.raises(CheckpointError, match="a storage is given a _values"):
        read_pth(write_program(tmp_path / "model.pth", program.getvalue(), {"0": MATRIX}))
