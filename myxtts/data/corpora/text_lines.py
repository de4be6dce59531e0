"""Reads lines of transcripts whatever wrote them: BOM, CRLF, UTF-16, Windows and Latin code pages.

UTF-8 is the rule. A line that is not UTF-8 is decoded with the code page that its language most likely used,
and a notice says so; a line that no code page explains is refused by the caller. Halves of surrogate pairs, which JSON
and file names can bring in and no file of ours can hold, are found and replaced here too.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from myxtts.errors import DataError
from myxtts.text.languages import AUTO

_CODE_PAGES = {
    "fa": "cp1256",
    "ar": "cp1256",
    "ru": "cp1251",
    "pl": "cp1250",
    "cs": "cp1250",
    "hu": "cp1250",
    "tr": "cp1254",
}


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its ending; `text` is None where no known encoding explains the bytes."""

    number: int
    text: str | None
    code_page: str | None = None


def read_lines(path: Path, language: str) -> Iterator[Line]:
    """The lines that are not blank, numbered from 1 as an editor shows them."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check the path and its rights") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode("utf-8")
    content = content.removeprefix(codecs.BOM_UTF8)
    for number, raw in enumerate(content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), start=1):
        if raw.strip():
            yield _decode(number, raw, None if language == AUTO else _CODE_PAGES.get(language, "cp1252"))


def _decode(number: int, raw: bytes, code_page: str | None) -> Line:
    """Without a code page, where the language is to be told by the text, only UTF-8 is read."""
    try:
        return Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError:
        if code_page is None:
            return Line(number, None)
    try:
        return Line(number, raw.decode(code_page), code_page)
    except UnicodeDecodeError:
        return Line(number, None)


def half_character(text: str) -> str | None:
    """What is wrong with a text that has half of a surrogate pair, or None."""
    half = _HALF.search(text)
    return f"U+{ord(half.group()):04X}, which is half a character: damaged file or wrong encoding?" if half else None


def control_character(text: str) -> str | None:
    """What is wrong with a name that has a control character, which a terminal would obey, or None."""
    found = _CONTROL.search(text)
    return f"the control character U+{ord(found.group()):04X}: damaged file or wrong encoding?" if found else None


def storable(text: str) -> str:
    """The text with U+FFFD in the place of every such half."""
    return _HALF.sub("\ufffd", text)
