"""Prepares the clips of one part of a corpus: text to token ids, audio to samples, refusals by line."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from myxtts.config.data import DataConfig
from myxtts.data.clips import load_clip
from myxtts.data.commits import PartResult, commit_part, shard_path
from myxtts.data.corpora import Entry, Refusal
from myxtts.data.records import ClipRecord, encode_record
from myxtts.data.shards import write_shard
from myxtts.errors import ConfigError, DataError

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer


def process_part(
    folder: Path,
    part: int,
    entries: list[Entry],
    config: DataConfig,
    tokenizer: Tokenizer,
    *,
    skip: dict[str, str] | None = None,
    on_clip: Callable[[str, bool | None], None] | None = None,
) -> PartResult:
    """Prepare a part's clips and commit them.

    `skip` maps ids to the reason why they are not even tried. `on_clip(id, refused)` is called before each clip with
    None and after it with the outcome.
    """
    result = PartResult()

    def records() -> Iterator[bytes]:
        for entry in entries:
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
                _count(result, record, entry, tokenizer)
                data = encode_record(record)
                result.crc32 = zlib.crc32(data, result.crc32)
                yield data
            if on_clip:
                on_clip(entry.id, record is None)

    result.size_bytes = write_shard(shard_path(folder, part), records())
    commit_part(folder, part, result)
    return result


def prepare_clip(entry: Entry, config: DataConfig, tokenizer: Tokenizer) -> ClipRecord:
    """Text first, which is cheap to refuse, then the audio."""
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


def _count(result: PartResult, record: ClipRecord, entry: Entry, tokenizer: Tokenizer) -> None:
    result.wave_samples.append(len(record.wave))
    result.text_tokens.append(len(record.tokens))
    result.speakers.append(record.speaker)
    result.languages.append(record.language)
    for sign in sorted(tokenizer.unknown(entry.text, entry.language)):
        result.unknown[sign] = result.unknown.get(sign, 0) + 1
