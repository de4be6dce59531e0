"""The folder in which a corpus is prepared: hidden, beside its final place, under a name that nobody else has.

Only folders that carry our own mark are ever removed: `begun.json` while one is being built, a manifest of ours
afterwards. Whatever else lies there is the user's.
"""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

from myxtts.data.prepared import INDEX_TYPES, MANIFEST
from myxtts.data.shards import write_whole
from myxtts.errors import DataError
from myxtts.files import exchange, make_folder, sync

BEGUN = "begun.json"
_OURS = "myxtts prepare"


def begin(target: Path, fingerprint: str, *, afresh: bool) -> Path:
    """The folder to go on in, be it whole already; a new one where there is none. Those of other states are removed."""
    kept: Path | None = None
    for folder in unfinished(target):
        if kept is None and not afresh and _fingerprint_of(folder) == fingerprint:
            kept = folder
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if kept is not None:
        return kept
    building = _beside(target, "building")
    make_folder(building)
    write_whole(building / BEGUN, json.dumps({"by": _OURS, "fingerprint": fingerprint}).encode())
    return building


def unfinished(target: Path) -> list[Path]:
    """What earlier preparations of this folder left beside it."""
    return _siblings(target, "building")


def put_in_place(building: Path, target: Path) -> None:
    """Give a whole folder its name; what had it before is removed once the new one is there, or else put back."""
    if not is_prepared(target):
        building.rename(target)  # over an empty folder too, and over nothing that has anything in it
    elif exchange(building, target):
        sync(target.parent)
        building.rename(_beside(target, "old"))
    else:
        old = target.rename(_beside(target, "old"))
        try:
            building.rename(target)
        except OSError:
            old.rename(target)
            raise
    sync(target.parent)
    for folder in _siblings(target, "old"):
        shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(building: Path) -> None:
    """Files that were being written when a process was killed."""
    for leftover in building.glob(".*.part"):
        leftover.unlink(missing_ok=True)


def is_prepared(folder: Path) -> bool:
    """Whether `prepare` made it, in whatever version; a manifest of another program's does not count.

    A damaged manifest says nothing, but nobody else has files with the names of all our columns.
    """
    manifest = _read_object(folder / MANIFEST)
    columns = all((folder / f"{name}.bin").is_file() for name in INDEX_TYPES)
    return columns or {"version", "fingerprint", "shards"} <= manifest.keys()


def _siblings(target: Path, kind: str) -> list[Path]:
    if not target.parent.is_dir():
        return []
    begins = _name_of(target, kind)
    found = (path for path in target.parent.iterdir() if path.name.startswith(begins) and not path.is_symlink())
    return sorted(path for path in found if path.is_dir() and _is_ours(path))


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(_name_of(target, kind) + secrets.token_hex(6))


def _name_of(target: Path, kind: str) -> str:
    return f".{target.name}.{kind}-"


def _is_ours(folder: Path) -> bool:
    return is_prepared(folder) or _read_object(folder / BEGUN).get("by") == _OURS


def _fingerprint_of(folder: Path) -> Any:
    return _read_object(folder / BEGUN).get("fingerprint") or _read_object(folder / MANIFEST).get("fingerprint")


def _read_object(path: Path) -> dict[str, Any]:
    """A small JSON object; an empty one where there is none."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    except OSError as error:
        # Not proven to be none of ours, and not proven to be: what cannot be read is neither used nor removed.
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}", hint="check the disk and the file's rights"
        ) from error
    return content if isinstance(content, dict) else {}
