"""What speaking returns: the wave, timings of its words and a report; saved as a file or written as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import to_int16, write_audio
from myxtts.files import writing
from myxtts.synthesis.timings import WordTiming


@dataclass(frozen=True, kw_only=True)
class PieceReport:
    """One piece of the text and what the checks did with it."""

    text: str
    seconds: float = 0.0
    """Of sound that was kept."""
    attempts: int = 0
    """0 where there was nothing to speak."""
    fault: str | None = None
    """What is still wrong after all attempts: no stop, loop, tail, skip or short."""
    cut_seconds: float = 0.0
    """Cut off the end by the checks."""
    note: str | None = None
    """In words, what was done; None where nothing was."""


@dataclass(kw_only=True)
class SpeechReport:
    """What happened while a text was spoken; grows while it is streamed."""

    decoder: str = ""
    pieces: list[PieceReport] = field(default_factory=list)
    unspoken: tuple[str, ...] = ()
    """What was not spoken: signs of the text that nothing reads, and what the voice has no token for (signs, or their
    phonemes where the voice reads those)."""
    language_note: str | None = None
    """In words, why the language may come out wrong; None where nothing hints at that."""
    guidance_note: str | None = None
    """In words, why classifier-free guidance makes this voice no better; None where it does, or is off."""
    elapsed_s: float = 0.0
    first_sound_s: float | None = None
    """From the call to the first samples."""

    @property
    def seconds(self) -> float:
        """Of speech, without the pauses between pieces."""
        return sum(piece.seconds for piece in self.pieces)

    @property
    def faults(self) -> list[PieceReport]:
        return [piece for piece in self.pieces if piece.fault is not None]

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of work for a second of speech."""
        return self.elapsed_s / self.seconds if self.seconds else None

    def lines(self) -> list[str]:
        """What the user should know; empty where nothing went wrong."""
        lines = [note for note in (self.language_note, self.guidance_note) if note]
        lines += [f"{_short(piece.text)}: {piece.note}" for piece in self.pieces if piece.note]
        if self.unspoken:
            lines.append(f"not spoken: {' '.join(map(_visible, self.unspoken))}")
        return lines

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.seconds, "real_time_factor": self.real_time_factor}


@dataclass(frozen=True)
class SpokenPiece:
    """A piece as it leaves the synthesizer, or a part of one; all waves, one behind the other, are the speech."""

    wave: NDArray[np.float32]
    """Sound and, at the end of a piece, the pause behind it."""
    words: tuple[WordTiming, ...] = ()
    """Of the whole piece, with its last part."""
    report: PieceReport | None = None
    """Of the whole piece, with its last part."""


@dataclass(frozen=True)
class Speech:
    """A text that was spoken."""

    wave: NDArray[np.float32]
    sample_rate: int
    words: tuple[WordTiming, ...]
    report: SpeechReport

    @property
    def seconds(self) -> float:
        return len(self.wave) / self.sample_rate

    def save(self, path: str | Path) -> None:
        """Write a wav, flac or ogg file, by the suffix; raises `DataError` where it cannot be written."""
        write_audio(path, self.wave, self.sample_rate)


def pcm16(pieces: Iterable[SpokenPiece]) -> Iterator[bytes]:
    """Little-endian 16-bit samples, one block a piece; pieces without samples make none."""
    for piece in pieces:
        if len(piece.wave):
            yield to_int16(piece.wave).astype("<i2").tobytes()


def write_pcm16(pieces: Iterable[SpokenPiece], out: BinaryIO) -> int:
    """Write each block as soon as it is made, for pipes such as `| aplay -f S16_LE -r 22050`; returns the samples."""
    samples = 0
    for block in pcm16(pieces):
        with writing("the stream"):
            out.write(block)
            out.flush()
        samples += len(block) // 2
    return samples


def _visible(sign: str) -> str:
    """The character, or its code point where a terminal shows nothing or takes it for a control code."""
    return sign if sign.isprintable() else f"U+{ord(sign):04X}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return f"{plain[:37]}..." if len(plain) > 40 else plain
