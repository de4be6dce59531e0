"""The folder of an exported voice on disk: LiteRT files, tables and a manifest with the checksum of each.

Reading is strict and runs nothing of the folder before all of it is checked: a manifest of another version, a file
that is missing, of another size or checksum, or that the voice's layout does not name, is an error that names it. A
checksum proves that a file is what its exporter wrote, not that the exporter meant well: open voices of people you
trust. No TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from myxtts.errors import CheckpointError, DamagedError
from myxtts.files import replacing, write_safetensors
from myxtts.synthesis.manifest import VoiceManifest

MANIFEST_FILE = "litert.json"
TABLES_FILE = "tables.safetensors"
FORMAT_VERSION = 1
Weights = Literal["f32", "f16", "int8"]

_OWN_DIGEST = "manifest_sha256"
_MOST_MANIFEST_BYTES = 4_000_000
_NAME = re.compile(r"[a-z0-9_]{1,40}\.(tflite|safetensors|yaml|json|npz)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredFile:
    """What the manifest says of a file beside it."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class ExportedVoice:
    """What litert.json says."""

    weights: Weights
    voice_sha256: str
    """Of the weights that were exported: saved latents of the voice carry it."""
    files: Mapping[str, StoredFile]
    voice: VoiceManifest


def write_manifest(folder: Path, weights: Weights, voice_sha256: str, voice: VoiceManifest) -> None:
    """Describe all files of the folder, last: a folder without a manifest is no voice."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(folder.iterdir())
        if _NAME.fullmatch(path.name) and path.name != MANIFEST_FILE
    }
    content = {
        "version": FORMAT_VERSION,
        "weights": weights,
        "voice_sha256": voice_sha256,
        "files": files,
        "metadata": voice.to_metadata(),
    }
    content = json.loads(json.dumps(content))  # as it will be read: tuples are lists
    with replacing(folder / MANIFEST_FILE) as part:
        part.write_text(json.dumps(content | {_OWN_DIGEST: _own_digest(content)}, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> ExportedVoice:
    """What the manifest says. Raises `DamagedError` where it is missing or damaged, `CheckpointError` for another
    version's."""
    path = folder / MANIFEST_FILE
    content = _json_of(path)
    own = content.pop(_OWN_DIGEST, None)
    if content.get("version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has the version {str(content.get('version'))[:40]!r}, this version of myxtts reads "
            f"{FORMAT_VERSION}",
            hint="update myxtts, or export the voice again: myxtts export VOICE OUT --format litert",
        )
    if own != _own_digest(content):
        raise DamagedError(f"{path} is not as it was written: its checksum is wrong", hint=_COPY)
    try:
        files = {_name(name): _stored(about) for name, about in content["files"].items()}
        weights, digest = content["weights"], content["voice_sha256"]
        if weights not in get_args(Weights) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"weights {weights!r} of {digest!r}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} is damaged: {str(error)[:200] or error!r}", hint=_COPY) from None
    voice = VoiceManifest.from_metadata(content.get("metadata"), path)
    return ExportedVoice(weights, digest, files, voice)


def check_files(folder: Path, exported: ExportedVoice) -> None:
    """Raise `DamagedError` for the first file that is not what the manifest says."""
    for name, stored in exported.files.items():
        path = folder / name
        try:
            # A link could lead anywhere, to a device that never ends too.
            if path.is_symlink() or not path.is_file() or path.stat().st_size != stored.size_bytes:
                raise DamagedError(f"{path} is missing, or not {stored.size_bytes} bytes long", hint=_COPY)
            if _digest(path) != stored.sha256:
                raise DamagedError(f"{path} is not as it was written: its checksum is wrong", hint=_COPY)
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read: {error.strerror or error}", hint="check the disk and the file's rights"
            ) from error


def write_tables(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    write_safetensors(folder / TABLES_FILE, arrays)


def read_tables(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """The tables in float32; others than those of `shapes`, or of other shapes, are a `CheckpointError`."""
    path = folder / TABLES_FILE
    try:
        with safe_open(path, framework="np") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            if found != dict(shapes):
                wrong = next(name for name in {**found, **shapes} if found.get(name) != shapes.get(name))
                raise CheckpointError(
                    f"{path}: {wrong} has the shape {found.get(wrong)}, the voice's config.yaml asks for "
                    f"{shapes.get(wrong)}",
                    hint="export the voice again; the two are not of one voice",
                )
            arrays = {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read: {error}", hint=_COPY) from None
    if any(array.dtype not in (np.float16, np.float32) for array in arrays.values()):
        raise DamagedError(f"{path} holds something else than floats", hint=_COPY)
    return {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}


_COPY = "copy the whole folder again, or export the voice again"


def _json_of(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_MANIFEST_BYTES:
            raise DamagedError(f"{path} is larger than any manifest", hint=_COPY)
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedError(f"{path.parent} has no {path.name}", hint="name a folder of myxtts export") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}", hint="check its rights") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read: {error}", hint=_COPY) from None
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is no manifest", hint=_COPY)
    return content


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no name of a file of a voice")
    return name


def _stored(about: Any) -> StoredFile:
    size, digest = about["bytes"], about["sha256"]
    if type(size) is not int or size < 0 or not _DIGEST.fullmatch(digest):
        raise ValueError(f"size {size!r}, checksum {digest!r}")
    return StoredFile(size, digest)


def _own_digest(content: Mapping[str, Any]) -> str:
    """Of what it says, not of how it is laid out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
