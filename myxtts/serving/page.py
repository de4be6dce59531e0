"""The page: its own files from the package, with a strict content policy. Reads each once, and knows no other name."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from myxtts.serving.middleware import PAGE_POLICY

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@lru_cache(maxsize=1)
def _files() -> dict[str, bytes]:
    folder = resources.files("myxtts.serving").joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rsplit(".", 1)[-1] in _TYPES}


async def index(request: Request) -> Response:
    return _answer(request, "index.html")


async def static(request: Request) -> Response:
    return _answer(request, request.path_params["name"])


def _answer(request: Request, name: str) -> Response:
    content = _files().get(name)
    if content is None:
        raise HTTPException(404)
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[name.rsplit(".", 1)[-1]] + "; charset=utf-8", headers=headers)
