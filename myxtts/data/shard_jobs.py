"""A shard job: some dozens of clips that become one shard, with text as token ids, audio as samples, refusals by line.

A job is done when its record (`part-NNNNN.json`) is there: it is written last, after the shard is safe on the disk, and
it has the shard's size. Jobs hold the same clips whatever the number of workers, so an interrupted preparation and a
whole one give equal bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts.config.data import DataConfig
from myxtts.data.corpora import Entry, Refusal
from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.records import ClipRecord, encode_record
from myxtts.data.shards import write_shard, write_whole
from myxtts.errors import ConfigError, DataError

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ShardJob:
    """The entries that become shard number `shard`."""

    shard: int
    entries: list[Entry]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> ShardJob:
        entries = [Entry(**{**entry, "audio": AudioFile(**entry["audio"])}) for entry in raw["entries"]]
        return cls(raw["shard"], entries)


@dataclass(slots=True)
class ShardResult:
    """What the index and the report of the whole corpus need to know of a shard."""

    size_bytes: int = 0
    crc32: int = 0
    """Of the records, one after another."""
    wave_samples: list[int] = field(default_factory=list)
    text_tokens: list[int] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """Characters without a token of their own, and in how many clips they stand."""

    def add(self, record: ClipRecord, unknown: set[str]) -> None:
        self.wave_samples.append(len(record.wave))
        self.text_tokens.append(len(record.tokens))
        self.speakers.append(record.speaker)
        self.languages.append(record.language)
        for sign in sorted(unknown):
            self.unknown[sign] = self.unknown.get(sign, 0) + 1


def shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.array_record"


def result_path(folder: Path, shard: int) -> Path:
    return folder / f"part-{shard:05d}.json"


def read_result(folder: Path, shard: int) -> ShardResult | None:
    """The result of a finished job; None where there is none, a damaged one, or a shard of another size."""
    try:
        raw: dict[str, Any] = json.loads(result_path(folder, shard).read_bytes())
        result = ShardResult(**{**raw, "refusals": [Refusal(**refusal) for refusal in raw["refusals"]]})
        same = shard_path(folder, shard).stat().st_size == result.size_bytes
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return result if same else None


def run_job(
    folder: Path,
    job: ShardJob,
    config: DataConfig,
    tokenizer: Tokenizer,
    *,
    skip: dict[str, str] | None = None,
    on_clip: Callable[[str, bool | None], None] | None = None,
) -> ShardResult:
    """Prepare the clips of a job and write its shard, then its result.

    `skip` maps ids to the reason why they are refused untried. `on_clip(id, refused)` is called before each clip with
    None and after it with the outcome.
    """
    result = ShardResult()

    def records() -> Iterator[bytes]:
        for entry in job.entries:
            if on_clip:
                on_clip(entry.id, None)
            reason = (skip or {}).get(entry.id)
            try:
                record = None if reason else prepare_clip(entry, config, tokenizer)
            except DataError as error:
                record, reason = None, error.problem
            if record is None:
                result.refusals.append(Refusal(entry.file, entry.line, entry.id, reason or "refused"))
            else:
                result.add(record, tokenizer.unknown(entry.text, entry.language))
                data = encode_record(record)
                result.crc32 = zlib.crc32(data, result.crc32)
                yield data
            if on_clip:
                on_clip(entry.id, record is None)

    result.size_bytes = write_shard(shard_path(folder, job.shard), records())
    write_whole(result_path(folder, job.shard), json.dumps(asdict(result)).encode())
    return result


def prepare_clip(entry: Entry, config: DataConfig, tokenizer: Tokenizer) -> ClipRecord:
    """Text first, which is cheap to refuse, then the audio; raises DataError with the reason for a refusal."""
    # Imported late: the decoders are not needed to find a valid cache.
    from myxtts.data.clips import load_clip

    if len(entry.text) > config.max_text_chars:
        raise DataError(
            f"the text has {len(entry.text)} characters, more than --max-text-chars {config.max_text_chars}",
            hint="split the clip, or raise the limit",
        )
    try:
        tokens = tokenizer.encode(entry.text, entry.language)
    except ConfigError as error:
        raise DataError(error.problem, hint=error.hint) from error
    if not tokenizer.decode(tokens).strip():
        raise DataError("nothing in the text can be spoken", hint="correct the text or remove the line")
    wave = load_clip(entry.audio.path, config)
    return ClipRecord(wave, np.array(tokens, np.int32), entry.id, entry.text, entry.speaker, entry.language)
