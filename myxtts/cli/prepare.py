"""`myxtts prepare CORPUS`: check, resample and tokenise a corpus once, and report what it holds."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.progress import NowAndThen
from myxtts.config.data import CorpusConfig, DataConfig
from myxtts.monitoring.terminal import escaped

if TYPE_CHECKING:
    from myxtts.data.prepare import PrepareProgress, Progress


@dataclass(frozen=True, kw_only=True)
class PrepareArgs:
    """Prepare a folder of recordings for training; a second call reuses the result.

    Examples:
      myxtts prepare DIR
      myxtts prepare DIR --language fa --trim-silence
    """

    corpus: tyro.conf.Positional[Path]
    """Folder with metadata.csv and wavs/ (LJSpeech), a VCTK or Common Voice folder, or a .csv, .tsv or .jsonl file."""

    out: Path | None = None
    """Output folder; by default one in the cache, where `train` finds it."""

    force: bool = False
    """Prepare again even if there is a valid result."""

    workers: int | None = None
    """Processes to use; by default one for each core."""

    json: bool = False
    """Print the report as JSON instead of lines."""

    settings: Annotated[CorpusConfig, tyro.conf.arg(name="")]


OPTIONS = PrepareArgs


def main(argv: list[str]) -> int:
    args = parse_options(PrepareArgs, argv, command="prepare")
    config = DataConfig(**dataclasses.asdict(args.settings))
    from myxtts.data.prepare import prepare
    from myxtts.data.prepared import REFUSED
    from myxtts.data.report import report_lines

    started = time.monotonic()
    with _progress_display() as progress:
        prepared = prepare(args.corpus, config, progress, out=args.out, force=args.force, workers=args.workers)
    if args.json:
        print(json.dumps({**prepared.report, "prepared": str(prepared.path)}, ensure_ascii=False))
        return 0
    for line in report_lines(prepared.report, str(prepared.path / REFUSED)):
        print(escaped(line))
    print(f"prepared in {prepared.path} ({time.monotonic() - started:.1f} s)")
    return 0


@contextmanager
def _progress_display() -> Iterator[Progress]:
    """A bar where there is a terminal, a plain line every few seconds where there is none."""
    if not sys.stderr.isatty():
        lines = NowAndThen()
        yield lambda now: _plain_line(now) if lines.due(now.done, now.total) else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("kept {task.fields[kept]}"))
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=None, kept=0)
        yield lambda now: bar.update(task, completed=now.done, total=now.total, kept=now.done - now.refused)


def _plain_line(now: PrepareProgress) -> None:
    print(f"read {now.done} of {now.total} clips, kept {now.done - now.refused}", file=sys.stderr, flush=True)
