"""`myxtts demo`: the built-in voice speaks, clones a voice that it never heard, and is trained on it.

On one machine without a GPU, in minutes. Each step keeps its result: a second call continues where the first one ended.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.cli.flags import parse_options
from myxtts.cli.installed import TRAINING, refuse_without
from myxtts.cli.progress import counted
from myxtts.cli.training_process import our_command, train_within
from myxtts.config.checks import in_range
from myxtts.files import writing
from myxtts.monitoring.log import setup_speaking_log

if TYPE_CHECKING:
    from myxtts.config.data import DataConfig
    from myxtts.synthesis.synthesizer import Synthesizer

FROM_SCRATCH = "--from-scratch"
SPEAKER = "mike"
"""A speaker of the demo corpus that the built-in voice was not trained on."""
CORPUS_MINUTES = 5.0
GREETINGS = {
    "en": "Hello there. I am the voice that comes with this project, and nobody had to train me.",
    "fa": "سلام. من صدایی هستم که همراه این برنامه می‌آید.",
}
CLONED = "And this is how I sound in the voice of a clip that I have never heard."
SENTENCES = 12


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Hear the built-in voice, let it clone a voice, train it on two simulated GPUs, and hear what changed.

    About ten minutes on two cores. Interrupt it and run it again: it continues.

    Examples:
      myxtts demo
      myxtts demo --from-scratch   (a voice from nothing, in half an hour; see myxtts demo --from-scratch --help)
    """

    folder: Path = Path("runs/demo")
    """Folder of the demo: the sounds, corpus/, cache/, and run/ with the voice, the report and the scores."""

    minutes: float = 6.0
    """Longest training."""

    seed: int = 0
    """Seed of the texts, the data order and the speech."""

    from_scratch: bool = False
    """Train a voice from nothing instead."""

    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        in_range("--minutes", self.minutes, 0.01, 100_000, hint="the default is 6")


OPTIONS = DemoOptions


def main(argv: list[str]) -> int:
    if FROM_SCRATCH in argv:
        from myxtts.cli import demo_from_scratch

        return demo_from_scratch.main(argv)
    options = parse_options(DemoOptions, argv, command="demo")
    began = time.monotonic()
    setup_speaking_log()
    logging.getLogger("myxtts.synthesis.hallucinations").setLevel(logging.ERROR)
    from myxtts.synthesis.opening import open_voice

    with writing(options.folder):
        options.folder.mkdir(parents=True, exist_ok=True)
    base = open_voice("base")
    _greet(base, options)
    corpus = _clone(base, options)
    run = options.folder / "run"
    finished = _train(options, corpus, run)
    _compare(options, corpus, run)
    if not finished:
        print(f"Training was ended after {options.minutes:g} minutes. Run the same command again: it continues.")
    print(f"Yours next: {our_command()} train --train-data MY_FOLDER --init-from base --run-dir runs/mine")
    print(f"{(time.monotonic() - began) / 60:.1f} minutes in all")
    return 0


def _greet(base: Synthesizer, options: DemoOptions) -> None:
    print("1/4 The built-in voice speaks")
    for language, text in GREETINGS.items():
        began = time.monotonic()
        path = options.folder / f"hello-{language}.wav"
        base.speak(text, language=language, seed=options.seed).save(path)
        print(f"  {path}  ({time.monotonic() - began:.1f} s)")


def _clone(base: Synthesizer, options: DemoOptions) -> Path:
    """Speak in the voice of a clip; returns the corpus in that voice, which espeak-ng speaks."""
    from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus

    print(f"2/4 It clones a voice that it has never heard: {SPEAKER}, a voice of espeak-ng")
    settings = DemoSettings(minutes=CORPUS_MINUTES, speaker=SPEAKER, languages=("en",), seed=options.seed)
    corpus = write_demo_corpus(options.folder / "corpus", settings, progress=counted("spoken clips:"))
    clips = _longest(corpus / "wavs", 3)
    path = options.folder / "cloned.wav"
    base.speak(CLONED, reference=clips, seed=options.seed).save(path)
    print(f"  {path}  from {', '.join(clip.name for clip in clips)}")
    return corpus


def _longest(wavs: Path, count: int) -> list[Path]:
    return sorted(wavs.iterdir(), key=lambda path: (-path.stat().st_size, path.name))[:count]


def train_command(options: DemoOptions, corpus: Path, run: Path) -> list[str]:
    """What a user would type."""
    return [
        *("train", "--train-data", str(corpus), "--init-from", "base", "--run-dir", str(run)),
        *("--cache-dir", str(options.folder / "cache"), "--seed", str(options.seed), "--samples", "1"),
        *("--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1"),
    ]


def _train(options: DemoOptions, corpus: Path, run: Path) -> bool:
    """Train within the time; `True` once all stages are done."""
    arguments = train_command(options, corpus, run)
    print(f"3/4 Training it on {CORPUS_MINUTES:g} minutes of that voice: myxtts {' '.join(arguments)}")
    refuse_without(*TRAINING)
    return train_within(arguments, run, options.minutes)


def _compare(options: DemoOptions, corpus: Path, run: Path) -> None:
    """The same sentences before and after, and what outside metrics say of them where those are installed."""
    from myxtts.data.demo_texts import heldout_texts
    from myxtts.data.prepare import prepare
    from myxtts.evaluation.items import text_items
    from myxtts.evaluation.metrics import find_metrics
    from myxtts.evaluation.run import evaluate_into
    from myxtts.synthesis.opening import open_voice

    print("4/4 Before and after: sentences that it never saw, in the voice of the clips")
    metrics = find_metrics()
    for name, voice in (("before", "base"), ("after", str(run))):
        synthesizer = open_voice(voice)
        prepared = prepare(str(corpus), _reading(synthesizer, options))
        items = text_items(prepared, heldout_texts("en")[:SENTENCES], "en", group=name)
        folder = options.folder / name
        about = {"voice": voice, "data": str(corpus), "seed": options.seed}
        result = evaluate_into(folder, f"The demo voice {name} training", synthesizer, metrics, items, about)
        print(result.table)
        print(f"  {result.page}")
    for line in result.notes:
        print(f"  {line}")


def _reading(synthesizer: Synthesizer, options: DemoOptions) -> DataConfig:
    """How the voice's own corpus was read, with the demo's cache."""
    return replace(synthesizer.voice.config.data, cache_dir=str(options.folder / "cache"))
