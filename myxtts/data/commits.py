"""A part of a corpus: some dozens of clips that become one shard, one commit.

A part is done when its `.json` is there: it is written last, after the shard is safe on the disk, and it has the
shard's size. Parts hold the same clips whatever the number of workers, so an interrupted run and a whole one give
equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from myxtts.data.corpora import Entry, Refusal
from myxtts.data.corpora.audio_files import AudioFile
from myxtts.data.shards import write_whole


@dataclass(slots=True)
class PartResult:
    """What the finished corpus needs to know of a part."""

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


def shard_path(folder: Path, part: int) -> Path:
    return folder / f"shard-{part:05d}.array_record"


def part_path(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}.json"


def commit_part(folder: Path, part: int, result: PartResult) -> None:
    """Say that a part is done; its shard must be on the disk by now."""
    write_whole(part_path(folder, part), json.dumps(asdict(result)).encode())


def read_part(folder: Path, part: int) -> PartResult | None:
    """A finished part, or None where there is none: no commit, a damaged one, or a shard of another size."""
    try:
        raw: dict[str, Any] = json.loads(part_path(folder, part).read_bytes())
        result = PartResult(**{**raw, "refusals": [Refusal(**refusal) for refusal in raw["refusals"]]})
        same = shard_path(folder, part).stat().st_size == result.size_bytes
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if same else None


def entry_to_json(entry: Entry) -> dict[str, Any]:
    return asdict(entry)


def entry_from_json(raw: dict[str, Any]) -> Entry:
    return Entry(**{**raw, "audio": AudioFile(**raw["audio"])})
