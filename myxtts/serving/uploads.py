"""Bodies of requests: read with limits on size and slowness, and uploaded clips decoded in a process of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from myxtts.serving import decode_worker
from myxtts.serving.errors import RequestError
from myxtts.serving.limits import Limits

DECODING_S = 8.0
DISCARDED_S = 1.0
"""For the rest of a body that is too large; answers come within two seconds whatever is sent."""
DISCARDED_BYTES = 8 * 2**20


class _InMemory(MultiPartParser):
    """Writes no upload to disk: the whole body is in memory already."""

    spool_max_size = 2**30


async def read_body(request: Request, most_bytes: int, limits: Limits) -> bytes:
    """The whole body; raises `RequestError`: 413 for one that is too large, 408 for one that comes too slowly."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 18:
        raise RequestError("Content-Length is no number of bytes", hint="send the size of the body")
    stream = request.stream().__aiter__()
    if int(announced) > most_bytes:
        await _discard(stream)
        raise _too_large(most_bytes)
    loop = asyncio.get_running_loop()
    began, body = loop.time(), bytearray()
    while True:
        allowed_s = limits.slow_s + len(body) / limits.slow_bytes_per_s - (loop.time() - began)
        try:
            body += await asyncio.wait_for(stream.__anext__(), max(0.0, min(limits.slow_s, allowed_s)))
        except StopAsyncIteration:
            return bytes(body)
        except asyncio.TimeoutError:
            raise RequestError(
                f"the body comes too slowly ({len(body)} bytes so far)",
                hint=f"send at least {limits.slow_bytes_per_s} bytes a second",
                status=408,
                code="request_timeout",
                headers={"Connection": "close"},
            ) from None
        except ClientDisconnect:
            raise asyncio.CancelledError from None
        if len(body) > most_bytes:
            await _discard(stream)
            raise _too_large(most_bytes)


async def _discard(stream: AsyncIterator[bytes]) -> None:
    """Read on for a moment: a connection that is closed with bytes unread is reset, and its client loses the answer."""

    async def read_on() -> None:
        left = DISCARDED_BYTES
        async for piece in stream:
            left -= len(piece)
            if left <= 0:
                return

    with suppress(asyncio.TimeoutError, ClientDisconnect):
        await asyncio.wait_for(read_on(), DISCARDED_S)


def _too_large(most_bytes: int) -> RequestError:
    return RequestError(
        "the body is too large",
        hint=f"send at most {most_bytes} bytes",
        status=413,
        code="request_too_large",
        headers={"Connection": "close"},
    )


async def parse_form(request: Request, body: bytes) -> FormData:
    """The fields of a multipart body."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError("the body is not multipart/form-data", hint="send name, consent and audio_sample as a form")

    async def whole() -> AsyncGenerator[bytes, None]:
        yield body
        yield b""

    parser = _InMemory(request.headers, whole(), max_files=1, max_fields=8, max_part_size=64 * 1024)
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError, AssertionError) as error:
        raise RequestError("the form cannot be read", hint="send name, consent and audio_sample as a form") from error


class ClipDecoder:
    """Decodes clips, each in a process of its own, which a process that has the decoders loaded forks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([decode_worker.__name__])

    def prepare(self) -> None:
        """Start the process that forks the others and wait for it, so that the first clip does not."""
        self._answer(b"")

    async def decode(self, data: bytes) -> NDArray[np.float32]:
        """Mono samples at 22,050 a second, without silence at the ends; raises `RequestError` for what is no clip."""
        answer = await asyncio.to_thread(self._answer, data)
        if answer.startswith(decode_worker.CLIP):
            return np.frombuffer(answer[len(decode_worker.CLIP) :], "<f4").astype(np.float32)
        raise _no_clip(answer.removeprefix(decode_worker.REFUSED).decode("utf-8", "replace").splitlines()[0])

    def _answer(self, data: bytes) -> bytes:
        ours, theirs = self._processes.Pipe()
        process = self._processes.Process(
            target=decode_worker.decode_one, args=(theirs, self._limits.clip_seconds), daemon=True
        )
        process.start()
        theirs.close()
        try:
            ours.send_bytes(data)
            return ours.recv_bytes() if ours.poll(DECODING_S) else b"it takes too long to decode"
        except (EOFError, OSError):
            return b"the decoder gave up on it"
        finally:
            ours.close()
            process.kill()
            process.join()


def _no_clip(reason: str) -> RequestError:
    return RequestError(
        f"audio_sample cannot be used: {reason}",
        hint="send 3 to 30 seconds of clean speech as wav, flac, ogg or mp3",
        status=422,
        param="audio_sample",
        code="invalid_audio",
    )
