"""The body of a speech request: parsed strictly, every field checked, before anything is done for it.

Fields that nobody knows are not refused, since clients of other servers send theirs; they are named in the answer's
`X-Ignored-Parameters`, as `instructions` is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from myxtts.errors import ConfigError
from myxtts.serving.encoding import MEDIA_TYPES
from myxtts.serving.errors import RequestError
from myxtts.text.languages import find_language

MOST_CHARACTERS = 4096
STREAM_FORMATS = ("audio", "sse")
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that programs have written into them; here they mean the one voice that is served."""
MOST_SEED = 2**31 - 1
RANGES = {"speed": (0.25, 4.0), "temperature": (0.0, 10.0), "guidance": (1.0, 10.0)}
_KNOWN = {
    "model", "input", "voice", "response_format", "stream_format", "language", "seed", "timestamps", *RANGES,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeechRequest:
    """What is to be said, and how. None is the voice's own way."""

    model: str
    text: str
    voice: str
    response_format: str = "mp3"
    stream_format: str = "audio"
    speed: float = 1.0
    language: str | None = None
    seed: int = 0
    temperature: float | None = None
    guidance: float | None = None
    timestamps: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def sampling_changes(self) -> dict[str, float]:
        chosen = {"temperature": self.temperature, "guidance": self.guidance}
        return {name: value for name, value in chosen.items() if value is not None}


def parse_speech(body: bytes) -> SpeechRequest:
    """Raises `RequestError` that names the first field that is wrong."""
    fields = json_object(body)
    given = {name: value for name, value in fields.items() if value is not None}
    text = _string(given, "input", most=MOST_CHARACTERS)
    named_format = _choice(given, "response_format", tuple(MEDIA_TYPES), "mp3")
    return SpeechRequest(
        model=_string(given, "model", most=256),
        text=text,
        voice=_voice(given),
        response_format=named_format,
        stream_format=_choice(given, "stream_format", STREAM_FORMATS, "audio"),
        speed=_number(given, "speed") or 1.0,
        language=_language(given),
        seed=_seed(given),
        temperature=_number(given, "temperature"),
        guidance=_number(given, "guidance"),
        timestamps=_flag(given, "timestamps"),
        ignored=tuple(sorted(name for name in given if name not in _KNOWN and name.isascii() and name.isidentifier())),
    )


def json_object(body: bytes, *, hint: str = 'send {"model", "input", "voice"}') -> Mapping[str, Any]:
    """The fields of a body; raises `RequestError` for one that is no JSON object."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON number")

    try:
        parsed = json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise RequestError(f"the body is not JSON: {reason}", hint=hint) from error
    if not isinstance(parsed, dict):
        raise RequestError("the body is not a JSON object", hint=hint)
    return parsed


def _missing(name: str) -> RequestError:
    return RequestError(f"{name} is missing", hint="it is required", param=name, code="missing_required_parameter")


def _wrong(name: str, what: str, hint: str) -> RequestError:
    return RequestError(f"{name} {what}", hint=hint, param=name, code="invalid_value")


def _string(given: Mapping[str, Any], name: str, *, most: int) -> str:
    value = given.get(name)
    if value is None:
        raise _missing(name)
    return checked_string(name, value, most)


def checked_string(name: str, value: object, most: int) -> str:
    """A string of 1 to `most` characters that can be written as UTF-8."""
    if not isinstance(value, str):
        raise _wrong(name, "is not a string", "send a string")
    if not 1 <= len(value) <= most:
        code = "string_above_max_length" if value else "empty_string"
        raise RequestError(
            f"{name} has {len(value)} characters", hint=f"it must have 1 to {most}", param=name, code=code
        )
    if any("\ud800" <= sign <= "\udfff" for sign in value) or "\0" in value:
        raise _wrong(name, "has characters that are none", "send valid Unicode without NUL")
    return value


def _voice(given: Mapping[str, Any]) -> str:
    voice = given.get("voice")
    if isinstance(voice, dict):
        if "id" not in voice:
            raise _wrong("voice", "has no id", 'send its name, or {"id": "..."}')
        voice = voice["id"]
    elif voice is not None and not isinstance(voice, str):
        raise _wrong("voice", "is neither a string nor an object", 'send its name, or {"id": "..."}')
    if voice is None:
        raise _missing("voice")
    return checked_string("voice", voice, 256)


def _choice(given: Mapping[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    value = given.get(name, default)
    if isinstance(value, str) and value in choices:
        return value
    if name == "response_format" and value == "aac":
        raise _wrong(name, "aac is not available here", f"choose one of: {', '.join(choices)}")
    raise _wrong(name, "is not one of the choices", f"choose one of: {', '.join(choices)}")


def _number(given: Mapping[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    low, high = RANGES[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _wrong(name, "is not a number in its range", f"choose from {low:g} to {high:g}")
    return float(value)


def _seed(given: Mapping[str, Any]) -> int:
    value = given.get("seed", 0)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is a whole number in JSON
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_SEED:
        raise _wrong("seed", "is not a whole number in its range", f"choose from 0 to {MOST_SEED}")
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "is not true or false", "send true or false")
    return value


def _language(given: Mapping[str, Any]) -> str | None:
    value = given.get("language")
    if value is None:
        return None
    try:
        return find_language(checked_string("language", value, 32)).code
    except ConfigError as error:
        raise _wrong("language", "is not one that we speak", error.hint) from error
