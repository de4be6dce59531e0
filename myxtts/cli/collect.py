"""`myxtts collect RECORDINGS... --out FOLDER`: long recordings become a corpus to train on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.progress import counted
from myxtts.config.checks import at_least
from myxtts.errors import DataError, UsageError
from myxtts.monitoring.terminal import escaped
from myxtts.text.languages import find_language, foreign_script

if TYPE_CHECKING:
    from myxtts.collecting.collect import Collected, Progress


@dataclass(frozen=True, kw_only=True)
class CollectArgs:
    """Cut long recordings at their pauses, find the text of each piece, and write them as a corpus in LJSpeech form.

    Pieces that are noisy, clipped, too quiet or doubtful in their text are set aside with the reason. A call that was
    interrupted continues when it is repeated.

    Examples:
      myxtts collect anna.wav tom.mp3 --out MY_FOLDER
      myxtts collect anna.wav --out MY_FOLDER --script BOOK.txt    (what was read: pieces get its words)
      myxtts collect sara.ogg --out MY_FOLDER --language fa --recogniser-command 'PROGRAM {wav}'
    """

    recordings: tyro.conf.Positional[tuple[Path, ...]]
    """Audio files, hours long if you like, with one speaker each."""

    out: Path
    """Folder of the corpus; new, or one that collect made."""

    speaker: str | None = None
    """Speaker of all recordings; by default each file's name is its speaker."""

    language: str = "en"
    """Language that is spoken."""

    script: Path | None = None
    """Text that was read, the whole of it: pieces get its words by their sound, in any language that the built-in voice
    has the sounds of, and those that match it badly are set aside. With a recogniser: by what it hears."""

    recogniser: str | None = None
    """moonshine (English; the one without a script), faster-whisper:MODEL_FOLDER, or one of your own as
    package.module:factory."""

    recogniser_command: str | None = None
    """A program that prints the text of a wav file, which stands for {wav}; run without a shell."""

    workers: int = max(1, os.cpu_count() or 1)
    """Pieces to recognise at once."""

    shortest: float = 1.0
    """Seconds of the shortest piece."""

    longest: float = 12.0
    """Seconds of the longest piece."""


OPTIONS = CollectArgs


def main(argv: list[str]) -> int:
    args = parse_options(CollectArgs, argv, command="collect")
    language = find_language(args.language).code
    _refuse_early(args)
    script = None if args.script is None else read_script(args.script, language)
    from myxtts.collecting.collect import CollectRequest, collect, recording_names
    from myxtts.collecting.pauses import CutLimits
    from myxtts.collecting.recognisers import find_recogniser
    from myxtts.collecting.sounds import SoundAligner

    recording_names(args.recordings)
    by_sound = script is not None and args.recogniser is None and args.recogniser_command is None
    recogniser = (
        SoundAligner.built_in()
        if by_sound
        else find_recogniser(args.recogniser or "moonshine", args.recogniser_command, language)
    )
    request = CollectRequest(
        recordings=args.recordings,
        out=args.out,
        language=language,
        speaker=args.speaker,
        script=script,
        workers=args.workers,
        limits=CutLimits(shortest_s=args.shortest, longest_s=args.longest),
    )
    with _progress_display() as progress:
        result = collect(request, recogniser, progress)
    for line in summary(result, args.out):
        print(escaped(line))
    return 0


def _refuse_early(args: CollectArgs) -> None:
    at_least("--workers", args.workers, 1, hint="one for each core is the default")
    if not args.recordings:
        raise UsageError("no recording is named", hint="myxtts collect RECORDING.wav --out MY_FOLDER")
    if not 0.4 <= args.shortest < args.longest <= 20:
        raise UsageError(
            f"--shortest {args.shortest:g} and --longest {args.longest:g} must be in order, from 0.4 to 20 seconds",
            hint="1 and 12 are the defaults; training refuses clips of more than 20 seconds",
        )
    if args.speaker is not None and not args.speaker.strip(" |"):
        raise UsageError("--speaker is empty", hint="leave it out: then each file's name is its speaker")


def read_script(path: Path, language: str) -> str:
    """The script's text, in the letters of the language."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"--script {path} cannot be read: {error.strerror}", hint="name a text file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"--script {path} is not UTF-8 text: {error}", hint="save it as UTF-8 plain text") from error
    if not text.strip():
        raise DataError(f"--script {path} is empty", hint="put the text in it that was read")
    letters = foreign_script(text, language)
    if letters is not None:
        raise DataError(
            f"--script {path} is in {letters} letters, which {language!r} is not written in",
            hint="add the recording's --language, such as fa",
        )
    return text


def summary(result: Collected, out: Path) -> list[str]:
    """What was collected, for people."""
    lines = [f"{name} was collected before; its lines are as they were" for name in result.earlier]
    lines += [f"left out: {problem}" for problem in result.failed.values()]
    if result.pieces:
        share = result.kept / result.pieces
        lines.append(
            f"{result.kept} of {result.pieces} pieces kept ({share:.0%}), "
            f"{result.kept_s / 60:.1f} of {result.speech_s / 60:.1f} minutes"
        )
        reasons = ", ".join(f"{reason} {count}" for reason, count in result.reasons.most_common())
        if reasons:
            lines.append(f"set aside: {reasons}; each with its reason in {out / 'set_aside.jsonl'}")
    if result.kept or result.earlier:
        lines.append(f"corpus in {out}; next: myxtts train --train-data {out} --init-from base --run-dir runs/mine")
    else:
        lines.append("nothing was kept: read the reasons; are --language and the recording right?")
    return lines


@contextmanager
def _progress_display() -> Iterator[Progress]:
    """A bar where there is a terminal, a plain line every few seconds where there is none."""
    if not sys.stderr.isatty():
        yield counted("collected")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("collecting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("collecting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
