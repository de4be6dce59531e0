"""Common Voice form: `validated.tsv` with `client_id`, `path`, `sentence`, `locale`; audio in `clips/`."""

from __future__ import annotations

from pathlib import Path

from myxtts.data.corpora.audio_files import AudioFinder, NameRefusedError
from myxtts.data.corpora.entry import CorpusListing, Entry, Notice
from myxtts.data.corpora.text_lines import read_lines
from myxtts.errors import DataError

TABLE_NAMES = ("validated.tsv", "train.tsv")


def read_common_voice(root: Path, table: Path, *, language: str, speaker: str) -> CorpusListing:
    """List one table of a release; the speaker is the client id, the language is the locale."""
    listing = CorpusListing(root, "common-voice", [table])
    lines = read_lines(table, language)
    header = next(lines, None)
    columns = header.text.split("\t") if header and header.text else []
    if not {"path", "sentence"} <= set(columns):
        raise DataError(
            f"{table} has no columns 'path' and 'sentence' in its first line",
            hint="give a table of a Common Voice release, such as validated.tsv, or name another --corpus-format",
        )
    finder = AudioFinder(root, ("clips", "."))
    seen: dict[str, int] = {}
    for line in lines:
        where = (table.name, line.number)
        if line.text is None:
            listing.refuse(*where, "", f"the line is neither UTF-8 nor the usual code page of {language!r}")
            continue
        cells = line.text.split("\t")
        # Releases leave trailing columns (accents, segment) out of a line when they are empty.
        needed = max(columns.index("path"), columns.index("sentence")) + 1
        if not needed <= len(cells) <= len(columns):
            listing.refuse(*where, cells[0], f"{len(cells)} columns where the table has {len(columns)}")
            continue
        named = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        if line.code_page:
            listing.notices.append(Notice(*where, f"not UTF-8; read as {line.code_page}"))
        try:
            audio = finder.find(named["path"])
        except NameRefusedError as error:
            listing.refuse(*where, named["path"], str(error))
            continue
        listing.add(
            Entry(
                id=named["path"],
                audio=audio,
                text=named["sentence"],
                speaker=named.get("client_id") or speaker,
                language=named.get("locale") or language,
                file=where[0],
                line=where[1],
            ),
            seen,
        )
    return listing
