"""Speech as raw 16-bit PCM while it is made: for pipes such as `| aplay -f S16_LE -r 22050`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from myxtts.audio.io import to_int16
from myxtts.files import writing
from myxtts.synthesis.speech import SpokenPiece


def pcm16(pieces: Iterable[SpokenPiece]) -> Iterator[bytes]:
    """Little-endian 16-bit samples, one block a piece; pieces without samples make none."""
    for piece in pieces:
        if len(piece.wave):
            yield to_int16(piece.wave).astype("<i2").tobytes()


def write_pcm16(pieces: Iterable[SpokenPiece], out: BinaryIO) -> int:
    """Write each block as soon as it is made; returns the number of samples."""
    samples = 0
    for block in pcm16(pieces):
        with writing("the stream"):
            out.write(block)
            out.flush()
        samples += len(block) // 2
    return samples
