"""Weights on disk: one safetensors file and a manifest beside it; nothing that is loaded can run code.

Loading is strict: a missing, unknown, misshapen or damaged weight is an error that names it. A weight's name is the
path of its variable ("gpt/block_1/qkv/kernel").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from myxtts.errors import CheckpointError, DamagedError
from myxtts.files import make_folder, replacing, sync, write_safetensors

WEIGHTS_FILE = "model.safetensors"
PARTIAL_WEIGHTS = WEIGHTS_FILE + ".partial"
MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 1
_OWN_DIGEST = "manifest_sha256"
TEXT_WEIGHTS = {"gpt/text_embedding/table": 0, "gpt/text_head/kernel": 1, "gpt/text_head/bias": 0}
READER_WEIGHTS = {"mel_decoder/reader/embedding/embeddings": 0}
"""Of a mel decoder, which a voice need not have."""
"""Weights that have one row (or column) for each text token, and the axis it lies on."""


@dataclass(frozen=True)
class WeightsManifest:
    """What manifest.json says of the weights beside it."""

    sha256: str
    """Of the weights' file."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of each weight, by its name."""
    metadata: dict[str, Any]
    """Whatever the writer stored beside the weights; a voice's is read by `myxtts.synthesis.manifest`."""


def named(variables: Iterable[Any]) -> dict[str, Any]:
    """Keras variables by path; two of one name would overwrite each other on disk, so they are refused."""
    by_name: dict[str, Any] = {}
    for variable in variables:
        if by_name.setdefault(variable.path, variable) is not variable:
            raise CheckpointError(
                f"two weights are called {variable.path}", hint="give the two parts different names before building"
            )
    return by_name


def save_weights(folder: str | Path, variables: Iterable[Any], metadata: Mapping[str, Any] | None = None) -> Path:
    """Write all variables; see `save_arrays`."""
    return save_arrays(folder, {name: variable.value.numpy() for name, variable in named(variables).items()}, metadata)


def save_arrays(
    folder: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write all arrays. Whenever this is killed, the folder has all of what it had before or all of what is new.

    The manifest's rename decides: weights that it describes are read, be it under the name that they were written with.
    """
    folder = Path(folder)
    make_folder(folder)
    path, partial = folder / WEIGHTS_FILE, folder / PARTIAL_WEIGHTS
    with suppress(DamagedError):  # of a folder that has no manifest yet
        if partial.is_file() and _described(folder) == partial:
            partial.replace(path)
    write_safetensors(partial, arrays)
    for written in (partial, folder):  # its name too: the manifest's may be on the disk before it
        sync(written)
    manifest = {
        "version": FORMAT_VERSION,
        "sha256": _digest(partial),
        "weights": {name: {"shape": list(value.shape), "dtype": str(value.dtype)} for name, value in arrays.items()},
        "metadata": dict(metadata or {}),
    }
    content = json.loads(json.dumps(manifest))  # as it will be read: tuples are lists, keys are text
    with replacing(folder / MANIFEST_FILE) as part:
        part.write_text(json.dumps(content | {_OWN_DIGEST: _own_digest(content)}, indent=1), encoding="utf-8")
    partial.replace(path)
    sync(folder)  # or the next partial file might take the place of the only one that the manifest describes
    return path


def read_manifest(folder: str | Path) -> WeightsManifest:
    """The manifest of a folder that `save_arrays` wrote.

    One that is missing or damaged is a `DamagedError`; one that cannot be read just now, a `CheckpointError`.
    """
    path = Path(folder) / MANIFEST_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedError(
            f"{folder} has no {MANIFEST_FILE}", hint="name a folder that myxtts export or import-xtts wrote"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read: {error}", hint="export the model again") from None
    if not isinstance(content, dict) or "version" not in content:
        raise DamagedError(f"{path} is no manifest", hint="export the model again")
    # Manifests of version 0.1 have none and are not checked.
    if (own := content.pop(_OWN_DIGEST, None)) is not None and own != _own_digest(content):
        raise DamagedError(
            f"{path} is not as it was written: its checksum is wrong",
            hint=f"copy the whole folder again; if you changed it yourself, remove its {_OWN_DIGEST}",
        )
    if content["version"] != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} is not a manifest of version {FORMAT_VERSION}", hint="update myxtts, or export the model again"
        )
    try:
        shapes = {name: tuple(about["shape"]) for name, about in content["weights"].items()}
        manifest = WeightsManifest(content["sha256"], shapes, content["metadata"])
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is damaged: {error!r}", hint="copy the whole folder again") from None
    if not isinstance(manifest.metadata, dict):
        raise DamagedError(f"{path} is damaged: metadata is no mapping", hint="copy the whole folder again")
    return manifest


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """All weights of a folder, checked against the manifest."""
    path = _described(Path(folder))
    if path is None:
        raise DamagedError(
            f"{Path(folder) / WEIGHTS_FILE} is missing, or not the file that its manifest describes",
            hint="copy the whole folder again",
        )
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise DamagedError(f"{path} cannot be read: {error}", hint="copy the whole folder again") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    return arrays


def load_weights(folder: str | Path, variables: Iterable[Any]) -> dict[str, Any]:
    """Fill all variables from a folder, strictly; returns the metadata that was saved with them."""
    assign(read_arrays(folder), variables)
    return read_manifest(folder).metadata


def assign(arrays: Mapping[str, np.ndarray], variables: Iterable[Any]) -> None:
    """Give each variable the array of its name; nothing is changed unless everything fits."""
    wanted = named(variables)
    problems = [
        *(f"{name} is missing" for name in wanted.keys() - arrays.keys()),
        *(f"{name} is not in the model" for name in arrays.keys() - wanted.keys()),
        *(
            f"{name} is {list(arrays[name].shape)}, the model has {list(wanted[name].shape)}"
            for name in wanted.keys() & arrays.keys()
            if tuple(arrays[name].shape) != tuple(wanted[name].shape)
        ),
    ]
    if problems:
        raise CheckpointError(
            f"weights do not fit the model: {'; '.join(sorted(problems)[:4])} ({len(problems)} in all)",
            hint="build the model with the config.yaml that was saved beside the weights",
        )
    for name, variable in wanted.items():
        variable.assign(arrays[name])


def grow_text_vocabulary(
    arrays: Mapping[str, np.ndarray], old_ids: Sequence[int | None], *, seed: int = 0
) -> dict[str, np.ndarray]:
    """Weights for a new vocabulary: token i keeps what `old_ids[i]` had; None is a token that is new.

    A new row of the embedding is sampled from a normal distribution with the old rows' mean and deviation, a new column
    of the head is the mean of the old ones. Raises `CheckpointError` for an old token that the weights do not have.
    """
    old_size = arrays["gpt/text_embedding/table"].shape[0]
    wrong = [old for old in old_ids if old is not None and not 0 <= old < old_size]
    if wrong:
        raise CheckpointError(
            f"the new vocabulary refers to old token {wrong[0]}, the weights have {old_size} tokens",
            hint="use the vocabulary that the weights were trained with",
        )
    random = np.random.default_rng(seed)
    is_new = np.array([old is None for old in old_ids])
    kept = np.array([0 if old is None else old for old in old_ids])
    grown = dict(arrays)
    reader = {name: axis for name, axis in READER_WEIGHTS.items() if name in arrays}
    for name, axis in (TEXT_WEIGHTS | reader).items():
        old = np.moveaxis(arrays[name], axis, 0)
        rows = old[kept].copy()
        if "embedding" in name:
            rows[is_new] = random.normal(old.mean(), old.std(), rows[is_new].shape)
        else:
            rows[is_new] = old.mean(axis=0)
        grown[name] = np.ascontiguousarray(np.moveaxis(rows, 0, axis), arrays[name].dtype)
    return grown


def _described(folder: Path) -> Path | None:
    """The file of weights that the folder's manifest describes, by either of its names; None where there is none."""
    digest = read_manifest(folder).sha256
    for path in (folder / WEIGHTS_FILE, folder / PARTIAL_WEIGHTS):
        try:
            if path.is_file() and _digest(path) == digest:
                return path
        except OSError as error:
            raise _unreadable(path, error) from error
    return None


def _own_digest(manifest: Mapping[str, Any]) -> str:
    """Of what it says, not of how it is laid out."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read: {error.strerror or error}",
        hint="check the disk, its connection and the file's rights and run the same command again; nothing was changed",
    )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
