"""Audio formats of the API, encoded chunk by chunk while the speech is made.

Everything is mono at 24,000 samples a second, what clients of the API expect and Opus needs. A stream's length is not
known when it begins: WAV has open size fields, FLAC no number of samples, and MP3 a constant bit rate, from which
players tell the time.
"""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from myxtts.audio.io import to_int16

RATE = 24_000
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
_CONTAINERS = {"mp3": ("MP3", "MPEG_LAYER_III"), "opus": ("OGG", "OPUS"), "flac": ("FLAC", "PCM_16")}
_OPEN_SIZE = 0xFFFFFFFF
_BLOCK_SAMPLES = 4096


class _Writer(Protocol):
    """Samples at `RATE` in, bytes of a format out."""

    def add(self, wave: NDArray[np.float32]) -> bytes: ...

    def finish(self) -> bytes: ...


class AudioEncoder:
    """One speech in one format. `add` gives the bytes that are ready, `finish` the rest."""

    def __init__(self, name: str, sample_rate: int) -> None:
        self._resampler = None if sample_rate == RATE else soxr.ResampleStream(sample_rate, RATE, 1, dtype="float32")
        self._writer: _Writer = _Pcm(wav=name == "wav") if name in ("wav", "pcm") else _Compressed(*_CONTAINERS[name])

    def add(self, wave: NDArray[np.float32]) -> bytes:
        return self._writer.add(self._resampled(wave, last=False))

    def finish(self) -> bytes:
        return self._writer.add(self._resampled(np.zeros(0, np.float32), last=True)) + self._writer.finish()

    def _resampled(self, wave: NDArray[np.float32], *, last: bool) -> NDArray[np.float32]:
        wave = np.clip(np.nan_to_num(np.asarray(wave, np.float32)), -1.0, 1.0)
        if self._resampler is None:
            return wave
        return np.asarray(self._resampler.resample_chunk(wave, last=last), np.float32)


def wav_header(rate: int = RATE) -> bytes:
    """Of mono 16-bit samples whose number is not known yet."""
    layout = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    return (
        b"RIFF" + struct.pack("<I", _OPEN_SIZE) + b"WAVEfmt " + struct.pack("<I", 16) + layout
        + b"data" + struct.pack("<I", _OPEN_SIZE)
    )  # fmt: skip


class _Pcm:
    """Little-endian 16-bit samples, behind a header where it is WAV."""

    def __init__(self, *, wav: bool) -> None:
        self._ahead = wav_header() if wav else b""

    def add(self, wave: NDArray[np.float32]) -> bytes:
        made, self._ahead = self._ahead + to_int16(wave).astype("<i2").tobytes(), b""
        return made

    def finish(self) -> bytes:
        return b""


class _Compressed:
    """A format of libsndfile."""

    def __init__(self, container: str, subtype: str) -> None:
        self._sink = _Sink()
        constant = {"bitrate_mode": "CONSTANT", "compression_level": 0.6} if container == "MP3" else {}
        self._file = soundfile.SoundFile(self._sink, "w", RATE, 1, format=container, subtype=subtype, **constant)

    def add(self, wave: NDArray[np.float32]) -> bytes:
        # Encoders put all that they are given on the stack.
        for first in range(0, len(wave), _BLOCK_SAMPLES):
            self._file.write(wave[first : first + _BLOCK_SAMPLES])
        return self._sink.take()

    def finish(self) -> bytes:
        self._file.close()
        return self._sink.take()


class _Sink:
    """What libsndfile takes for a file; bytes before its end were sent already and are not written again."""

    def __init__(self) -> None:
        self._fresh = bytearray()
        self._place = self._end = 0

    def take(self) -> bytes:
        taken = bytes(self._fresh)
        self._fresh.clear()
        return taken

    def write(self, data: bytes) -> int:
        self._place += len(data)
        beyond = self._place - self._end
        if beyond > 0:
            self._fresh += bytes(data)[-beyond:]
            self._end = self._place
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._end)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        """Nothing is held back."""
