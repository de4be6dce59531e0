"""`myxtts export RUN OUT`: the voice of a run as one folder: to keep, publish, or speak without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.installed import refuse_without
from myxtts.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a voice as one folder: weights, sizes, tokenizer and speakers, nothing of its training.

    Examples:
      myxtts export runs/mine voices/mine
      myxtts export runs/mine voices/mine --format litert     (to speak where there is no TensorFlow)
    """

    source: Annotated[Path, tyro.conf.Positional]
    """Run folder or voice folder."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write; must be empty or new. `myxtts synth --voice` and `train --init-from` take it."""

    half: bool = False
    """Store weights in 16 bits: half the size, and speech that differs by rounding."""

    format: Literal["weights", "litert"] = "weights"
    """weights can be trained on and spoken by TensorFlow; litert only speaks, at once and in little memory."""

    weights: Literal["f32", "f16", "int8"] | None = None
    """Of --format litert: int8 (the default) is the smallest and the fastest, f32 speaks as TensorFlow does."""

    replace: bool = False
    """Replace what an earlier --format litert wrote to the same folder."""


OPTIONS = ExportOptions


def main(argv: list[str]) -> int:
    options = parse_options(ExportOptions, argv, command="export")
    from myxtts.runtime.backend import import_tensorflow
    from myxtts.synthesis.voice import FILES, export_voice, find_voice, is_exported

    _refuse(options)
    refuse_without("tensorflow")
    folder = find_voice(options.source)
    replaced = options.replace and is_exported(options.out)
    if options.out.exists() and not replaced and (not options.out.is_dir() or any(options.out.iterdir())):
        raise UsageError(f"{options.out} exists and is not an empty folder", hint="name a new folder")
    import_tensorflow()  # before anything else does, so that it is quiet
    print(f"Reading {folder}")
    if options.format == "litert":
        from myxtts.synthesis.litert.export import export_litert

        export_litert(options.source, options.out, weights=options.weights or "int8")
        names = sorted(path.name for path in options.out.iterdir())
    else:
        export_voice(options.source, options.out, half=options.half)
        names = [name for name in FILES if (options.out / name).is_file()]
    for name in names:
        print(f"  {name}  {(options.out / name).stat().st_size / 1e6:.1f} MB")
    print(f"Written to {options.out}, and loaded from there: whole")
    print(f'Speak with it: myxtts synth "..." --voice {options.out}')
    return 0


def _refuse(options: ExportOptions) -> None:
    if options.format == "litert" and options.half:
        raise UsageError("--half is for --format weights", hint="give --weights f16 or --weights int8")
    if options.format == "weights" and (options.weights or options.replace):
        flag = "--weights" if options.weights else "--replace"
        raise UsageError(f"{flag} is for --format litert", hint="add --format litert, or give --half")
