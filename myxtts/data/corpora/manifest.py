"""JSONL manifest: one object a line with `audio`, `text` and, if it varies, `speaker` and `language`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from myxtts.data.corpora.audio_files import AudioFinder, NameRefusedError
from myxtts.data.corpora.entry import CorpusListing, Entry, Notice
from myxtts.data.corpora.text_lines import read_lines

MANIFEST_NAMES = ("manifest.jsonl", "metadata.jsonl", "train.jsonl")


def read_manifest(root: Path, manifest: Path, *, language: str, speaker: str) -> CorpusListing:
    """List the corpus; audio names are relative to the manifest's folder."""
    listing = CorpusListing(root, "jsonl", [manifest])
    finder = AudioFinder(root, (".",))
    seen: dict[str, int] = {}
    for line in read_lines(manifest, language):
        where = (manifest.name, line.number)
        fields = _parse(line.text)
        if isinstance(fields, str):
            listing.refuse(*where, "", fields)
            continue
        if line.code_page:
            listing.notices.append(Notice(*where, f"not UTF-8; read as {line.code_page}"))
        name = fields["audio"]
        try:
            audio = finder.find(name)
        except NameRefusedError as error:
            listing.refuse(*where, name, str(error))
            continue
        listing.add(
            Entry(
                id=fields.get("id") or name,
                audio=audio,
                text=fields["text"],
                speaker=fields.get("speaker") or speaker,
                language=fields.get("language") or language,
                file=where[0],
                line=where[1],
            ),
            seen,
        )
    return listing


def _parse(text: str | None) -> dict[str, str] | str:
    """The line's fields as strings, or why they cannot be had."""
    if text is None:
        return "the line is not UTF-8"
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {str(error)[:100]}"
    if not isinstance(value, dict):
        return f"a JSON {type(value).__name__} where an object is expected"
    fields: dict[str, str] = {}
    for name in ("audio", "text", "speaker", "language", "id"):
        field = value.get(name)
        if isinstance(field, int) and not isinstance(field, bool) and name in ("speaker", "id"):
            field = str(field)
        if field is None and name not in ("audio", "text"):
            continue
        if not isinstance(field, str):
            return f"{name!r} is missing" if field is None else f"{name!r} is not a string"
        fields[name] = field.strip()
    return fields
