"""The metrics: a speech recogniser, a speaker encoder and a model of naturalness that were trained by others.

Each is optional. `find_metrics` loads those that are installed and says which are missing and how to get them. Another
recogniser is any object with a `name`, its `languages` and `transcribe`, named as "package.module:factory".
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import resampled
from myxtts.errors import ConfigError, MetricError, MissingDependencyError, how_to_install

if TYPE_CHECKING:
    from myxtts.data.prepared import PreparedCorpus

logger = logging.getLogger(__name__)

METRIC_SAMPLE_RATE = 16000
Wave = NDArray[np.float32]
INSTALL = how_to_install("eval")
WITHOUT_RECOGNISER = "myxtts evaluate with --asr none"
WITHOUT_PHONES = "myxtts evaluate with --no-phones"
WITHOUT_SPEAKER = "pip uninstall resemblyzer"
WITHOUT_NATURALNESS = "pip uninstall distillmos"
TRANSCRIBING_LIMIT_S = 120.0
"""For one utterance; it takes two or three seconds, most of them to load the model."""


@runtime_checkable
class Recogniser(Protocol):
    """Speech to text."""

    name: str
    languages: frozenset[str]

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        """The words in the wave; may not depend on earlier calls."""


class SpeakerMetric(Protocol):
    """Speech to a vector that is alike for one speaker and different between two."""

    name: str

    def embed(self, wave: Wave, sample_rate: int) -> NDArray[np.float32]: ...


class NaturalnessMetric(Protocol):
    """Speech to a mean opinion score, 1 to 5."""

    name: str

    def score(self, wave: Wave, sample_rate: int) -> float: ...


class PhoneMetric(Protocol):
    """Speech at 22,050 samples a second to the sounds in it, for the languages of one corpus."""

    name: str
    languages: frozenset[str]

    def recognise(self, waves: Sequence[Wave]) -> list[list[str]]: ...


@dataclass
class Metrics:
    """The metrics that are installed, and why the others are missing."""

    recogniser: Recogniser | None = None
    phones: PhoneMetric | None = None
    speaker: SpeakerMetric | None = None
    naturalness: NaturalnessMetric | None = None
    missing: list[str] = field(default_factory=list)


def find_metrics(recogniser: str = "moonshine") -> Metrics:
    """Load what is installed; a recogniser that was named and cannot be loaded is a `ConfigError`."""
    metrics = Metrics()
    if recogniser == "moonshine":
        metrics.recogniser = _if_installed(metrics, "intelligibility", ("moonshine_voice",), Moonshine)
    elif recogniser != "none":
        metrics.recogniser = load_recogniser(recogniser)
    metrics.speaker = _if_installed(metrics, "speaker similarity", ("resemblyzer", "torch"), Resemblyzer)
    metrics.naturalness = _if_installed(metrics, "naturalness", ("distillmos", "torch"), DistillMos)
    return metrics


def add_phone_metric(
    metrics: Metrics,
    corpus: Path,
    prepared: PreparedCorpus,
    cache: Path,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Add a recogniser of the corpus's phones, trained on its recordings on first use; needs its phonemes.csv."""
    if not (corpus / "phonemes.csv").is_file():
        metrics.missing.append(f"phone errors need {corpus / 'phonemes.csv'}, which is not there")
        return
    from myxtts.evaluation.phones import recogniser_of  # imports TensorFlow

    metrics.phones = recogniser_of(corpus, prepared, cache, progress=progress)


def refuse_without_metrics(metrics: Metrics) -> None:
    """Raise `MissingDependencyError` where there is nothing to score with."""
    if not any((metrics.recogniser, metrics.phones, metrics.speaker, metrics.naturalness)):
        raise MissingDependencyError(f"no metric is installed: {'; '.join(metrics.missing)}", hint=INSTALL)


def load_recogniser(name: str, *, flag: str = "--asr") -> Recogniser:
    """A recogniser of the user's, from "package.module:factory"; `flag` is what named it."""
    module_name, _, factory = name.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), factory)()
    except Exception as error:  # the user's code, which may raise anything
        raise ConfigError(
            f"{flag} {name} cannot be loaded: {reason_of(error)}",
            hint="write it as package.module:factory, mend the factory, or use moonshine",
        ) from error
    if not isinstance(made, Recogniser):
        raise ConfigError(
            f"{flag} {name} made no recogniser",
            hint="it needs name, languages and transcribe(wave, sample_rate) -> str",
        )
    return made


def _if_installed(metrics: Metrics, what: str, modules: tuple[str, ...], metric: Any) -> Any:
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        metrics.missing.append(f"{what} needs {absent[0]}, which is not installed")
        return None
    try:
        return metric()
    except Exception as error:  # noqa: BLE001 - others' code
        # A metric that is installed and broken (a C++ library of another version) is missing too, with its reason.
        metrics.missing.append(f"{what}: {metric.__name__} does not load: {reason_of(error)}")
        return None


FIRST_SOUNDS = 3
"""A metric that has failed so often and never succeeded is broken."""


class Metric(Protocol):
    name: str


AnyMetric = TypeVar("AnyMetric", bound=Metric)
Score = TypeVar("Score")


class MetricCalls:
    """Calls of the metrics, which are others' code: a failure on one sound costs that score and no more.

    A metric that fails on each of the first sounds would fail on all: that is a `MetricError` with its reason.
    """

    def __init__(self) -> None:
        self._successes: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def call(
        self,
        metric: AnyMetric | None,
        compute: Callable[[AnyMetric], Score],
        *,
        sound: str,
        errors: dict[str, str],
        without: str,
    ) -> Score | None:
        """What the metric computes; None where there is no metric, or where it failed.

        The reason of a failure is added to `errors` under the metric's name. For messages, `sound` names the sound and
        `without` says how to evaluate without the metric.
        """
        if metric is None:
            return None
        try:
            score = compute(metric)
        except Exception as error:  # others' code, which may raise anything
            errors[metric.name] = reason = reason_of(error)
            self._failures[metric.name] += 1
            if not self._successes[metric.name] and self._failures[metric.name] == FIRST_SOUNDS:
                raise MetricError(
                    f"{metric.name} failed on each of the first {FIRST_SOUNDS} sounds, lastly {sound}: {reason}",
                    hint=f"mend it, or evaluate without it: {without}",
                ) from error
            logger.warning("%s failed on %s: %s", metric.name, sound, reason)
            return None
        self._successes[metric.name] += 1
        return score


def reason_of(error: Exception) -> str:
    """In one line: of a traceback, its last."""
    last = (str(error).strip().splitlines() or [""])[-1].strip()
    return f"{type(error).__name__}: {last}" if last else type(error).__name__


class Moonshine:
    """moonshine-voice's tiny English model, whose package has its weights."""

    name = "moonshine tiny-en"
    languages = frozenset({"en"})

    def __init__(self) -> None:
        self.transcribe(np.zeros(0, np.float32), METRIC_SAMPLE_RATE)

    def transcribe(self, wave: Wave, sample_rate: int) -> str:
        samples = resampled(wave, sample_rate, METRIC_SAMPLE_RATE).astype("<f4").tobytes()
        worker = [sys.executable, "-m", "myxtts.evaluation.moonshine_worker"]
        try:
            done = subprocess.run(worker, input=samples, capture_output=True, check=False, timeout=TRANSCRIBING_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"no answer in {TRANSCRIBING_LIMIT_S:g} seconds") from error
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip()[-500:] or f"exit code {done.returncode}")
        transcript: str = json.loads(done.stdout.splitlines()[-1])
        return transcript


class Resemblyzer:
    """Resemblyzer's speaker encoder, whose package has its weights."""

    name = "Resemblyzer"

    def __init__(self) -> None:
        lacking = importlib.util.find_spec("pkg_resources") is None
        with _stand_ins([_pkg_resources()] if lacking else []):
            import resemblyzer

        self._prepare = resemblyzer.preprocess_wav
        self._encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)

    def embed(self, wave: Wave, sample_rate: int) -> NDArray[np.float32]:
        prepared = self._prepare(resampled(wave, sample_rate, METRIC_SAMPLE_RATE), source_sr=METRIC_SAMPLE_RATE)
        if len(prepared) < METRIC_SAMPLE_RATE // 5:  # its voice detector found no speech: take the sound as it is
            prepared = resampled(wave, sample_rate, METRIC_SAMPLE_RATE)
        return np.asarray(self._encoder.embed_utterance(prepared), np.float32)


class DistillMos:
    """DistillMOS, whose package has its weights."""

    name = "DistillMOS"

    def __init__(self) -> None:
        import torch

        with _stand_ins([_torchaudio()]):
            import distillmos
        self._torch = torch
        with redirect_stdout(sys.stderr):  # it prints where its weights are, and standard output is ours
            self._model = distillmos.ConvTransformerSQAModel()
        self._model.eval()

    def score(self, wave: Wave, sample_rate: int) -> float:
        with self._torch.no_grad():
            return float(self._model(self._torch.from_numpy(resampled(wave, sample_rate, METRIC_SAMPLE_RATE))[None]))


@contextmanager
def _stand_ins(modules: Iterable[types.ModuleType]) -> Iterator[None]:
    """Modules that a metric imports and never needs, in the place of ones that are missing or do not load."""
    added = [module.__name__ for module in modules if module.__name__ not in sys.modules]
    sys.modules.update({module.__name__: module for module in modules if module.__name__ in added})
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def _torchaudio() -> types.ModuleType:
    """DistillMOS imports it for reading files, which it never does here; wheels of it do not fit torch 2.13."""
    return types.ModuleType("torchaudio")


def _pkg_resources() -> types.ModuleType:
    """webrtcvad asks it for its own version; setuptools no longer has it."""
    module = types.ModuleType("pkg_resources")
    module.get_distribution = importlib.metadata.distribution  # type: ignore[attr-defined]
    return module
