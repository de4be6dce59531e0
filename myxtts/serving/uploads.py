"""Bodies of requests: read with limits on size and slowness, and uploaded clips decoded in a process of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from myxtts.serving.decode_worker import REFUSED
from myxtts.serving.errors import RequestError
from myxtts.serving.limits import Limits

DECODING_S = 8.0


class _InMemory(MultiPartParser):
    """Writes no upload to disk: the whole body is in memory already."""

    spool_max_size = 2**30


async def read_body(request: Request, most_bytes: int, limits: Limits) -> bytes:
    """The whole body; raises `RequestError`: 413 for one that is too large, 408 for one that comes too slowly."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 18:
        raise RequestError("Content-Length is no number of bytes", hint="send the size of the body")
    if int(announced) > most_bytes:
        raise _too_large(most_bytes)
    loop = asyncio.get_running_loop()
    began, body = loop.time(), bytearray()
    stream = request.stream().__aiter__()
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
            raise _too_large(most_bytes)


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
    """Decodes clips, each in a process that was started before it was needed: starting one takes half a second."""

    def __init__(self, limits: Limits, ready: int = 2) -> None:
        self._limits, self._wanted = limits, ready
        self._ready: list[asyncio.Task[asyncio.subprocess.Process]] = []

    def prepare(self) -> None:
        """Start what is missing of the processes that wait."""
        while len(self._ready) < self._wanted:
            self._ready.append(asyncio.ensure_future(self._start()))

    async def close(self) -> None:
        ready, self._ready = self._ready, []
        for starting in ready:
            await _end(await starting)

    async def decode(self, data: bytes) -> NDArray[np.float32]:
        """Mono samples at 22,050 a second, without silence at the ends; raises `RequestError` for what is no clip."""
        self.prepare()
        process = await self._ready.pop(0)
        self.prepare()
        try:
            made, said = await asyncio.wait_for(process.communicate(data), DECODING_S)
        except asyncio.TimeoutError:
            raise _no_clip("it takes too long to decode") from None
        finally:
            await _end(process)
        if process.returncode == REFUSED:
            raise _no_clip(said.decode("utf-8", "replace").splitlines()[0])
        if process.returncode != 0:
            raise _no_clip("the decoder gave up on it")
        return np.frombuffer(made, "<f4").astype(np.float32)

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "myxtts.serving.decode_worker",
            str(self._limits.clip_seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _no_clip(reason: str) -> RequestError:
    return RequestError(
        f"audio_sample cannot be used: {reason}",
        hint="send 3 to 30 seconds of clean speech as wav, flac, ogg or mp3",
        status=422,
        param="audio_sample",
        code="invalid_audio",
    )
