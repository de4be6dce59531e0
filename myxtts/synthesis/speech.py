"""What speaking gives back: the wave, when each word is in it, and what happened on the way. No TensorFlow."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """In words, why the language may come out wrong; None where nothing speaks against it."""
    guidance_note: str | None = None
    """In words, why guidance does this voice no good; None where it does, or is off."""
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
        """What a person should know; empty where all went well."""
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


def _visible(sign: str) -> str:
    """The sign, or its number where a terminal shows nothing or takes it for an order."""
    return sign if sign.isprintable() else f"U+{ord(sign):04X}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return f"{plain[:37]}..." if len(plain) > 40 else plain
