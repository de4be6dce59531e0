"""The voices that requests name: speakers of the open voice, and clips that clients have added.

An added voice is a folder of its own under a random id, with the decoded clip and what was said about it; nothing on
disk has a name that a client chose. Latents are made when they are needed, so that added voices outlive new weights.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.audio.io import read_audio, to_int16, write_audio
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import DataError
from myxtts.files import writing
from myxtts.serving.errors import RequestError
from myxtts.synthesis.references import Speaker

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse", "marin", "cedar",
)  # fmt: skip
"""Names that programs have written into them; each means one of the built-in speakers, in their order."""
MOST_NAME = 64
_ID = re.compile(r"voice_[0-9a-f]{24}")
_ABOUT, _CLIP = "voice.json", "clip.wav"


@dataclass(frozen=True, kw_only=True)
class AddedVoice:
    """What is kept of an added voice beside its clip."""

    id: str
    name: str
    consent: str
    """What the client sent as consent."""
    created_at: int
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """How a voice is spoken with: by a speaker's name, or by a clip."""

    speaker: str | None = None
    reference: NDArray[np.float32] | None = None
    language: str | None = None


class VoiceLibrary:
    """Reads the folder once; this process is the only one that writes it."""

    def __init__(self, speakers: Mapping[str, Speaker], folder: Path, most: int) -> None:
        self._speakers, self._folder, self._most = speakers, folder, most
        self._added = {voice.id: voice for voice in _stored(folder)}

    def listing(self, *, added: bool = True) -> list[dict[str, Any]]:
        """Speakers of the voice first, then added voices by age; neither consent nor path."""
        built_in = [
            {"id": one.name, "name": one.name, "language": one.language or None, "kind": "built-in", "created_at": 0}
            for one in self._speakers.values()
        ]
        clips = [
            {"id": one.id, "name": one.name, "language": one.language, "kind": "added", "created_at": one.created_at}
            for one in sorted(self._added.values(), key=lambda voice: voice.created_at)
        ]
        return [{"object": "audio.voice", **voice} for voice in built_in + (clips if added else [])]

    def choose(self, name: str) -> Chosen:
        """By id, by name, or by one of OpenAI's names; raises `RequestError`."""
        if name in self._speakers:
            return Chosen(speaker=name, language=self._speakers[name].language or None)
        added = self._find(name)
        if added is not None:
            return Chosen(reference=self._read(added.id), language=added.language)
        if name in OPENAI_VOICES and self._speakers:
            speaker = list(self._speakers.values())[OPENAI_VOICES.index(name) % len(self._speakers)]
            return Chosen(speaker=speaker.name, language=speaker.language or None)
        raise RequestError(
            "there is no such voice",
            hint="GET /v1/audio/voices lists them" if self.listing() else "add one with POST /v1/audio/voices",
            param="voice",
            code="voice_not_found",
        )

    def add(self, name: str, consent: str, wave: NDArray[np.float32], language: str | None) -> dict[str, Any]:
        """Keep a clip of `SAMPLE_RATE` samples a second; raises `RequestError` where there are too many."""
        if len(self._added) >= self._most:
            raise RequestError(f"there are {self._most} added voices", hint="delete one first", code="too_many_voices")
        if name in self._speakers or any(voice.name == name for voice in self._added.values()):
            raise RequestError("a voice has that name", hint="choose another one", param="name", code="name_taken")
        voice = AddedVoice(
            id=f"voice_{secrets.token_hex(12)}",
            name=name,
            consent=consent,
            created_at=int(time.time()),
            language=language,
        )
        target = self._folder / voice.id
        part = target.with_name(f".{voice.id}.part")
        with writing("the voice"):
            try:
                part.mkdir(parents=True, mode=0o700)
                write_audio(part / _CLIP, wave, SAMPLE_RATE)
                (part / _ABOUT).write_text(json.dumps(asdict(voice), ensure_ascii=False), encoding="utf-8")
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self._added[voice.id] = voice
        return next(one for one in self.listing() if one["id"] == voice.id)

    def delete(self, voice_id: str) -> None:
        if voice_id in self._speakers:
            raise RequestError(
                "a built-in speaker cannot be deleted", hint="only added voices can", param="id", code="built_in_voice"
            )
        if voice_id not in self._added:
            raise _unknown()
        del self._added[voice_id]
        shutil.rmtree(self._folder / voice_id, ignore_errors=True)

    def sample(self, voice_id: str) -> bytes:
        """A few seconds of a voice as it was recorded, as WAV."""
        if voice_id in self._speakers:
            wave = self._speakers[voice_id].wave
        elif voice_id in self._added:
            wave = to_int16(self._read(voice_id))
        else:
            raise _unknown()
        file = io.BytesIO()
        soundfile.write(file, wave, SAMPLE_RATE, format="WAV", subtype="PCM_16")
        return file.getvalue()

    def _find(self, name: str) -> AddedVoice | None:
        return self._added.get(name) or next((voice for voice in self._added.values() if voice.name == name), None)

    def _read(self, voice_id: str) -> NDArray[np.float32]:
        try:
            return read_audio(self._folder / voice_id / _CLIP, SAMPLE_RATE)
        except DataError as error:
            raise RequestError(
                "the clip of this voice can no longer be read",
                hint="delete the voice and add it again",
                status=422,
                param="voice",
                code="voice_damaged",
            ) from error


def _unknown() -> RequestError:
    return RequestError(
        "there is no such voice", hint="GET /v1/audio/voices lists them", status=404, param="id", code="voice_not_found"
    )


def _stored(folder: Path) -> list[AddedVoice]:
    """Those that can be read; what else is in the folder is left alone."""
    found = []
    for path in sorted(folder.glob(f"voice_*/{_ABOUT}")):
        try:
            voice = AddedVoice(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if voice.id == path.parent.name and _ID.fullmatch(voice.id):
            found.append(voice)
    return found
