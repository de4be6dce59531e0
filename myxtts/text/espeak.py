"""espeak-ng as a library, once in a process: opened at the first use, its voice changed when another one is to read.

Only from text to IPA. Not for several threads at once: the caller has a lock.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from typing import Any

from myxtts.errors import MissingDependencyError

_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1
_IPA = 0x02
_SEPARATOR = "_"
"""Between the sounds of a word. Without one espeak joins some of them with a tie, so it is asked for and removed."""
_MARKS = re.compile(r'(\s*[;:,.!?¡¿—…"«»“”(){}\[\]]+\s*)+')
_FLAG = re.compile(r"\(.+?\)")


def ipa(text: str, voice: str) -> str:
    """The text as one phrase in IPA with stress marks; punctuation in it is passed over."""
    phrase = _MARKS.sub(" ", text).strip()
    library = _library()
    _select(voice)
    place = ctypes.pointer(ctypes.c_char_p(phrase.encode("utf-8")))
    parts = []
    while place.contents.value is not None:
        if sounds := library.espeak_TextToPhonemes(place, _UTF8, ord(_SEPARATOR) << 8 | _IPA):
            parts.append(sounds.decode("utf-8"))
    # espeak marks words that it reads in another language, such as "(en)".
    return " ".join(_FLAG.sub("", " ".join(parts)).replace(_SEPARATOR, "").split())


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        import espeakng_loader
    except ImportError as error:
        raise MissingDependencyError(
            f"phonemes need {error.name}, which is not installed",
            hint="pip install espeakng-loader, or choose --text-frontend characters",
        ) from error
    library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
    if library.espeak_Initialize(_SYNCHRONOUS, 0, str(espeakng_loader.get_data_path()).encode(), _DO_NOT_EXIT) <= 0:
        raise MissingDependencyError("espeak-ng cannot be initialised", hint="pip install espeakng-loader again")
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
    library.espeak_SetVoiceByName.argtypes = [ctypes.c_char_p]
    return library


_selected: list[str] = [""]


def _select(voice: str) -> None:
    if _selected[0] == voice:
        return
    # A country's voice may go by the name of its language: fr-fr is fr.
    if all(_library().espeak_SetVoiceByName(name.encode()) for name in (voice, voice.split("-")[0])):
        raise MissingDependencyError(f"espeak-ng has no voice {voice!r}", hint="pip install espeakng-loader again")
    _selected[0] = voice
