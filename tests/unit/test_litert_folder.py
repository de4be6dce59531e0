"""The folder of an exported voice is refused where it is damaged, of another version or hostile."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from myxtts.errors import CheckpointError, DamagedError, MyXTTSError
from myxtts.synthesis.litert import folder as litert
from myxtts.synthesis.litert.layout import Sizes
from myxtts.synthesis.litert.network import Network
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice import find_voice, voice_manifest

DIGEST = "0" * 64


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """All that reading looks at before a network is opened."""
    (tmp_path / "gpt_00.tflite").write_bytes(bytes(range(200)))
    (tmp_path / "config.yaml").write_text("{}")
    litert.write_tables(tmp_path, {"table": np.ones((3, 2), np.float16)})
    litert.write_manifest(tmp_path, "int8", DIGEST, VoiceManifest(parts=("gpt", "conditioning")))
    return tmp_path


def check(folder: Path) -> None:
    litert.check_files(folder, litert.read_manifest(folder))
    litert.read_tables(folder, {"table": (3, 2)})


def rewritten(folder: Path, **changes: Any) -> None:
    """The manifest with changes and a checksum that fits them, as somebody would write it who means harm."""
    path = folder / litert.MANIFEST_FILE
    content = {**json.loads(path.read_text()), **changes}
    del content["manifest_sha256"]
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**content, "manifest_sha256": own}))


def test_what_was_written_is_read(exported: Path) -> None:
    check(exported)

    found = litert.read_manifest(exported)
    assert (found.weights, found.voice_sha256, found.voice.parts) == ("int8", DIGEST, ("gpt", "conditioning"))
    assert set(found.files) == {"gpt_00.tflite", "config.yaml", "tables.safetensors"}
    assert find_voice(exported) == exported
    assert voice_manifest(exported).parts == ("gpt", "conditioning")


@given(st.sampled_from(["gpt_00.tflite", "config.yaml", "tables.safetensors", "litert.json"]), st.data())
def test_no_changed_byte_passes(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("voice")
    (folder / "gpt_00.tflite").write_bytes(bytes(range(200)))
    (folder / "config.yaml").write_text("{}")
    litert.write_tables(folder, {"table": np.ones((3, 2), np.float16)})
    litert.write_manifest(folder, "int8", DIGEST, VoiceManifest())
    content = (folder / name).read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(
        st.one_of(
            st.integers(0, 255).map(lambda byte: content[:at] + bytes([byte]) + content[at + 1 :]),
            st.just(content[:at]),
            st.binary(max_size=20).map(lambda more: content[:at] + more + content[at:]),
        )
    )
    (folder / name).write_bytes(changed)
    if changed == content or (name == "litert.json" and _same_json(changed, content)):
        return

    with pytest.raises(CheckpointError):
        check(folder)


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=8,
)


@given(st.sampled_from(["version", "weights", "voice_sha256", "files", "metadata"]), JSON)
def test_a_manifest_of_anything_is_an_error_or_read_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("voice")
    litert.write_manifest(folder, "f32", DIGEST, VoiceManifest())
    rewritten(folder, **{key: value})

    try:
        litert.check_files(folder, litert.read_manifest(folder))
    except MyXTTSError as error:
        assert error.hint


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"../secret.json": {"bytes": 1, "sha256": DIGEST}}, "no name of a file"),
        ({"/etc/passwd": {"bytes": 1, "sha256": DIGEST}}, "no name of a file"),
        ({"gpt_00.tflite": {"bytes": -1, "sha256": DIGEST}}, "size -1"),
        ({"gpt_00.tflite": {"bytes": 10**30, "sha256": DIGEST}}, "not 1000000"),
        ({"gpt_00.tflite": {"bytes": True, "sha256": DIGEST}}, "size True"),
        ({"gpt_00.tflite": {"bytes": 200, "sha256": "short"}}, "checksum 'short'"),
        ({"gpt_00.tflite": {"bytes": 200, "sha256": DIGEST}}, "checksum is wrong"),
        ({"gpt_99.tflite": {"bytes": 200, "sha256": DIGEST}}, "gpt_99.tflite is missing"),
        (["gpt_00.tflite"], "damaged"),
    ],
)
def test_files_that_cannot_be_are_refused(exported: Path, files: Any, words: str) -> None:
    rewritten(exported, files=files)

    with pytest.raises(DamagedError, match=words):
        check(exported)


def test_a_link_out_of_the_folder_is_refused(exported: Path) -> None:
    secret = exported.parent / f"{exported.name}-secret"
    secret.write_bytes((exported / "config.yaml").read_bytes())
    (exported / "config.yaml").unlink()
    (exported / "config.yaml").symlink_to(secret)

    with pytest.raises(DamagedError, match=r"config\.yaml is missing"):
        check(exported)


def test_another_version_is_named_with_its_way_out(exported: Path) -> None:
    rewritten(exported, version=2)

    with pytest.raises(CheckpointError, match="has the version '2'") as caught:
        litert.read_manifest(exported)
    assert "update myxtts" in caught.value.hint


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"table": np.ones((3, 3), np.float32)}, "table has the shape"),
        ({"table": np.ones((3, 2), np.float32), "more": np.ones(1, np.float32)}, "more has the shape"),
        ({}, "table has the shape None"),
        ({"table": np.ones((3, 2), np.int64)}, "something else than floats"),
    ],
)
def test_tables_of_other_sizes_are_refused_before_they_are_read(
    exported: Path, tables: dict[str, np.ndarray], words: str
) -> None:
    save_file(tables, exported / litert.TABLES_FILE)

    with pytest.raises(CheckpointError, match=words):
        litert.read_tables(exported, {"table": (3, 2)})


@pytest.mark.parametrize("content", [b"", b"no network at all", bytes(200)])
def test_a_file_that_is_no_network_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gpt_00.tflite").write_bytes(content)

    with pytest.raises(DamagedError, match="no LiteRT file"):
        Network(tmp_path / "gpt_00.tflite", Sizes([], []))


def test_a_huge_manifest_is_refused_unread(exported: Path) -> None:
    with (exported / litert.MANIFEST_FILE).open("ab") as file:
        file.truncate(50_000_000)

    with pytest.raises(DamagedError, match="larger than any manifest"):
        litert.read_manifest(exported)
