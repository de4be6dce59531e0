"""A prepared corpus on disk: the index of lengths, the shards, and what was found while preparing.

The folder is complete when `manifest.json` is there, which is written last. The index is read whole, 13 bytes a clip,
and nothing else grows with the corpus. It is not memory-mapped: a file that is cut while mapped kills the process.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from myxtts.data.records import ClipRecord, DamagedRecordError, decode_arrays, decode_record, lengths_of
from myxtts.data.shards import ShardReader
from myxtts.errors import ConfigError, DataError

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer

Decoded = TypeVar("Decoded")

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
REFUSED = "refused.jsonl"
REPORT = "report.json"
_OWN_DIGEST = "manifest_sha256"
_FILE_DIGESTS = "files_sha256"
INDEX_TYPES = {"wave_samples": "<u4", "text_tokens": "<u4", "speaker": "<i4", "language": "u1"}


HOLDOUT_EVERY = 20


def held_out_of(clips: int, every: int = HOLDOUT_EVERY) -> NDArray[np.int64]:
    """Those of so many clips that are kept from training: one of each `every` in a row, one at least of two clips.

    Its place changes from row to row. Corpora repeat: every 20th clip of four speakers who take turns is always the
    same speaker.
    """
    rows = range(-(-clips // every))
    held = np.array([row * every + zlib.crc32(row.to_bytes(8, "little")) % every for row in rows], np.int64)
    held = held[held < clips]
    return held if len(held) or clips < 2 else np.array([clips - 1], np.int64)


@dataclass(frozen=True, slots=True)
class ClipIndex:
    """One value a clip, read-only; speakers and languages are positions in the corpus's lists."""

    wave_samples: NDArray[np.uint32]
    text_tokens: NDArray[np.uint32]
    speaker: NDArray[np.int32]
    language: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.wave_samples)


class PreparedCorpus:
    """Clips by number. Sent to another process, it travels as its path and is opened again there."""

    def __init__(self, path: Path, manifest: dict[str, Any], index: ClipIndex) -> None:
        self.path = path
        self.index = index
        self.speakers: list[str] = manifest["speakers"]
        self.languages: list[str] = manifest["languages"]
        self.fingerprint: str = manifest["fingerprint"]
        self.identity = _identity_of(manifest)
        """A digest of what was prepared, shards included; the fingerprint is of what it was prepared from."""
        self._seen: tuple[int, ...] | None = None
        self.clip_list: str | None = manifest.get("clip_list")
        """A digest of which clip has which number, and so of which are held out; None in folders without one."""
        self._shard_starts = np.cumsum([0, *(shard["clips"] for shard in manifest["shards"])])
        self._shards = ShardReader([path / shard["file"] for shard in manifest["shards"]], self._refuse_another)

    def __len__(self) -> int:
        return len(self.index)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_open_same, (self.path, self.identity))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the shards' ids are of."""
        from myxtts.text.tokenizer import load_tokenizer

        try:
            tokenizer = load_tokenizer(self.path / TOKENIZER)
        except ConfigError as error:
            raise _damaged(self.path / TOKENIZER, error.problem) from error
        self._refuse_another()
        return tokenizer

    @cached_property
    def report(self) -> dict[str, Any]:
        """What preparing found: hours, clips, speakers, histograms, unknown characters, refusals."""
        path = self.path / REPORT
        try:
            report: Any = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(path, str(error)) from error
        if not isinstance(report, dict) or type(report.get("refused")) is not int:
            raise _damaged(path, "it is no report")
        self._refuse_another()
        return report

    def read(self, clip: int) -> ClipRecord:
        return self._decoded(clip, decode_record)

    def read_arrays(self, clip: int) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
        """Samples and token ids of a clip, as read-only views."""
        return self._decoded(clip, decode_arrays)

    def split(self, holdout_every: int = HOLDOUT_EVERY) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clips to train on and clips held out: one of every `holdout_every`, one at least of two clips."""
        held = held_out_of(len(self), holdout_every)
        return np.delete(np.arange(len(self), dtype=np.int64), held), held

    def _decoded(self, clip: int, decode: Callable[[bytes], Decoded]) -> Decoded:
        if not 0 <= clip < len(self):
            raise DataError(f"clip {clip} of {len(self)} was asked for", hint=f"clips are 0 to {len(self) - 1}")
        shard = int(np.searchsorted(self._shard_starts, clip, side="right")) - 1
        position = int(clip - self._shard_starts[shard])
        indexed = int(self.index.wave_samples[clip]), int(self.index.text_tokens[clip])
        try:
            data = self._shards.read(shard, position)
            if (found := lengths_of(data)) != indexed:
                raise DamagedRecordError(f"it has {found} samples and tokens, and the index says {indexed}")
            return decode(data)
        except (DamagedRecordError, DataError) as error:
            self._refuse_another()
            if isinstance(error, DataError):
                raise
            raise self._shards.damaged(shard, position, str(error)) from error

    def _refuse_another(self) -> None:
        """Files are opened by their paths when they are first read, and may be another corpus's by then.

        Whoever opens one asks afterwards: a folder that is still the same now was the same when the file was opened.
        """
        try:
            stat = (self.path / MANIFEST).stat()
            seen = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            raise _replaced(self.path) from None
        if seen == self._seen:
            return
        manifest = read_manifest(self.path)
        if manifest is None or _identity_of(manifest) != self.identity:
            raise _replaced(self.path)
        self._seen = seen


def open_prepared(path: str | Path) -> PreparedCorpus:
    """Open a folder that `prepare` finished; a file that is missing, cut or changed is an error that names it."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataError(f"{folder} is not a prepared corpus", hint="run `myxtts prepare CORPUS` first")
    for shard in manifest["shards"]:
        _check_size(folder / shard["file"], shard["size_bytes"])
    for name, digest in manifest.get(_FILE_DIGESTS, {}).items():
        _check_digest(folder / name, digest)
    columns = {name: _open_column(folder, name, manifest) for name in INDEX_TYPES}
    for name in ("speaker", "language"):
        if len(columns[name]) and not 0 <= columns[name].max() < len(manifest[f"{name}s"]):
            raise _damaged(folder / MANIFEST, f"it has {len(manifest[f'{name}s'])} {name}s, and the index names more")
    return PreparedCorpus(folder, manifest, ClipIndex(**columns))


def _open_same(path: Path, identity: str) -> PreparedCorpus:
    """What another process had opened, and nothing that has taken its place since."""
    prepared = open_prepared(path)
    if prepared.identity != identity:
        raise _replaced(path)
    return prepared


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None where there is none that this version can read."""
    path = folder / MANIFEST
    try:
        manifest: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return manifest if _is_manifest(manifest) else None


def seal(manifest: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The manifest with checksums of the folder's small files, and of itself, in the place of those it may have."""
    small = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (TOKENIZER, REPORT)}
    rest = {name: value for name, value in manifest.items() if name != _OWN_DIGEST}
    whole = {**rest, _FILE_DIGESTS: small}
    return {**whole, _OWN_DIGEST: _identity_of(whole)}


def _is_manifest(content: Any) -> bool:
    """Whether it has all that a manifest of this version has, of the right types, and is as it was written.

    Folders of earlier versions have no checksums.
    """
    if not isinstance(content, dict) or content.get("version") != FORMAT_VERSION:
        return False
    if _OWN_DIGEST in content:
        rest = {name: value for name, value in content.items() if name != _OWN_DIGEST}
        return bool(content[_OWN_DIGEST] == _identity_of(rest))
    if _FILE_DIGESTS in content:
        return False  # they came together
    shards, checksums = content.get("shards"), content.get("index_crc32")
    return (
        isinstance(content.get("fingerprint"), str)
        and isinstance(content.get("clip_list"), str | None)
        and all(_is_list_of(str, content.get(name)) for name in ("speakers", "languages"))
        and isinstance(checksums, dict)
        and all(type(checksums.get(name)) is int for name in INDEX_TYPES)
        and _is_list_of(dict, shards)
        and all(_is_shard(shard) for shard in shards or ())
        and type(content.get("clips")) is int
        and content["clips"] == sum(shard["clips"] for shard in shards or ())
    )


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_shard(value: dict[str, Any]) -> bool:
    name, counts = value.get("file"), [value.get("clips"), value.get("size_bytes")]
    plain = isinstance(name, str) and name == Path(name).name and "\0" not in name
    return plain and all(type(count) is int and count >= 0 for count in counts)


def _identity_of(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def write_index(folder: Path, columns: dict[str, NDArray[Any]]) -> dict[str, int]:
    """Write the index's columns; returns their checksums for the manifest."""
    from myxtts.data.shards import write_whole

    checksums = {}
    for name, dtype in INDEX_TYPES.items():
        content = np.ascontiguousarray(columns[name], dtype).tobytes()
        write_whole(folder / f"{name}.bin", content)
        checksums[name] = zlib.crc32(content)
    return checksums


def _open_column(folder: Path, name: str, manifest: dict[str, Any]) -> NDArray[Any]:
    path, dtype = folder / f"{name}.bin", np.dtype(INDEX_TYPES[name])
    _check_size(path, manifest["clips"] * dtype.itemsize)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if zlib.crc32(content) != manifest["index_crc32"][name]:
        raise _damaged(path, "its checksum is wrong")
    return np.frombuffer(content, dtype)


def _check_size(path: Path, size_bytes: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if found != size_bytes:
        raise _damaged(path, f"it has {found} bytes, not {size_bytes}")


def _check_digest(path: Path, digest: str) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise _damaged(path, "its checksum is wrong")


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror or error}", hint="check the disk and the file's rights")


def _damaged(path: Path, how: str) -> DataError:
    return DataError(
        f"{path} is damaged: {how}",
        hint=f"remove {path.parent} and run the same command again: it prepares the corpus anew",
    )


def _replaced(folder: Path) -> DataError:
    return DataError(
        f"the prepared corpus {folder} was replaced while it was read: the corpus or its metadata was changed, and "
        "another command prepared it anew",
        hint="put the corpus back as it was, or keep it as it is now, and run the same command again; to work with two "
        "states of a corpus at once, give one of the commands another --cache-dir",
    )
