"""One clip as bytes in a shard: a fixed header, token ids, 16-bit samples, and a line of JSON about the rest."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("<4sIII")
_MAGIC = b"MXT1"


class DamagedRecordError(Exception):
    """The bytes are not a record; the reader of the shard adds which file they are from."""


@dataclass(frozen=True, slots=True)
class ClipRecord:
    """A prepared clip. Arrays that come from `decode_record` are views of the shard's bytes and read-only."""

    wave: NDArray[np.int16]
    tokens: NDArray[np.int32]
    id: str
    text: str
    speaker: str
    language: str


def encode_record(record: ClipRecord) -> bytes:
    about = json.dumps([record.id, record.text, record.speaker, record.language], ensure_ascii=False).encode()
    header = _HEADER.pack(_MAGIC, len(record.tokens), len(record.wave), len(about))
    return b"".join((header, record.tokens.astype("<i4").tobytes(), record.wave.astype("<i2").tobytes(), about))


def decode_arrays(data: bytes) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    """Samples and token ids only: all that a batch needs."""
    tokens, samples, about = _header(data)
    waves_at = _HEADER.size + 4 * tokens
    if len(data) != waves_at + 2 * samples + about:
        raise DamagedRecordError(f"it has {len(data)} bytes, not {waves_at + 2 * samples + about}")
    return (
        np.frombuffer(data, "<i2", samples, offset=waves_at),
        np.frombuffer(data, "<i4", tokens, offset=_HEADER.size),
    )


def lengths_of(data: bytes) -> tuple[int, int]:
    """Samples and token ids that the record has, by its header."""
    tokens, samples, _ = _header(data)
    return samples, tokens


def decode_record(data: bytes) -> ClipRecord:
    wave, tokens = decode_arrays(data)
    clip_id, text, speaker, language = json.loads(data[_HEADER.size + 4 * len(tokens) + 2 * len(wave) :])
    return ClipRecord(wave, tokens, clip_id, text, speaker, language)


def _header(data: bytes) -> tuple[int, int, int]:
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise DamagedRecordError(f"its {len(data)} bytes have no header")
    _, tokens, samples, about = _HEADER.unpack_from(data)
    return tokens, samples, about
