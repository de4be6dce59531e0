"""Terminals that cannot show every character: signs get an ASCII stand-in, letters are escaped, nothing crashes.

And text that a terminal must not obey: a name in a downloaded file may hold the sequences that move its cursor.
"""

from __future__ import annotations

import codecs
import os
import sys
from typing import TextIO

ERRORS = "myxtts-plain"
"""Name of the error handler, for `str.encode` and for streams."""

_STAND_INS = {"·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "×": "x", "’": "'", "“": '"', "”": '"'}


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    written = "".join(_STAND_INS.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in text)
    return written, error.end


codecs.register_error(ERRORS, _plain)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def escaped(text: str) -> str:
    """The text with its control characters written out; lines and tabs stay."""
    return text.translate(_CONTROLS)


def write_any_character() -> None:
    """Let standard output and error take any text, and, in a pipe, write a line as soon as it is said."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=ERRORS, line_buffering=True)


def drop_output(stream: TextIO) -> None:
    """Send what a standard stream still holds nowhere: it leads to nothing now, and Python would say so at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
