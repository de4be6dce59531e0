"""`myxtts export RUN OUT`: the voice of a run as one folder to keep, copy or publish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a voice as one folder: weights, sizes, tokenizer and speakers, nothing of its training.

    Example:
      myxtts export runs/mine voices/mine
    """

    source: Annotated[Path, tyro.conf.Positional]
    """Run folder or voice folder."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write; must be empty or new. `myxtts synth --voice` and `train --init-from` take it."""

    half: bool = False
    """Store weights in 16 bits: half the size, and speech that differs by rounding."""


OPTIONS = ExportOptions


def main(argv: list[str]) -> int:
    options = parse_options(ExportOptions, argv, command="export")
    from myxtts.synthesis.voice import FILES, export_voice, find_voice

    folder = find_voice(options.source)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise UsageError(f"{options.out} exists and is not an empty folder", hint="name a new folder")
    print(f"Reading {folder}")
    export_voice(options.source, options.out, half=options.half)
    for name in FILES:
        if (options.out / name).is_file():
            print(f"  {name}  {(options.out / name).stat().st_size / 1e6:.1f} MB")
    print(f"Written to {options.out}, and loaded from there: whole")
    print(f'Speak with it: myxtts synth "..." --voice {options.out}')
    return 0
