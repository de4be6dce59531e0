"""`myxtts demo --from-scratch`: corpus, training from nothing, speech and scores, on one machine without a GPU.

Each step keeps its result, so a second call continues where the first one ended.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from myxtts.cli.flags import parse_options
from myxtts.cli.progress import counted
from myxtts.cli.training_process import our_command, train_within
from myxtts.config.checks import at_least, in_range
from myxtts.config.loading import to_yaml_text
from myxtts.errors import ConfigError, TrainingError
from myxtts.files import writing
from myxtts.monitoring.log import setup_speaking_log

CODEC_STEPS = 1000
DECODER_STEPS = 500
LEARNING_RATE = "2e-3"
"""Of every stage. With few epochs a GPT learns faster at more than the recipe's 1e-3: after 1,000 steps the held-out
loss of its codes is 1.92 instead of 2.14."""


@dataclass(frozen=True, kw_only=True)
class FromScratchOptions:
    """Make a corpus with espeak-ng, train a voice on two simulated GPUs, speak held-out sentences and score them.

    At most half an hour on two cores, 18 minutes of it training. Interrupt it and run it again: it continues.

    Examples:
      myxtts demo --from-scratch
      myxtts demo --from-scratch --quick   (three minutes: shows that all of it runs, not how it speaks)
    """

    folder: Path | None = None
    """Folder of the demo: corpus/, cache/, run/ with the voice, the report and the scores. By default
    runs/from-scratch, and runs/from-scratch-quick with --quick."""

    minutes: float = 18.0
    """Longest training; the voice is scored as it is by then."""

    corpus_minutes: float = 150.0
    """Minutes of speech in the corpus."""

    voices: int = 3
    """Speakers of the corpus, 1 to 6."""

    sentences: int = 60
    """Held-out sentences to synthesise in each language."""

    max_steps: int = 2400
    """Most steps of each stage; espeak's even voices take a third of the steps that a human one takes."""

    seed: int = 0
    """Seed of the texts, the data order and the weights."""

    from_scratch: bool = True
    """This demo; without it, the built-in voice speaks and is fine-tuned."""

    quick: bool = False
    """A few steps on a minute of speech: shows that everything runs; the speech is not intelligible."""

    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        in_range("--minutes", self.minutes, 0.01, 100_000, hint="the default is 18")
        at_least("--sentences", self.sentences, 1, hint="the default is 60")

    @property
    def home(self) -> Path:
        return self.folder or Path("runs/from-scratch-quick" if self.quick else "runs/from-scratch")


OPTIONS = FromScratchOptions


def main(argv: list[str]) -> int:
    options = parse_options(FromScratchOptions, argv, command="demo")
    if options.quick:
        options = replace(
            options,
            minutes=min(options.minutes, 3.0),
            corpus_minutes=min(options.corpus_minutes, 1.5),
            voices=min(options.voices, 2),
            sentences=min(options.sentences, 2),
            max_steps=min(options.max_steps, 4),
        )
    began = time.monotonic()
    setup_speaking_log()
    claim(options)
    corpus = _corpus(options)
    run = options.home / "run"
    finished = _train(options, corpus, run)
    if not can_speak(run):
        raise TrainingError(
            f"{options.minutes:g} minutes of training were not enough to reach the stage that speaks",
            hint="run the same command again: it continues where it stopped",
        )
    page, wavs = _speak_and_score(options, corpus, run)
    print(f"\nSpoken: {wavs}\nScores: {page}\nTraining: {run / 'report.html'}")
    if not finished:
        print(f"Training was ended after {options.minutes:g} minutes. Run the same command again: it continues.")
    print(f'Try it: {our_command()} synth "Hello there, my friend." --voice {run} --out hello.wav')
    print(f"{(time.monotonic() - began) / 60:.1f} minutes in all")
    return 0


def claim(options: FromScratchOptions) -> None:
    """Record the options that decide this folder's voice, or refuse a folder of other options."""
    names = ("corpus_minutes", "voices", "seed", "max_steps")
    asked = {name: getattr(options, name) for name in names}
    record = options.home / "demo.json"
    if record.is_file():
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{record} cannot be read: {error}", hint="choose another --folder, or remove this one"
            ) from error
        other = [name for name in names if found.get(name) != asked[name]]
        if other:
            differing = ", ".join(f"--{name.replace('_', '-')} {found.get(name)}" for name in other)
            raise ConfigError(
                f"{options.home} holds a demo of other settings: {differing}",
                hint=f"give the same ones to continue it, another --folder, or remove {options.home} to begin anew",
            )
        return
    with writing(record):
        options.home.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(asked) + "\n", encoding="utf-8")


def _corpus(options: FromScratchOptions) -> Path:
    from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus

    print(f"1/3 A corpus of {options.corpus_minutes:g} minutes, spoken by espeak-ng in {options.voices} voices")
    settings = DemoSettings(minutes=options.corpus_minutes, voices=options.voices, seed=options.seed)
    return write_demo_corpus(options.home / "corpus", settings, progress=counted("spoken clips:"))


def train_command(options: FromScratchOptions, corpus: Path, run: Path) -> list[str]:
    """What a user would type to train the same; writes the settings that are YAML only beside the corpus."""
    # Two hours of espeak's even voices need no regularisation, no CTC perceptual loss and no discriminator.
    decoder_steps = min(DECODER_STEPS, options.max_steps)
    settings = {
        "cpu_threads": len(os.sched_getaffinity(0)),
        "codec_steps": min(CODEC_STEPS, options.max_steps),
        "decoder_steps": decoder_steps,
        "discriminator_start": decoder_steps,
        "ctc_loss_weight": 0.0,
        "token_corruption": 0.0,
        "concatenation": 0.0,
        "speed_perturbation": 0.0,
    }
    file = options.home / "settings.yaml"
    with writing(file):
        options.home.mkdir(parents=True, exist_ok=True)
        file.write_text(to_yaml_text(settings), encoding="utf-8")
    return [
        *("train", "--train-data", str(corpus), "--run-dir", str(run), "--cache-dir", str(options.home / "cache")),
        *("--model-size", "tiny", "--simulate-gpus", "2", "--data-gpu", "0", "--model-gpu", "1"),
        *("--seed", str(options.seed), "--samples", "1", "--max-steps", str(options.max_steps)),
        *("--learning-rate", LEARNING_RATE, "--config", str(file)),
    ]


def _train(options: FromScratchOptions, corpus: Path, run: Path) -> bool:
    """Train within the time; `True` once all stages are done."""
    arguments = train_command(options, corpus, run)
    print(f"2/3 Training, at most {options.minutes:g} minutes: myxtts {' '.join(arguments)}")
    return train_within(arguments, run, options.minutes)


def can_speak(run: Path) -> bool:
    """Whether the run's voice has a GPT yet."""
    from myxtts.synthesis.voice import VOICE_FOLDER, voice_manifest

    return "gpt" in voice_manifest(run / VOICE_FOLDER).parts


def _speak_and_score(options: FromScratchOptions, corpus: Path, run: Path) -> tuple[Path, Path]:
    from myxtts.evaluation.metrics import add_phone_metric, find_metrics
    from myxtts.synthesis.opening import open_voice

    print("3/3 Speaking sentences that it never saw, and letting outside models evaluate them")
    logging.getLogger("myxtts.synthesis.hallucinations").setLevel(logging.ERROR)
    synthesizer = open_voice(run, runtime="tensorflow")
    metrics = find_metrics()
    from myxtts.data.prepare import prepare
    from myxtts.evaluation.items import held_out_items, text_items
    from myxtts.evaluation.run import SOUNDS, evaluate_into

    prepared = prepare(str(corpus), synthesizer.voice.config.data)
    if not options.quick:
        add_phone_metric(metrics, corpus, prepared, options.home / "cache", counted("phone recogniser learns, step"))
    items = [
        item
        for (language, kind), texts in held_out_texts().items()
        for item in text_items(prepared, texts[: options.sentences], language, group=f"{language} {kind}")
    ]
    items += held_out_items(prepared, max(1, options.sentences // 3), group="clips held out")
    about = {"voice": str(run), "data": str(corpus), "minutes": options.minutes, "seed": options.seed}
    result = evaluate_into(
        run, "How the demo voice speaks", synthesizer, metrics, items, about, progress=counted("evaluated")
    )
    print(result.table)
    for line in result.notes:
        print(f"  {line}")
    return result.page, run / SOUNDS


def held_out_texts() -> dict[tuple[str, str], tuple[str, ...]]:
    """Texts that no demo corpus contains, by language and kind."""
    from myxtts.data.demo_texts import DEMO_LANGUAGES, heldout_texts

    wanted = {(language, "sentences"): heldout_texts(language) for language in DEMO_LANGUAGES}
    return {**wanted, ("en", "digits"): heldout_texts("en", "digits")}
