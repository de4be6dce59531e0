"""Recognisers for `collect`: moonshine, faster-whisper with a model of the user's, a command, or a plug-in.

Each is a `Recogniser` of `myxtts.evaluation.metrics`. Those that run a process for each piece may be called from
several threads at once; any other is called by one at a time.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from myxtts.audio.io import resampled, write_audio
from myxtts.errors import ConfigError, MetricError, MissingDependencyError, UsageError
from myxtts.evaluation.metrics import (
    INSTALL,
    METRIC_SAMPLE_RATE,
    TRANSCRIBING_LIMIT_S,
    Moonshine,
    Recogniser,
    Wave,
    load_recogniser,
    reason_of,
)

WHISPER = "faster-whisper"
_OTHERS = (
    "--script TEXT.txt where the words that were read are known (no recogniser is needed), or "
    "--recogniser faster-whisper:MODEL_FOLDER, or --recogniser-command 'PROGRAM {wav}'"
)


class CommandRecogniser:
    """A program that prints the text of a wav file; run without a shell, the file's path for `{wav}`."""

    languages: frozenset[str] = frozenset()

    def __init__(self, command: str) -> None:
        self.name = command
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(
                f"--recogniser-command {command!r} cannot be read: {error}", hint="close its quotation marks"
            ) from error
        if not any("{wav}" in word for word in self._words):
            raise UsageError(
                f"--recogniser-command {command!r} has no {{wav}}",
                hint="write {wav} where the program takes the file, as in 'my-recogniser {wav}'",
            )
        if shutil.which(self._words[0]) is None:
            raise UsageError(
                f"--recogniser-command: there is no program {self._words[0]!r}", hint="install it, or give its path"
            )

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        with tempfile.TemporaryDirectory(prefix="myxtts-collect-") as folder:
            wav = Path(folder) / "piece.wav"
            write_audio(wav, resampled(wave, sample_rate, METRIC_SAMPLE_RATE), METRIC_SAMPLE_RATE)
            try:
                done = subprocess.run(
                    [word.replace("{wav}", str(wav)) for word in self._words],
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    check=False,
                    timeout=TRANSCRIBING_LIMIT_S,
                )
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(f"no answer in {TRANSCRIBING_LIMIT_S:g} seconds") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise RuntimeError(f"exit code {done.returncode}" + (f": {said}" if said else ""))
        return " ".join(done.stdout.decode("utf-8", errors="replace").split())


class FasterWhisper:
    """A Whisper model in CTranslate2's form, which the user has."""

    languages: frozenset[str] = frozenset()

    def __init__(self, model: str, language: str) -> None:
        if importlib.util.find_spec("faster_whisper") is None:
            raise MissingDependencyError(
                f"--recogniser {WHISPER} needs faster-whisper, which is not installed",
                hint="pip install -c constraints.txt faster-whisper",
            )
        from faster_whisper import WhisperModel

        try:
            self._model = WhisperModel(model, device="auto", compute_type="default")
        except Exception as error:  # others' code
            raise ConfigError(
                f"--recogniser {WHISPER}:{model} cannot be loaded: {reason_of(error)}",
                hint="name the folder of a model in CTranslate2's form (model.bin, config.json, tokenizer.json)",
            ) from error
        self.name = f"{WHISPER} {model}"
        self._language = language.split("-")[0]

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        samples = resampled(wave, sample_rate, METRIC_SAMPLE_RATE)
        # Nothing of an earlier piece: it would repeat that one's words in a pause.
        segments, _ = self._model.transcribe(samples, language=self._language, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in segments)


class OneAtATime:
    """A recogniser that may not know threads, behind a lock."""

    def __init__(self, recogniser: Recogniser) -> None:
        self.name, self.languages = recogniser.name, recogniser.languages
        self._recogniser, self._lock = recogniser, threading.Lock()

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        with self._lock:
            return self._recogniser.transcribe(wave, sample_rate)


def find_recogniser(name: str, command: str | None, language: str) -> Recogniser:
    """The recogniser of the flags `--recogniser` and `--recogniser-command`, for this language."""
    if command is not None:
        return CommandRecogniser(command)
    kind, _, model = name.partition(":")
    if kind == WHISPER:
        if not model:
            raise UsageError(
                f"--recogniser {WHISPER} names no model", hint=f"--recogniser {WHISPER}:MODEL_FOLDER, which you have"
            )
        return OneAtATime(FasterWhisper(model, language))
    found = _moonshine(language) if name == "moonshine" else load_recogniser(name, flag="--recogniser")
    if found.languages and language not in found.languages:
        known = ", ".join(sorted(found.languages))
        raise ConfigError(f"{found.name} recognises {known}, not {language!r}", hint=f"use {_OTHERS}")
    return found if isinstance(found, Moonshine) else OneAtATime(found)


def _moonshine(language: str) -> Recogniser:
    if language not in Moonshine.languages:
        raise ConfigError(f"{Moonshine.name} recognises en, not {language!r}", hint=f"use {_OTHERS}")
    if importlib.util.find_spec("moonshine_voice") is None:
        raise MissingDependencyError(
            "no recogniser: moonshine, which is for English only, needs moonshine-voice, which is not installed",
            hint=f"{INSTALL}, or {_OTHERS}",
        )
    try:
        return Moonshine()
    except Exception as error:  # others' code
        raise MetricError(f"moonshine does not load: {reason_of(error)}", hint=f"mend it, or use {_OTHERS}") from error
