"""espeak-ng as a speaking machine, through its C interface: the same clip for the same request, always.

espeak keeps state from one utterance to the next (wave phases, noise), so that a clip would depend on what was said
before it. Each utterance therefore runs in a freshly loaded private copy of the library with fixed random seeds: nine
milliseconds instead of four. The copy also shares no state with the espeak that makes phonemes in the same process.
"""

from __future__ import annotations

import _ctypes
import atexit
import ctypes
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError, MissingDependencyError

ESPEAK_SAMPLE_RATE = 22050
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1
_RATE, _PITCH, _PITCH_RANGE = 1, 3, 4
_SEED = 20240229
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True, kw_only=True)
class EspeakVoice:
    """One speaker: a voice variant of espeak (its vocal tract) and how it is used."""

    name: str
    variant: str
    pitch: int = 50
    pitch_range: int = 50
    words_per_minute: int = 160


def speak(text: str, voice: EspeakVoice, espeak_language: str) -> NDArray[np.int16]:
    """Mono samples at 22,050 Hz."""
    library_path, data_path = _private_library()
    chunks: list[bytes] = []

    def keep(samples: Any, count: int, _events: Any) -> int:
        if samples and count > 0:
            chunks.append(ctypes.string_at(samples, count * 2))
        return 0

    collect = _CALLBACK(keep)
    library = ctypes.CDLL(library_path)
    try:
        _start(library, collect, data_path)
        _set_voice(library, voice, espeak_language)
        encoded = text.encode() + b"\0"
        with _ctrl_c_held():
            library.espeak_Synth(encoded, ctypes.c_size_t(len(encoded)), 0, 1, 0, _UTF8, None, None)
            library.espeak_Synchronize()
        library.espeak_Terminate()
    finally:
        _unload(library)
    return np.frombuffer(b"".join(chunks), np.int16)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits for the library to return: an exception in its callback is printed by ctypes, and lost."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for number, frame in held[:1]:
        handler(number, frame)


def _start(library: Any, collect: Any, data_path: str) -> None:
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, data_path.encode(), _DO_NOT_EXIT)
    if rate != ESPEAK_SAMPLE_RATE:
        raise MissingDependencyError(
            f"espeak-ng did not start (it answered {rate}, expected {ESPEAK_SAMPLE_RATE})",
            hint="reinstall it with: pip install --force-reinstall espeakng-loader",
        )
    library.espeak_SetSynthCallback(collect)
    ctypes.CDLL(None).srand(_SEED)
    library.espeak_ng_SetRandSeed(ctypes.c_long(_SEED))


def _set_voice(library: Any, voice: EspeakVoice, espeak_language: str) -> None:
    wanted = f"{espeak_language}+{voice.variant}" if voice.variant else espeak_language
    if library.espeak_SetVoiceByName(wanted.encode()) != 0:
        raise DataError(f"espeak-ng has no voice {wanted!r}", hint="see espeak-ng-data/voices/!v for the variants")
    library.espeak_SetParameter(_RATE, voice.words_per_minute, 0)
    library.espeak_SetParameter(_PITCH, voice.pitch, 0)
    library.espeak_SetParameter(_PITCH_RANGE, voice.pitch_range, 0)


def _unload(library: Any) -> None:
    unload = getattr(_ctypes, "dlclose", None) or _ctypes.FreeLibrary  # type: ignore[attr-defined]
    unload(library._handle)


_copy: tuple[str, str] | None = None


def _private_library() -> tuple[str, str]:
    """Paths of this process's own copy of the library, and of espeak's data."""
    global _copy
    if _copy is None:
        try:
            import espeakng_loader
        except ImportError as error:
            raise MissingDependencyError(
                "speaking needs espeakng-loader, which is not installed", hint="pip install espeakng-loader"
            ) from error
        source = Path(espeakng_loader.get_library_path())
        folder = tempfile.mkdtemp(prefix="myxtts-espeak-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _copy = (str(shutil.copy(source, folder)), espeakng_loader.get_data_path())
    return _copy
