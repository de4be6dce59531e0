"""Finds the audio file that a transcript names, inside the corpus and nowhere else.

Folders are listed once and kept, so that a corpus of a million clips costs one `stat` a clip. A name that is not there
as it is written is looked for in any case and in any way of writing accents, which other systems change. It may not be
absolute, may not climb with `..`, and may not reach outside through a symbolic link.
"""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from myxtts.data.corpora.text_lines import half_character

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".opus")


@dataclass(frozen=True, slots=True)
class AudioFile:
    """A file inside the corpus, with what the fingerprint needs of it."""

    path: str
    size_bytes: int
    mtime_ns: int


class NameRefusedError(Exception):
    """The name cannot be used; the message is the reason that the user reads."""


def name_problem(name: str) -> str | None:
    """Why a name from a transcript must not be joined to the corpus folder, or None."""
    if not name.strip():
        return "the id is empty"
    if any(char < " " or char == "\x7f" for char in name):
        return "the id has control characters"
    if half := half_character(name):
        return f"the id has {half}"
    if "\\" in name or name.startswith(("/", "~")) or name[1:2] == ":":
        return "the id is an absolute path or has backslashes; only names inside the corpus are read"
    if ".." in PurePosixPath(name).parts:
        return "the id climbs out of its folder with '..'; only names inside the corpus are read"
    if len(os.fsencode(name)) > 1000 or any(len(os.fsencode(part)) > 255 for part in PurePosixPath(name).parts):
        return "the id is too long to be a file name"
    return None


class AudioFinder:
    """Looks names up under some folders of a corpus, in order."""

    def __init__(self, root: Path, folders: tuple[str, ...]) -> None:
        self._root = root.resolve()
        self._folders = folders
        self._listings: dict[str, dict[str, os.DirEntry[str]] | None] = {}
        self._folded: dict[str, dict[str, list[os.DirEntry[str]]]] = {}

    def find(self, name: str) -> AudioFile:
        """The file called `name`, or `name` with an audio suffix; raises `NameRefusedError`."""
        problem = name_problem(name)
        if problem:
            raise NameRefusedError(problem)
        relative = PurePosixPath(name)
        wanted = (relative.name, *(relative.name + suffix for suffix in AUDIO_SUFFIXES))
        for look in (self._as_written, self._as_folded):
            for folder in self._folders:
                where = str(PurePosixPath(folder) / relative.parent)
                for candidate in wanted:
                    if found := look(where, candidate):
                        return self._checked(found)
        places = " or ".join(f"{folder}/" if folder != "." else "the corpus folder" for folder in self._folders)
        raise NameRefusedError(f"no audio file {name!r} (wav, flac, ogg, mp3 or opus) in {places}")

    def _as_written(self, folder: str, name: str) -> os.DirEntry[str] | None:
        found = (self._listing(folder) or {}).get(name)
        return found if found is not None and _may_be_read(found) else None

    def _as_folded(self, folder: str, name: str) -> os.DirEntry[str] | None:
        """The one file whose name differs only in case or in its way of writing accents."""
        if folder not in self._folded:
            self._folded[folder] = {}
            for entry in (self._listing(folder) or {}).values():
                self._folded[folder].setdefault(_folded(entry.name), []).append(entry)
        found = [entry for entry in self._folded[folder].get(_folded(name), []) if _may_be_read(entry)]
        if len(found) > 1:
            names = " and ".join(sorted(entry.name for entry in found))
            raise NameRefusedError(f"no audio file {name!r}, and more than one in another case: {names}")
        return found[0] if found else None

    def _listing(self, folder: str) -> dict[str, os.DirEntry[str]] | None:
        if folder not in self._listings:
            path = (self._root / folder).resolve()
            inside = path == self._root or self._root in path.parents
            self._listings[folder] = _scan(path) if inside else None
        return self._listings[folder]

    def _checked(self, found: os.DirEntry[str]) -> AudioFile:
        if found.is_symlink() and self._root not in Path(found.path).resolve().parents:
            raise NameRefusedError(f"{found.name} is a link to a place outside the corpus; copy the file into it")
        try:
            if not found.is_file():
                raise NameRefusedError(f"{found.name} is not a file")
            stat = found.stat()
        except OSError as error:
            raise NameRefusedError(f"{found.name} cannot be read: {error.strerror}") from error
        return AudioFile(found.path, stat.st_size, stat.st_mtime_ns)


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """Links to nowhere are left to `_checked`; a pipe or a device would hang whoever opens it."""
    return entry.is_file() or entry.is_symlink()


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _scan(folder: Path) -> dict[str, os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry for entry in found}
    except OSError:
        return None
