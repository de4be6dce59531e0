"""`/v1/collected`: the pieces of the folder of `--collected`, to hear, correct, keep or drop; saved at once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse

from myxtts.data.collected import CollectedFolder, Piece, opened
from myxtts.errors import DataError, OutputError
from myxtts.serving.errors import RequestError
from myxtts.serving.requests import json_object
from myxtts.serving.uploads import read_body

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

MOST_TEXT = 1000
_one_at_a_time = threading.Lock()
"""The folder is locked against other processes; requests of this one wait for each other."""
_MOST_BYTES = 16 * 1024


def _folder(serving: Serving) -> Path:
    if serving.collected is None:
        raise RequestError(
            "this server shows no collected pieces",
            hint="start it with --collected FOLDER",
            status=404,
            code="collected_not_served",
        )
    return serving.collected


def _no_such_piece() -> RequestError:
    return RequestError("there is no such piece", hint="GET /v1/collected lists them", status=404, code="not_found")


async def listing(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    if serving.collected is None:
        return JSONResponse({"object": "list", "served": False, "data": []})
    pieces = await asyncio.to_thread(_pieces, serving.collected)
    return JSONResponse({"object": "list", "served": True, "data": [asdict(piece) for piece in pieces]})


async def audio(request: Request) -> FileResponse:
    """The sound of a piece that the folder lists: no other file can be asked for."""
    serving: Serving = request.app.state.serving
    folder, own = _folder(serving), request.path_params["id"]
    known = {piece.id for piece in await asyncio.to_thread(_pieces, folder)}
    wav = CollectedFolder(folder).wav(own)
    if own not in known or not await asyncio.to_thread(wav.is_file):
        raise _no_such_piece()
    return FileResponse(wav, media_type="audio/wav", headers={"Cache-Control": "no-store"})


async def review(request: Request) -> JSONResponse:
    """Body: {"text", "kept"}."""
    serving: Serving = request.app.state.serving
    folder = _folder(serving)
    body = json_object(await read_body(request, _MOST_BYTES, serving.limits), hint='send {"text", "kept"}')
    text, kept = body.get("text"), body.get("kept")
    if not isinstance(text, str) or len(text) > MOST_TEXT or not text.isprintable():
        raise RequestError(
            f"text is no line of at most {MOST_TEXT} characters",
            hint="send the words that are spoken",
            param="text",
            code="invalid_value",
        )
    if not isinstance(kept, bool):
        raise RequestError("kept is not true or false", hint="send it as JSON", param="kept", code="invalid_value")
    try:
        piece = await asyncio.to_thread(_review, folder, request.path_params["id"], text, kept=kept)
    except KeyError:
        raise _no_such_piece() from None
    except DataError as error:
        raise RequestError(error.problem, hint=error.hint, param="text", code="invalid_value") from error
    return JSONResponse(asdict(piece))


def _pieces(folder: Path) -> list[Piece]:
    try:
        return CollectedFolder(folder).pieces()
    except (DataError, OSError) as error:
        raise RequestError(
            "the collected folder cannot be read", hint="tell who runs this server", status=503, code="storage_failed"
        ) from error


def _review(folder: Path, own: str, text: str, *, kept: bool) -> Piece:
    _pieces(folder)  # a folder that cannot be read is no fault of the text
    try:
        with _one_at_a_time, opened(folder) as collected:
            return collected.review(own, text, kept=kept)
    except OutputError as error:
        raise RequestError(
            "the collected folder cannot be written now",
            hint="wait until collect or record has ended",
            status=503,
            code="storage_failed",
        ) from error
