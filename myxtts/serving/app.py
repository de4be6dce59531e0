"""The application: routes over one open voice. Knows neither sockets nor signals, which are the server's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from myxtts import __version__
from myxtts.serving import collect_api, page, runs_api, speech_api, voices_api
from myxtts.serving.admission import Admission
from myxtts.serving.engine import Engine
from myxtts.serving.errors import RequestError, error_body
from myxtts.serving.keys import ApiKeys
from myxtts.serving.limits import Limits
from myxtts.serving.metrics import Metrics
from myxtts.serving.middleware import Answering, Guard
from myxtts.serving.openapi import document
from myxtts.serving.requests import OPENAI_MODELS
from myxtts.serving.runs import RunFolder
from myxtts.serving.speech_api import KeptTimings, SpeechEndpoint
from myxtts.serving.uploads import ClipDecoder
from myxtts.serving.voices import VoiceLibrary

_Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(kw_only=True)
class Serving:
    """What all routes share."""

    engine: Engine
    voices: VoiceLibrary
    model_name: str
    limits: Limits = field(default_factory=Limits)
    keys: ApiKeys | None = None
    runs: RunFolder | None = None
    collected: Path | None = None
    """A folder of `myxtts collect`, whose pieces the page shows and changes."""
    loopback: bool = True
    """Whether only this machine can reach the server."""
    origins: Sequence[str] = ()
    """Other sites whose pages may use the API."""
    log_texts: bool = False
    created_at: int = 0

    def __post_init__(self) -> None:
        self.admission = Admission(self.limits.at_once, self.limits.waiting)
        self.metrics = Metrics()
        self.timings = KeptTimings()
        self.clips = ClipDecoder(self.limits)
        self.uploads = self.followers = 0
        self.draining = False
        self.stopping: asyncio.Event | None = None

    def drain(self) -> None:
        """From now on new work is refused, and followers of runs are sent away; what has begun goes on."""
        self.draining = True
        if self.stopping is not None:
            self.stopping.set()


def build_app(serving: Serving) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        serving.stopping = asyncio.Event()
        await asyncio.to_thread(serving.clips.prepare)
        yield
        serving.engine.close()

    middleware = [Middleware(Answering, metrics=serving.metrics)]
    if serving.origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(serving.origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["Authorization", "Content-Type"],
                expose_headers=["X-Request-Id", "X-Speech-Id", "X-Language", "Retry-After"],
            )
        )
    app = Starlette(
        routes=routes(serving),
        middleware=middleware,
        exception_handlers={RequestError: _refused, HTTPException: _http_error, Exception: _fault},
        lifespan=lifespan,
    )
    app.state.serving = serving
    return app


def routes(serving: Serving) -> list[Route]:
    guard = [Middleware(Guard, serving=serving)]

    def at(path: str, **endpoints: _Endpoint) -> Route:
        """One route for all methods of a path, so that a wrong method is told every right one."""

        async def by_method(request: Request) -> Response:
            return await endpoints["GET" if request.method == "HEAD" else request.method](request)

        return Route(path, by_method, methods=list(endpoints), middleware=guard)

    return [
        Route("/v1/audio/speech", SpeechEndpoint(serving), methods=["POST"], middleware=guard),
        at("/v1/audio/speech/{id}/timings", GET=speech_api.timings),
        at("/v1/audio/voices", GET=voices_api.listing, POST=voices_api.add),
        at("/v1/audio/voices/{id}", DELETE=voices_api.delete),
        at("/v1/audio/voices/{id}/sample", GET=voices_api.sample),
        at("/v1/audio/models", GET=audio_models),
        at("/v1/models", GET=models),
        at("/v1/models/{id}", GET=model),
        at("/v1/runs", GET=runs_api.listing),
        at("/v1/runs/{id}/events", GET=runs_api.events),
        at("/v1/runs/{id}/samples/{number}", GET=runs_api.sample),
        at("/v1/runs/{id}/report", GET=runs_api.report),
        at("/v1/collected", GET=collect_api.listing),
        at("/v1/collected/{id}", POST=collect_api.review),
        at("/v1/collected/{id}/audio", GET=collect_api.audio),
        at("/health", GET=health),
        at("/metrics", GET=metrics),
        at("/openapi.json", GET=openapi),
        at("/", GET=page.index),
        at("/static/{name}", GET=page.static),
    ]


async def health(request: Request) -> JSONResponse:
    serving: Serving = request.app.state.serving
    status = "draining" if serving.draining else "ok"
    health = {"status": status, "version": __version__, "model": serving.model_name, "keys": serving.keys is not None}
    return JSONResponse(health, status_code=503 if serving.draining else 200)


async def metrics(request: Request) -> PlainTextResponse:
    serving: Serving = request.app.state.serving
    text = serving.metrics.text(active=serving.admission.active, waiting=serving.admission.waiting)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(document(__version__))


def _models(serving: Serving) -> list[dict[str, object]]:
    names = dict.fromkeys((serving.model_name, *OPENAI_MODELS))
    return [{"id": name, "object": "model", "created": serving.created_at, "owned_by": "myxtts"} for name in names]


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": _models(request.app.state.serving)})


async def audio_models(request: Request) -> JSONResponse:
    """The same list as Open WebUI asks for it."""
    return JSONResponse({"models": _models(request.app.state.serving)})


async def model(request: Request) -> JSONResponse:
    for one in _models(request.app.state.serving):
        if one["id"] == request.path_params["id"]:
            return JSONResponse(one)
    raise RequestError(
        "there is no such model", hint="GET /v1/models lists them", status=404, param="model", code="model_not_found"
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: no such path, another method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    problem = error.detail
    if error.status_code == 404:
        problem = "there is no such path: the API is under /v1, GET /openapi.json lists it"
    body = error_body(error.status_code, problem, None, code)
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours: its traceback is in the log, and no word of it in the answer."""
    return JSONResponse(error_body(500, "the server failed at this request", None, "internal_error"), status_code=500)
