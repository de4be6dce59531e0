"""The corpus that needs no download: espeak-ng reads generated English and Persian texts in several voices.

`plan_corpus` is pure: the same settings give the same clips. `write_demo_corpus` speaks them into the LJSpeech form
(`wavs/ID.wav`, `metadata.csv` as id|text|normalised|speaker|language, `phonemes.csv` as id|ipa) with worker processes.
It is resumable: a clip is written whole or not at all, and `metadata.csv`, written last, says that all are there.

A worker process is `python -m myxtts.data.demo_corpus` with its clips as JSON on the standard input.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from myxtts.audio.io import write_audio
from myxtts.config.checks import at_least
from myxtts.data.demo_texts import DEMO_LANGUAGES, Kind, draw_text
from myxtts.data.espeak import ESPEAK_SAMPLE_RATE, EspeakVoice, speak
from myxtts.errors import ConfigError, DataError, MyXTTSError
from myxtts.files import replacing, writing
from myxtts.text.languages import find_language
from myxtts.text.normalise import normalise
from myxtts.text.phonemes import phonemes_of_many

_logger = logging.getLogger(__name__)

VOICES: tuple[EspeakVoice, ...] = (
    EspeakVoice(name="pablo", variant="pablo", pitch=50, pitch_range=30, words_per_minute=135),
    EspeakVoice(name="fiona", variant="f4", pitch=70, pitch_range=25, words_per_minute=135),
    EspeakVoice(name="edward", variant="edward", pitch=50, pitch_range=30, words_per_minute=135),
    EspeakVoice(name="steph", variant="steph", pitch=70, pitch_range=30, words_per_minute=140),
    EspeakVoice(name="victor", variant="victor", pitch=50, pitch_range=30, words_per_minute=140),
    EspeakVoice(name="greta", variant="grandma", pitch=60, pitch_range=30, words_per_minute=135),
    EspeakVoice(name="mike", variant="Mike", pitch=50, pitch_range=30, words_per_minute=140),
)
"""Speakers with vocal tracts of their own; each speaks every language.

The first six were chosen by measuring 28 variants: Resemblyzer's cosine is 0.93 within a speaker and at most 0.67
between two of the first four (0.76 of all six), and an ASR understands each. The last one is kept from the built-in
voice's training, for the demo. They speak slowly and evenly: a code of 46 ms has to hold a sound.
"""

MOST_VOICES = 6

DEFAULT_LANGUAGES = ("en", "en", "fa")
"""English has more sounds and longer words than Persian, and needs more of the time to be learnt as well."""

_VERSION = 2
_CLIPS_A_JOB = 40
# Seconds of speech = a + b * characters of normalised text, fitted to these voices.
_SECONDS_OF_CHARS = {"en": (0.56, 0.0577), "fa": (0.25, 0.0989)}


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What decides every byte of the corpus."""

    minutes: float = 60.0
    """About how much speech to make."""

    voices: int = 3
    """How many speakers, 1 to 6."""

    speaker: str | None = None
    """This speaker alone."""

    languages: tuple[str, ...] = DEFAULT_LANGUAGES
    """Which languages every speaker speaks, in turns: one that is named twice is spoken twice as often."""

    seed: int = 0
    """Another seed gives other texts."""

    @property
    def speakers(self) -> tuple[EspeakVoice, ...]:
        if self.speaker is not None:
            return tuple(voice for voice in VOICES if voice.name == self.speaker)
        return VOICES[: self.voices]

    def __post_init__(self) -> None:
        if not 0.05 <= self.minutes <= 6000:
            raise ConfigError(f"--minutes is {self.minutes}, must be in 0.05..6000", hint="an hour (60) is the default")
        if not 1 <= self.voices <= MOST_VOICES:
            raise ConfigError(f"--voices is {self.voices}, must be in 1..{MOST_VOICES}", hint="the default is 3")
        if self.speaker is not None and self.speaker not in [voice.name for voice in VOICES]:
            names = ", ".join(voice.name for voice in VOICES)
            raise ConfigError(f"the demo corpus has no speaker {self.speaker!r}", hint=f"its speakers are {names}")
        unknown = [code for code in self.languages if code not in DEMO_LANGUAGES]
        if unknown or not self.languages:
            raise ConfigError(
                f"--languages is {' '.join(self.languages) or 'empty'}, must be from {' '.join(DEMO_LANGUAGES)}",
                hint="the default is en en fa",
            )


@dataclass(frozen=True, kw_only=True)
class DemoClip:
    """One line of the corpus."""

    id: str
    kind: Kind
    text: str
    normalised: str
    speaker: str
    language: str


def plan_corpus(settings: DemoSettings = DemoSettings()) -> list[DemoClip]:  # noqa: B008 - frozen, so shared safely
    """Every clip, in order: voices and languages take turns, no text is said twice by one voice or is held out."""
    rng = random.Random(settings.seed)
    clips: list[DemoClip] = []
    said: set[tuple[str, str]] = set()
    seconds_left = settings.minutes * 60.0
    while seconds_left > 0:
        number = len(clips)
        voice = settings.speakers[number % len(settings.speakers)]
        language = settings.languages[(number // len(settings.speakers)) % len(settings.languages)]
        kind, text = draw_text(rng, language)
        normalised = normalise(text, language)
        if (voice.name, normalised) in said:
            continue
        said.add((voice.name, normalised))
        name = f"{voice.name}-{language}-{number:05d}"
        clips.append(
            DemoClip(id=name, kind=kind, text=text, normalised=normalised, speaker=voice.name, language=language)
        )
        fixed, a_character = _SECONDS_OF_CHARS[language]
        seconds_left -= fixed + a_character * len(normalised)
    return clips


def write_demo_corpus(
    folder: str | os.PathLike[str],
    settings: DemoSettings = DemoSettings(),  # noqa: B008 - frozen, so shared safely
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Speak the corpus into `folder`; what an interrupted run left is kept, and a finished corpus is returned at once.

    `progress(done, total)` is called in the calling thread after each batch of clips.
    """
    at_least("--workers", workers, 1, hint="leave it out for one a core")
    target = Path(folder)
    clips = plan_corpus(settings)
    plan_file, metadata = target / "demo.json", target / "metadata.csv"
    described = _describe(settings, clips)
    wavs = target / "wavs"
    with writing(target):
        _claim(target, plan_file, described)
        if metadata.exists():
            return target
        wavs.mkdir(exist_ok=True)
        missing = [clip for clip in clips if not (wavs / f"{clip.id}.wav").exists()]
    _speak_all(missing, wavs, workers or os.cpu_count() or 1, len(clips), progress)
    phonemes = _phoneme_lines(clips)
    with writing(target):
        _write_whole(target / "phonemes.csv", phonemes)
        _write_whole(metadata, [f"{c.id}|{c.text}|{c.normalised}|{c.speaker}|{c.language}" for c in clips])
    _logger.info("demo corpus of %d clips is in %s", len(clips), target)
    return target


def _describe(settings: DemoSettings, clips: Sequence[DemoClip]) -> dict[str, Any]:
    voices = [asdict(voice) for voice in settings.speakers]
    content = json.dumps([[asdict(clip) for clip in clips], voices, _VERSION], ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {"corpus": "myxtts-demo", "version": _VERSION, "clips": len(clips), "digest": digest, "voices": voices}


def _claim(target: Path, plan_file: Path, described: dict[str, Any]) -> None:
    """Make the folder ours, or refuse one that holds something else."""
    target.mkdir(parents=True, exist_ok=True)
    if plan_file.exists():
        try:
            found = json.loads(plan_file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found == described:
            return
        raise DataError(
            f"{target} holds a demo corpus of other settings", hint="choose another folder, or remove that one first"
        )
    if any(target.iterdir()):
        raise DataError(f"{target} is not empty", hint="choose a new or an empty folder for the demo corpus")
    _write_whole(plan_file, [json.dumps(described, ensure_ascii=False, indent=1)])


def _speak_all(
    clips: Sequence[DemoClip],
    wavs: Path,
    workers: int,
    total: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    done = total - len(clips)
    if progress:
        progress(done, total)
    jobs = [clips[start : start + _CLIPS_A_JOB] for start in range(0, len(clips), _CLIPS_A_JOB)]
    if len(jobs) <= 1 or workers == 1:
        for clip in clips:
            speak_clip(clip, wavs)
            done += 1
            if progress:
                progress(done, total)
        return
    # Threads only wait here. The processes that speak are started afresh: forking one that runs TensorFlow can hang.
    with ThreadPoolExecutor(min(workers, len(jobs))) as pool:
        running = {pool.submit(_run_worker, job, wavs): len(job) for job in jobs}
        try:
            for finished in as_completed(running):
                finished.result()
                done += running[finished]
                if progress:
                    progress(done, total)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing more is begun


def speak_clip(clip: DemoClip, wavs: Path) -> None:
    """Speak one clip into its file."""
    voice = next(voice for voice in VOICES if voice.name == clip.speaker)
    samples = speak(clip.normalised, voice, find_language(clip.language).espeak_voice)
    if len(samples) == 0:
        raise DataError(f"espeak-ng said nothing for {clip.text!r}", hint="report this text; another --seed avoids it")
    write_audio(wavs / f"{clip.id}.wav", samples, ESPEAK_SAMPLE_RATE)


def _run_worker(clips: Sequence[DemoClip], wavs: Path) -> None:
    request = json.dumps({"wavs": str(wavs.resolve()), "clips": [asdict(clip) for clip in clips]})
    package_root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    finished = subprocess.run(
        [sys.executable, "-m", "myxtts.data.demo_corpus"],
        input=request,
        text=True,
        encoding="utf-8",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(
            f"a worker that speaks the demo corpus failed: {last}", hint="run again; finished clips are kept"
        )


def _phoneme_lines(clips: Sequence[DemoClip]) -> list[str]:
    sounds: dict[tuple[str, str], str] = {}
    for language in {clip.language for clip in clips}:
        texts = sorted({clip.normalised for clip in clips if clip.language == language})
        sounds.update(zip(((text, language) for text in texts), phonemes_of_many(texts, language), strict=True))
    return [f"{clip.id}|{sounds[clip.normalised, clip.language]}" for clip in clips]


def _write_whole(path: Path, lines: Sequence[str]) -> None:
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _worker_main() -> int:
    request = json.load(sys.stdin)
    try:
        for clip in request["clips"]:
            speak_clip(DemoClip(**clip), Path(request["wavs"]))
    except MyXTTSError as error:
        sys.stderr.write(f"{error.problem}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_worker_main())
