"""`POST /v1/audio/speech`: waits for a place, and sends audio while it is made, chunked or as server-sent events.

Nothing is sent before the first audio is there, so that whatever fails until then is an error with its status. A client
that hangs up, waits too long or stops reading is left, and its work with it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from myxtts.errors import MyXTTSError
from myxtts.serving.encoding import MEDIA_TYPES, RATE, AudioEncoder
from myxtts.serving.errors import RequestError
from myxtts.serving.requests import OPENAI_MODELS, SpeechRequest, parse_speech
from myxtts.serving.uploads import read_body
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.speech import SpokenPiece
from myxtts.synthesis.speech_model import CODE_SECONDS
from myxtts.synthesis.timings import WordTiming
from myxtts.text.languages import guessed_language

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

logger = logging.getLogger(__name__)

KEPT_TIMINGS = 256


@dataclass
class Spoken:
    """One speech as far as it was made; its word timings can be asked for afterwards."""

    owner: str
    id: str = field(default_factory=lambda: f"speech_{secrets.token_hex(12)}")
    words: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    def as_json(self) -> dict[str, Any]:
        seconds = round(self.seconds, 3)
        return {"id": self.id, "words": self.words, "seconds": seconds, "complete": self.complete}


class KeptTimings:
    """Timings of the last speeches; of more, the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Spoken] = OrderedDict()

    def keep(self, spoken: Spoken) -> None:
        self._kept[spoken.id] = spoken
        if len(self._kept) > KEPT_TIMINGS:
            self._kept.popitem(last=False)

    def find(self, speech_id: str, owner: str) -> Spoken:
        """Those of the same key only."""
        spoken = self._kept.get(speech_id)
        if spoken is None or spoken.owner != owner:
            raise RequestError(
                "there is no such speech",
                hint=f"use X-Speech-Id of one of the last {KEPT_TIMINGS} answers",
                status=404,
                param="id",
                code="speech_not_found",
            )
        return spoken


def speaking_options(serving: Serving, asked: SpeechRequest) -> SpeakingOptions:
    """The request as the synthesizer takes it; raises `RequestError` for a model or voice that is not there."""
    if asked.model not in (serving.model_name, *OPENAI_MODELS):
        raise RequestError(
            "there is no such model",
            hint="GET /v1/models lists them",
            status=404,
            param="model",
            code="model_not_found",
        )
    chosen = serving.voices.choose(asked.voice)
    learnt = serving.engine.synthesizer.voice.manifest.languages
    language = asked.language or guessed_language(asked.text, chosen.language, learnt)
    return SpeakingOptions(
        speaker=chosen.speaker,
        reference=chosen.reference,
        language=language,
        seed=asked.seed,
        speed=asked.speed,
        sampling_changes=asked.sampling_changes,
    )


class SpeechEndpoint:
    """The route as an ASGI application: it watches for hang-ups while it waits, generates and sends."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, limits = Request(scope, receive), self._serving.limits
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError("the body is not application/json", hint="set Content-Type", param=None)
        asked = parse_speech(await read_body(request, limits.json_bytes, limits))
        if self._serving.log_texts:
            logger.info("speech in %r: %r", asked.voice, asked.text)
        answer = _Answer(self._serving, asked, scope["state"].get("owner", ""), send)
        working = asyncio.ensure_future(answer.give())
        gone = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait({working, gone}, timeout=limits.deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._serving.metrics.hung_up += gone.done()
                working.cancel()
                await asyncio.wait({working})
                if not gone.done():
                    await answer.fail(
                        RequestError(
                            f"the speech was not ready in {limits.deadline_s:g} s",
                            hint="send less text, or try again when the server is less busy",
                            status=503,
                            code="deadline_exceeded",
                            headers={"Retry-After": str(self._serving.admission.retry_after_s)},
                        )
                    )
                return
            working.result()
        finally:
            for task in (working, gone):
                task.cancel()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Answer:
    """The answer to one request."""

    def __init__(self, serving: Serving, asked: SpeechRequest, owner: str, send: Send) -> None:
        self._serving, self._asked, self._send = serving, asked, send
        self._spoken = Spoken(owner)
        self._began = time.monotonic()
        self.started = False

    async def give(self) -> None:
        serving, limits = self._serving, self._serving.limits
        async with serving.admission.place(self._spoken.owner, limits.wait_s):
            options = await asyncio.to_thread(speaking_options, serving, self._asked)
            async with serving.engine.speak(self._asked.text, options) as pieces:
                try:
                    await self._deliver(pieces, serving.engine.synthesizer.language_of(self._asked.text, options))
                except MyXTTSError as error:
                    await self.fail(error if isinstance(error, RequestError) else _cannot_be_spoken(error))

    async def _deliver(self, pieces: AsyncIterator[SpokenPiece], language: str) -> None:
        encoder = AudioEncoder(self._asked.response_format, self._serving.engine.sample_rate)
        encode = self._event if self._asked.stream_format == "sse" else _plain
        async for piece in pieces:
            if not self.started and len(piece.wave) == 0:
                continue
            audio = encoder.add(piece.wave)
            self._take_in(piece)
            if not self.started:
                self._serving.metrics.first_audio.add(time.monotonic() - self._began)
                self._serving.timings.keep(self._spoken)
                await self._start(language)
            if ready := encode(audio) + self._words_event(piece.words):
                await self._body(ready)
        self._spoken.complete = True
        await self._body(encode(encoder.finish()) + self._done_event(language), more=False)

    def _take_in(self, piece: SpokenPiece) -> None:
        seconds = len(piece.wave) / self._serving.engine.sample_rate
        self._spoken.seconds += seconds
        self._serving.metrics.audio_s += seconds
        self._spoken.words += map(_word, piece.words)

    async def _start(self, language: str) -> None:
        asked = self._asked
        sse = asked.stream_format == "sse"
        headers = {
            "Content-Type": "text/event-stream; charset=utf-8" if sse else MEDIA_TYPES[asked.response_format],
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Speech-Id": self._spoken.id,
            "X-Sample-Rate": str(RATE),
            "X-Language": language,
        }
        if asked.ignored:
            headers["X-Ignored-Parameters"] = ", ".join(asked.ignored)
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def fail(self, error: RequestError) -> None:
        """An answer of its own before the start; later an event where there are events, else no proper end."""
        if not self.started:
            raise error
        logger.warning("a speech failed after it had begun: %s", error.problem)
        if self._asked.stream_format == "sse":
            await self._body(_sse({"type": "error", **error.body}), more=False)

    def _event(self, audio: bytes) -> bytes:
        if not audio:
            return b""
        return _sse({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")})

    def _words_event(self, words: tuple[WordTiming, ...]) -> bytes:
        if self._asked.stream_format != "sse" or not self._asked.timestamps or not words:
            return b""
        return _sse({"type": "speech.audio.words", "words": [_word(word) for word in words]})

    def _done_event(self, language: str) -> bytes:
        if self._asked.stream_format != "sse":
            return b""
        tokenizer = self._serving.engine.synthesizer.voice.tokenizer
        taken = len(tokenizer.encode(self._asked.text, language))
        made = round(self._spoken.seconds / CODE_SECONDS)
        usage = {"input_tokens": taken, "output_tokens": made, "total_tokens": taken + made}
        return _sse({"type": "speech.audio.done", "usage": usage})


def _plain(audio: bytes) -> bytes:
    return audio


def _sse(event: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _word(timing: WordTiming) -> dict[str, Any]:
    return {"word": timing.word, "start": timing.start_s, "end": timing.end_s, "source": timing.source}


def _cannot_be_spoken(error: MyXTTSError) -> RequestError:
    return RequestError(
        error.problem, hint="send words in the language of the text", status=422, param="input", code="cannot_be_spoken"
    )


async def timings(request: Request) -> JSONResponse:
    """`GET /v1/audio/speech/{id}/timings`."""
    serving: Serving = request.app.state.serving
    return JSONResponse(serving.timings.find(request.path_params["id"], request.state.owner).as_json())
