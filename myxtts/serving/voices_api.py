"""`/v1/audio/voices`: list, add with consent, delete, and hear a sample."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from myxtts.errors import ConfigError, MyXTTSError
from myxtts.serving.errors import RequestError, busy
from myxtts.serving.middleware import NOBODY
from myxtts.serving.requests import checked_string
from myxtts.serving.uploads import parse_form, read_body
from myxtts.serving.voices import MOST_NAME
from myxtts.text.languages import find_language

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

_FORM_BYTES = 64 * 1024
"""What a form may have beside its clip."""
_NO_CONSENT = {"", "false", "no", "0", "none", "null", "off"}


async def listing(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    voices = serving.voices.listing(added=request.state.owner != NOBODY)
    return JSONResponse({"object": "list", "voices": voices})


async def add(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    limits = serving.limits
    if serving.uploads >= limits.uploads_at_once:
        raise busy("other clips are being uploaded", hint="try again in 1 s", retry_after_s=1)
    serving.uploads += 1
    try:
        body = await read_body(request, limits.upload_bytes + _FORM_BYTES, limits)
        form = await parse_form(request, body)
        name, consent, language = _name(form), _consent(form), _language(form)
        clip = form.get("audio_sample")
        if not isinstance(clip, UploadFile):
            raise RequestError(
                "audio_sample is missing", hint="send the clip as a file", param="audio_sample", code="missing_file"
            )
        wave = await serving.clips.decode(await clip.read())
    finally:
        serving.uploads -= 1
    try:
        return JSONResponse(await asyncio.to_thread(serving.voices.add, name, consent, wave, language))
    except RequestError:
        raise
    except MyXTTSError as error:
        raise RequestError(
            "the voice cannot be kept", hint="tell who runs this server", status=503, code="storage_failed"
        ) from error


async def delete(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    voice_id = request.path_params["id"]
    await asyncio.to_thread(serving.voices.delete, voice_id)
    return JSONResponse({"id": voice_id, "object": "audio.voice.deleted", "deleted": True})


async def sample(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    wave = await asyncio.to_thread(serving.voices.sample, request.path_params["id"])
    return Response(wave, media_type="audio/wav", headers={"Cache-Control": "no-store"})


def _field(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def _name(form: FormData) -> str:
    name = checked_string("name", _field(form, "name").strip(), MOST_NAME)
    if not name.isprintable():
        raise RequestError(
            "name has characters that cannot be shown", hint="use letters", param="name", code="invalid_value"
        )
    return name


def _consent(form: FormData) -> str:
    consent = _field(form, "consent").strip()
    if consent.lower() in _NO_CONSENT:
        raise RequestError(
            "consent is missing",
            hint="add a voice only with its speaker's consent, and say so in this field",
            param="consent",
            code="consent_required",
        )
    return checked_string("consent", consent, 4096)


def _language(form: FormData) -> str | None:
    language = _field(form, "language").strip()
    if not language:
        return None
    try:
        return find_language(language).code
    except ConfigError as error:
        raise RequestError(
            "language is not one that we speak", hint=error.hint, param="language", code="invalid_value"
        ) from error
