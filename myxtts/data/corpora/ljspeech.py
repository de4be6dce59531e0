"""LJSpeech form: `metadata.csv` with `id|text|normalised|speaker|language`, audio in `wavs/` or beside it.

Two to five columns, or a header line that names them. The number of columns that most lines have is the file's;
a line with more has a `|` in its text, a line with fewer is cut short, and both are refused by line.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from myxtts.data.corpora.audio_files import AUDIO_SUFFIXES, AudioFinder, NameRefusedError
from myxtts.data.corpora.entry import CorpusListing, Entry, Notice
from myxtts.data.corpora.text_lines import Line, read_lines

METADATA_NAMES = ("metadata.csv", "metadata.txt", "metadata.psv")

_COLUMNS = {
    2: ("id", "text"),
    3: ("id", "text", "normalised"),
    4: ("id", "text", "normalised", "speaker"),
    5: ("id", "text", "normalised", "speaker", "language"),
}
_HEADER_NAMES = {
    "id": "id", "file": "id", "filename": "id", "file_name": "id", "audio": "id", "audio_file": "id", "wav": "id",
    "clip_id": "id", "file_id": "id", "path": "id", "file_path": "id", "audio_path": "id", "wav_file": "id",
    "text": "text", "transcript": "text", "transcription": "text", "sentence": "text",
    "normalised": "normalised", "normalised_text": "normalised", "normalised_transcript": "normalised",
    "normalised_transcription": "normalised", "normalised_sentence": "normalised",
    "speaker": "speaker", "speaker_name": "speaker", "speaker_id": "speaker",
    "language": "language", "lang": "language", "language_code": "language", "locale": "language",
}  # fmt: skip
"""By their British spelling, in small letters, with underscores; see `_header_name`."""


def read_ljspeech(root: Path, metadata: Path, *, language: str, speaker: str) -> CorpusListing:
    """List the corpus; `language` and `speaker` stand where the metadata has no such column."""
    listing = CorpusListing(root, "ljspeech", [metadata])
    lines = list(read_lines(metadata, language))
    columns, rows = _columns(lines)
    header = lines[0].text if rows is not lines else None
    for cell in header.split("|") if header else ():
        if not _header_name(cell):
            what = f"the column {cell.strip()!r} is not read: known are {', '.join(_COLUMNS[5])}"
            listing.notices.append(Notice(metadata.name, lines[0].number, what))
    finder = AudioFinder(root, ("wavs", "wav", "audio", "."))
    seen: dict[str, int] = {}
    for line in rows:
        where = (metadata.name, line.number)
        if line.text is None:
            listing.refuse(*where, "", f"the line is neither UTF-8 nor the usual code page of {language!r}")
            continue
        cells = [cell.strip() for cell in line.text.split("|")]
        problem = _cells_problem(cells, columns)
        if problem:
            listing.refuse(*where, cells[0], problem)
            continue
        if line.code_page:
            listing.notices.append(Notice(*where, f"not UTF-8; read as {line.code_page}"))
        named = dict(zip(columns, cells, strict=False))
        try:
            audio = finder.find(named["id"])
        except NameRefusedError as error:
            listing.refuse(*where, named["id"], str(error))
            continue
        entry = Entry(
            id=_without_audio_suffix(named["id"]),
            audio=audio,
            text=named.get("normalised") or named["text"],
            speaker=named.get("speaker") or speaker,
            language=named.get("language") or language,
            file=where[0],
            line=where[1],
        )
        listing.add(entry, seen)
    return listing


def _columns(lines: list[Line]) -> tuple[tuple[str, ...], list[Line]]:
    """The file's columns, from its header or from what most lines have, and the lines below the header."""
    if lines and lines[0].text:
        header = tuple(_header_name(cell) for cell in lines[0].text.split("|"))
        if {"id", "text"} <= set(header) and len(set(header) - {""}) == len([name for name in header if name]):
            return header, lines[1:]
    counts = Counter(line.text.count("|") + 1 for line in lines if line.text is not None)
    usual = min((count for count in counts if count in _COLUMNS), key=lambda count: (-counts[count], count), default=3)
    return _COLUMNS[usual], lines


def _header_name(cell: str) -> str:
    """The column that a cell of the header means, or nothing where it is none of ours."""
    plain = cell.strip().lower().replace(" ", "_").replace("-", "_").replace("normalized", "normalised")
    return _HEADER_NAMES.get(plain, "")


def _cells_problem(cells: list[str], columns: tuple[str, ...]) -> str | None:
    if len(cells) > len(columns):
        return f"{len(cells)} columns where the file has {len(columns)}: is there a '|' in the text?"
    if len(cells) == 1:
        return f"no '|' in the line: columns are separated by it, as in {'|'.join(columns[:2])}"
    # LJSpeech's third column repeats the second; a line without it loses nothing.
    if len(cells) < len(columns) and not (len(cells) == 2 and columns == _COLUMNS[3]):
        return f"{len(cells)} columns where the file has {len(columns)} ({'|'.join(columns)})"
    return None


def _without_audio_suffix(name: str) -> str:
    for suffix in AUDIO_SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name
