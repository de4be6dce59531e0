"""Finds the audio file that a transcript names, inside the corpus and nowhere else.

Folders are listed once and kept, so that a corpus of a million clips costs one `stat` a clip. A name may not be
absolute, may not climb with `..`, and may not reach outside through a symbolic link.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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

    def find(self, name: str) -> AudioFile:
        """The file called `name`, or `name` with an audio suffix; raises `NameRefusedError`."""
        problem = name_problem(name)
        if problem:
            raise NameRefusedError(problem)
        relative = PurePosixPath(name)
        for folder in self._folders:
            where = PurePosixPath(folder) / relative.parent
            listing = self._listing(str(where))
            if listing is None:
                continue
            for candidate in (relative.name, *(relative.name + suffix for suffix in AUDIO_SUFFIXES)):
                found = listing.get(candidate)
                # Links to nowhere are left to `_checked`; a pipe or a device would hang whoever opens it.
                if found is not None and (found.is_file() or found.is_symlink()):
                    return self._checked(found)
        places = " or ".join(f"{folder}/" if folder != "." else "the corpus folder" for folder in self._folders)
        raise NameRefusedError(f"no audio file {name!r} (wav, flac, ogg, mp3 or opus) in {places}")

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


def _scan(folder: Path) -> dict[str, os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry for entry in found}
    except OSError:
        return None
