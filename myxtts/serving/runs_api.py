"""`/v1/runs`: the runs of `--runs`, followed live by server-sent events, with their samples and reports."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from myxtts.serving.errors import RequestError
from myxtts.serving.runs import RunFolder, RunView

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

POLL_S = 1.0
ALIVE_EVERY = 15
"""Polls without news after which a comment keeps proxies from closing the stream."""
MOST_FOLLOWERS = 32
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def _runs(serving: Serving) -> RunFolder:
    if serving.runs is None:
        raise RequestError(
            "this server shows no runs", hint="start it with --runs FOLDER", status=404, code="runs_not_served"
        )
    return serving.runs


async def listing(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    if serving.runs is None:
        return JSONResponse({"object": "list", "served": False, "data": []})
    return JSONResponse({"object": "list", "served": True, "data": await asyncio.to_thread(serving.runs.listing)})


async def events(request: Request) -> StreamingResponse:
    """Everything that is known of a run now, and again whenever it changes, until the run ends."""
    serving: Serving = request.app.state.serving
    folder = await asyncio.to_thread(_runs(serving).find, request.path_params["id"])
    if serving.followers >= MOST_FOLLOWERS:
        raise RequestError(
            f"{MOST_FOLLOWERS} clients follow runs already",
            hint="close one of them",
            status=429,
            code="rate_limit_exceeded",
            headers={"Retry-After": "5"},
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_follow(serving, RunView(folder)), media_type="text/event-stream", headers=headers)


async def _follow(serving: Serving, view: RunView) -> AsyncIterator[bytes]:
    assert serving.stopping is not None
    serving.followers += 1
    quiet = 0
    try:
        while not serving.stopping.is_set():
            shown = await asyncio.to_thread(view.poll)
            quiet = quiet + 1 if shown is None else 0
            if shown is not None:
                yield f"data: {shown}\n\n".encode()
            elif quiet % ALIVE_EVERY == 0:
                yield b": alive\n\n"
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(serving.stopping.wait(), POLL_S)
    finally:
        serving.followers -= 1


async def sample(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    given = request.path_params
    audio, kind = await asyncio.to_thread(_runs(serving).sample, given["id"], given["number"])
    return Response(audio, media_type=kind, headers={"Cache-Control": "no-store"})


async def report(request: Request) -> HTMLResponse:
    """The run's report as `myxtts monitor --report` writes it; it may run its own script and nothing else."""
    serving: Serving = request.app.state.serving
    text = await asyncio.to_thread(_runs(serving).report, request.path_params["id"])
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in _SCRIPT.findall(text)[-1:]]
    scripts = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; media-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy, "Cache-Control": "no-store"})
