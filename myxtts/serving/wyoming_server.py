"""The Wyoming protocol, which Home Assistant speaks: describe, synthesize whole texts or texts that still grow, and
audio in chunks as it is made. It has no keys; requests wait in the same queue as those of the API."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import soxr
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from myxtts import __version__
from myxtts.audio.io import to_int16
from myxtts.errors import MyXTTSError
from myxtts.serving.encoding import RATE
from myxtts.serving.requests import MOST_CHARACTERS, SpeechRequest, checked_string
from myxtts.serving.speech_api import speaking_options
from myxtts.text.languages import CODES

if TYPE_CHECKING:
    from myxtts.serving.app import Serving

logger = logging.getLogger(__name__)

OWNER = "wyoming"
SENTENCE_ENDS = ".!?؟。！？\n"
_BY = Attribution(name="MyXTTS", url="")
_PCM = {"rate": RATE, "width": 2, "channels": 1}
_BLOCK_BYTES = 8192
MOST_EVENT_BYTES = 2**17
LOOK_S = 0.25
"""Between two looks at whether the client is still there."""


async def start_wyoming(serving: Serving, host: str, port: int) -> int:
    """Listen from now on, as long as the event loop runs; returns the port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            await WyomingHandler(serving, BoundedReader(reader), writer).run()

    server = await asyncio.start_server(accept, host, port, limit=MOST_EVENT_BYTES)
    return int(server.sockets[0].getsockname()[1])


class BoundedReader(asyncio.StreamReader):
    """Reads from a connection, but no event that says to be larger than a text can be."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._source = reader

    async def readline(self) -> bytes:
        return await self._source.readline()

    async def readexactly(self, n: int) -> bytes:
        if not 0 <= n <= MOST_EVENT_BYTES:
            raise ValueError(f"an event of {n} bytes")
        return await self._source.readexactly(n)

    def at_eof(self) -> bool:
        return self._source.at_eof()

    def feed_eof(self) -> None:
        self._source.feed_eof()


def describe(serving: Serving) -> Info:
    learnt = list(serving.engine.synthesizer.voice.manifest.languages) or list(CODES)
    voices = [
        TtsVoice(
            name=voice["id"],
            description=voice["name"],
            attribution=_BY,
            installed=True,
            version=__version__,
            languages=[voice["language"], *(code for code in learnt if code != voice["language"])]
            if voice["language"]
            else learnt,
        )
        for voice in serving.voices.listing()
    ]
    program = TtsProgram(
        name="myxtts",
        description="MyXTTS",
        attribution=_BY,
        installed=True,
        version=__version__,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


class WyomingHandler(AsyncEventHandler):
    """One connection."""

    def __init__(self, serving: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._serving = serving
        self._text = ""
        self._voice: SynthesizeVoice | None = None
        self._growing = False

    async def handle_event(self, event: Event) -> bool:
        """Answer one event; an event that cannot be answered is an error to the client, and the connection stays."""
        try:
            await self._handle(event)
        except MyXTTSError as error:
            await self.write_event(Error(text=error.problem, code=type(error).__name__).event())
        except (KeyError, TypeError, ValueError, AttributeError):
            await self.write_event(Error(text=f"the event {event.type!r} is malformed", code="malformed").event())
        return True

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write_event(describe(self._serving).event())
        elif Synthesize.is_type(event.type):
            if self._growing:
                return  # the whole text again, for servers that do not stream
            asked = Synthesize.from_event(event)
            await self._begin()
            await self._speak_unless_gone(asked.text, asked.voice)
            await self._end()
        elif SynthesizeStart.is_type(event.type):
            self._voice, self._text, self._growing = SynthesizeStart.from_event(event).voice, "", True
            await self._begin()
        elif SynthesizeChunk.is_type(event.type) and self._growing:
            self._text += SynthesizeChunk.from_event(event).text
            await self._speak_whole_sentences()
        elif SynthesizeStop.is_type(event.type) and self._growing:
            self._growing = False
            if self._text.strip():
                await self._speak_unless_gone(self._text, self._voice)
            self._text = ""
            await self._end()
            await self.write_event(SynthesizeStopped().event())

    async def _speak_whole_sentences(self) -> None:
        end = max(self._text.rfind(sign) for sign in SENTENCE_ENDS) + 1
        if end == 0 and len(self._text) < MOST_CHARACTERS:
            return
        ready, self._text = (self._text[:end], self._text[end:]) if end else (self._text, "")
        if any(sign.isalnum() for sign in ready):
            await self._speak_unless_gone(ready, self._voice)

    async def _begin(self) -> None:
        await self.write_event(AudioStart(**_PCM).event())

    async def _end(self) -> None:
        await self.write_event(AudioStop().event())

    async def _speak_unless_gone(self, text: str, voice: SynthesizeVoice | None) -> None:
        """`_speak`, until the client hangs up or the deadline is over."""
        speaking = asyncio.ensure_future(self._speak(text, voice))
        loop = asyncio.get_running_loop()
        until = loop.time() + self._serving.limits.deadline_s
        try:
            while not speaking.done():
                if self.reader.at_eof() or self.writer.is_closing() or loop.time() > until:
                    raise ConnectionResetError("the client has gone, or waited too long")
                await asyncio.wait({speaking}, timeout=LOOK_S)
            speaking.result()
        finally:
            speaking.cancel()
            await asyncio.wait({speaking})

    async def _speak(self, text: str, voice: SynthesizeVoice | None) -> None:
        serving = self._serving
        request = SpeechRequest(
            model=serving.model_name,
            text=checked_string("text", text, MOST_CHARACTERS),
            voice=(voice and voice.name) or self._first_voice(voice.language if voice else None),
            language=None,
        )
        async with serving.admission.place(OWNER, serving.limits.wait_s):
            options = await asyncio.to_thread(speaking_options, serving, request)
            resampler = soxr.ResampleStream(serving.engine.sample_rate, RATE, 1, dtype="float32")
            async with serving.engine.speak(text, options) as pieces:
                async for piece in pieces:
                    await self._send(to_int16(resampler.resample_chunk(piece.wave)).tobytes())
                await self._send(to_int16(resampler.resample_chunk(piece.wave[:0], last=True)).tobytes())

    def _first_voice(self, language: str | None) -> str:
        voices = self._serving.voices.listing()
        fitting = [voice["id"] for voice in voices if voice["language"] == language]
        return str((fitting or [voice["id"] for voice in voices] or ["alloy"])[0])

    async def _send(self, pcm: bytes) -> None:
        for first in range(0, len(pcm), _BLOCK_BYTES):
            chunk = AudioChunk(audio=pcm[first : first + _BLOCK_BYTES], **_PCM)
            await asyncio.wait_for(self.write_event(chunk.event()), self._serving.limits.unread_s)
