"""What a corpus reader gives: clips to prepare, refusals with their reason, and notices about what was mended.

A reader reads only transcripts and folder listings. It opens no audio, and it refuses every name that leads
out of the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.corpora.text_lines import control_character, half_character


@dataclass(frozen=True, slots=True)
class Entry:
    """One clip as its corpus describes it; `file` and `line` say where, for messages."""

    id: str
    audio: AudioFile
    text: str
    speaker: str
    language: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A clip that is left out: where it stands and why."""

    file: str
    line: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that was mended on the way in, and that the owner of the corpus may want to know."""

    file: str
    line: int
    what: str


@dataclass(slots=True)
class CorpusListing:
    """Everything that a reader found, in the order of the transcripts."""

    root: Path
    format: str
    transcripts: list[Path] = field(default_factory=list)
    """Files whose content decides the listing; part of the cache's fingerprint."""
    entries: list[Entry] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def refuse(self, file: str, line: int, clip_id: str, reason: str) -> None:
        self.refusals.append(Refusal(file, line, clip_id[:200], reason))

    def add(self, entry: Entry, seen: dict[str, int]) -> None:
        """Keep the entry, unless its id was there before, its text cannot be spoken or its names cannot be stored."""
        reason = text_problem(entry.text)
        for name, value in (("id", entry.id), ("speaker", entry.speaker)):
            if problem := half_character(value) or control_character(value):
                reason = f"the {name} has {problem}"
        if entry.id in seen:
            reason = f"duplicate id: {entry.id!r} is already on line {seen[entry.id]}"
        if reason:
            self.refuse(entry.file, entry.line, entry.id, reason)
            return
        seen[entry.id] = entry.line
        self.entries.append(entry)

    def clip_list(self, refusals: Iterable[Refusal]) -> str:
        """A digest of which clip has which number once these are left out, whatever its text and its place."""
        refused = {(refusal.file, refusal.line) for refusal in refusals}
        digest = hashlib.sha256()
        for entry in self.entries:
            if (entry.file, entry.line) not in refused:
                # With its size: a new recording under an old id is another clip.
                digest.update(f"{entry.id}|{entry.audio.size_bytes}\n".encode())
        return digest.hexdigest()


def text_problem(text: str) -> str | None:
    """Why a transcript cannot be used, or None."""
    if not text.strip():
        return "the text is empty"
    for char in text:
        # Control and private characters are signs of a damaged file; no front end can speak them.
        control = (char < " " and char != "\t") or "\x7f" <= char <= "\x9f"
        if control or "\ud800" <= char <= "\uf8ff" or char == "\ufffd":
            return f"the text has the unspeakable character U+{ord(char):04X}: damaged file or wrong encoding?"
    return None
