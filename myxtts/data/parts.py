"""A part of a corpus: some dozens of clips that become one shard, one commit.

A part is done when its `.json` is there: it is written last, after the shard is safe on the disk, and it has the shard's
size. Parts hold the same clips whatever the number of workers, so an interrupted run and a whole one give equal bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts.config.data import DataConfig
from myxtts.data.clips import load_clip
from myxtts.data.corpora import Entry, Refusal
from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.records import ClipRecord, encode_record
from myxtts.data.shards import write_shard, write_whole
from myxtts.errors import DataError

if TYPE_CHECKING:
    from myxtts.text.tokenizer import Tokenizer


@dataclass(slots=True)
class PartResult:
    """What the finished corpus needs to know of a part."""

    size_bytes: int = 0
    wave_samples: list[int] = field(default_factory=list)
    text_tokens: list[int] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)


def shard_path(folder: Path, part: int) -> Path:
    return folder / f"shard-{part:05d}.array_record"


def part_path(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}.json"


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
                yield encode_record(record)
            if on_clip:
                on_clip(entry.id, record is None)

    result.size_bytes = write_shard(shard_path(folder, part), records())
    write_whole(part_path(folder, part), json.dumps(asdict(result), ensure_ascii=False).encode())
    return result


def prepare_clip(entry: Entry, config: DataConfig, tokenizer: Tokenizer) -> ClipRecord:
    """Text first, which is cheap to refuse, then the audio."""
    if len(entry.text) > config.max_text_chars:
        raise DataError(
            f"the text has {len(entry.text)} characters, more than --max-text-chars {config.max_text_chars}",
            hint="split the clip, or raise the limit",
        )
    tokens = tokenizer.encode(entry.text, entry.language)
    if not tokenizer.decode(tokens).strip():
        raise DataError("nothing in the text can be spoken", hint="correct the text or remove the line")
    wave = load_clip(entry.audio.path, config)
    return ClipRecord(wave, np.array(tokens, np.int32), entry.id, entry.text, entry.speaker, entry.language)


def read_part(folder: Path, part: int) -> PartResult | None:
    """A finished part, or None where there is none: no commit, a damaged one, or a shard of another size."""
    try:
        raw: dict[str, Any] = json.loads(part_path(folder, part).read_bytes())
        result = PartResult(
            **{**raw, "refusals": [Refusal(**refusal) for refusal in raw["refusals"]], "unknown": Counter(raw["unknown"])}
        )
        same = shard_path(folder, part).stat().st_size == result.size_bytes
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if same else None


def entry_to_json(entry: Entry) -> dict[str, Any]:
    return asdict(entry)


def entry_from_json(raw: dict[str, Any]) -> Entry:
    return Entry(**{**raw, "audio": AudioFile(**raw["audio"])})


def _count(result: PartResult, record: ClipRecord, entry: Entry, tokenizer: Tokenizer) -> None:
    result.wave_samples.append(len(record.wave))
    result.text_tokens.append(len(record.tokens))
    result.speakers.append(record.speaker)
    result.languages.append(record.language)
    result.unknown.update(tokenizer.unknown(entry.text, entry.language))
