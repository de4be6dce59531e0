"""`myxtts demo-corpus OUT`: synthesise the demo corpus with espeak-ng, as a folder in LJSpeech's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.progress import counted


@dataclass(frozen=True)
class DemoCorpusOptions:
    """Synthesise a small English and Persian corpus with espeak-ng: no download, the same bytes every time.

    Examples:
      myxtts demo-corpus demo
      myxtts demo-corpus demo --minutes 5 --voices 2 --languages fa
    """

    out: Annotated[Path, tyro.conf.Positional]
    """Folder for metadata.csv and wavs/: new, empty, or of an interrupted call."""

    minutes: float = 60.0
    """Minutes of speech; an hour takes about half a minute on two cores."""

    voices: int = 3
    """Number of speakers, 1 to 6; each speaks every language."""

    languages: tuple[str, ...] = ("en", "en", "fa")
    """Languages of the clips in turn, en or fa; one that is named twice has twice as many clips."""

    seed: int = 0
    """Another seed gives other texts."""

    workers: int | None = None
    """Worker processes; by default one a core."""


OPTIONS = DemoCorpusOptions


def main(argv: list[str]) -> int:
    """Write the corpus and print its path."""
    args = parse_options(DemoCorpusOptions, argv, command="demo-corpus")
    from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus

    settings = DemoSettings(minutes=args.minutes, voices=args.voices, languages=args.languages, seed=args.seed)
    folder = write_demo_corpus(args.out, settings, workers=args.workers, progress=counted("spoken clips:"))
    print(f"Demo corpus: {folder / 'metadata.csv'}")
    return 0
