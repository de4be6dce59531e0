"""Speaking for many requests: each in a thread of its own, their codes in one batch, any of them stopped at any time.

`Engine.speak` is the one way from a request to its audio. A thread waits in `Synthesizer.stream`; the networks behind
it are wrapped, so that texts of all requests are generated together where the runtime can (LiteRT), and a request
whose client has gone ends within a few decode steps.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.serving.batching import BatchedGeneration
from myxtts.synthesis.litert.model import LiteRTModel
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.references import VoiceLatents
from myxtts.synthesis.speech import SpeechReport, SpokenPiece
from myxtts.synthesis.speech_model import (
    CheckedCodes,
    Codec,
    Generated,
    SpeechModel,
    SpokenMel,
    StreamingDecoder,
    TextBatch,
    Wave,
)
from myxtts.synthesis.synthesizer import Synthesizer

logger = logging.getLogger(__name__)

STEPS_BETWEEN_LOOKS = 10
"""Codes between two looks at whether the client is still there: a tenth of a second of work at most."""


class StoppedError(Exception):
    """The request was stopped; never leaves its thread."""


class _Current(threading.local):
    """The request that a thread works for."""

    stopped: threading.Event | None = None


_current = _Current()


class StoppableModel:
    """A `SpeechModel` that generates in small chunks, and leaves where the thread's request was stopped."""

    def __init__(self, model: SpeechModel) -> None:
        self._model = model

    @property
    def max_codes(self) -> int:
        return self._model.max_codes

    @property
    def sample_rate(self) -> int:
        return self._model.sample_rate

    @property
    def decoder_name(self) -> str:
        return self._model.decoder_name

    @property
    def codec(self) -> Codec | None:
        return self._model.codec

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        for part in self._model.stream(texts, chunk=min(chunk, STEPS_BETWEEN_LOOKS)):
            leave_if_stopped()
            yield part

    def generate(self, texts: TextBatch) -> Generated:
        return joined(list(self.stream(texts, chunk=STEPS_BETWEEN_LOOKS)))

    def encode_reference(self, clips: Sequence[Wave], windows: Sequence[Wave]) -> VoiceLatents:
        leave_if_stopped()
        return self._model.encode_reference(clips, windows)

    def decode(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None, speed: float
    ) -> Wave:
        leave_if_stopped()
        return self._model.decode(made, text_tokens, speaker_V, speed)

    def spoken_mel(
        self, made: CheckedCodes, text_tokens: Sequence[int], speaker_V: NDArray[np.float32] | None
    ) -> SpokenMel | None:
        leave_if_stopped()
        return self._model.spoken_mel(made, text_tokens, speaker_V)

    def streaming_decoder(self, speaker_V: NDArray[np.float32] | None) -> StreamingDecoder | None:
        return self._model.streaming_decoder(speaker_V)

    def close(self) -> None:
        """Nothing of its own runs."""


def leave_if_stopped() -> None:
    if _current.stopped is not None and _current.stopped.is_set():
        raise StoppedError


class BatchedModel(StoppableModel):
    """A `LiteRTModel` whose texts, of all requests, are generated in one batch."""

    def __init__(self, model: LiteRTModel) -> None:
        super().__init__(model)
        self._batch = BatchedGeneration(model.new_batch, aligned=bool(model.gpt.heads), check=leave_if_stopped)

    def stream(self, texts: TextBatch, *, chunk: int) -> Iterator[Generated]:
        return self._batch.stream(texts, chunk=chunk)

    def generate(self, texts: TextBatch) -> Generated:
        return self._batch.generate(texts)

    def close(self) -> None:
        self._batch.close()


def joined(parts: Sequence[Generated]) -> Generated:
    """Parts of one generation as one: rows that ended earlier are padded in the parts behind."""
    lengths = sum((part.lengths_B for part in parts[1:]), parts[0].lengths_B)

    def rows(name: str) -> NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate(arrays, axis=1)

    return Generated(rows("codes_BN"), lengths, parts[-1].stopped_B, rows("latents_BND"), rows("spoken_token_BN"))


class Engine:
    """One open voice for all requests."""

    def __init__(self, synthesizer: Synthesizer, at_once: int) -> None:
        model = synthesizer.model
        self._model = BatchedModel(model) if isinstance(model, LiteRTModel) else StoppableModel(model)
        self.synthesizer = Synthesizer(synthesizer.voice, self._model)
        # One more: a thread that was told to stop may still be on its way out.
        self._threads = ThreadPoolExecutor(at_once + 1, thread_name_prefix="speak")

    @property
    def sample_rate(self) -> int:
        return self.synthesizer.sample_rate

    def warm_up(self) -> None:
        """Speak a word, so that the first client does not wait for compilation; needs a speaker of the voice's own."""
        if self.synthesizer.voice.speakers:
            for _ in self.synthesizer.stream("Hello there."):
                pass

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._model.close()

    @asynccontextmanager
    async def speak(
        self, text: str, options: SpeakingOptions, report: SpeechReport | None = None
    ) -> AsyncIterator[AsyncIterator[SpokenPiece]]:
        """The pieces of a text as they are made. Leaving the context stops the work, and waits until it has stopped."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[SpokenPiece | BaseException | None] = asyncio.Queue()
        stopped = threading.Event()

        def hand(item: SpokenPiece | BaseException | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, item)

        def work() -> None:
            _current.stopped = stopped
            try:
                for piece in self.synthesizer.stream(text, options, report=report):
                    leave_if_stopped()
                    hand(piece)
                hand(None)
            except BaseException as error:  # noqa: BLE001 - a thread's edge: the request's task raises it
                hand(error)
            finally:
                _current.stopped = None

        async def made() -> AsyncIterator[SpokenPiece]:
            while (item := await pieces.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item

        working = loop.run_in_executor(self._threads, work)
        try:
            yield made()
        finally:
            stopped.set()
            working.cancel()  # where no thread has taken it up yet
            await asyncio.wait([working])
