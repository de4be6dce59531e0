"""A voice evaluated: texts spoken beside the real clips and the codec's round trip, each heard by the same metrics.

`Evaluation` speaks and metrics; `summarise` adds up. What failed is counted and named, never left out: silence is not
the right voice, and a score that not all utterances have says how many have it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import resampled, write_audio
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import SynthesisError
from myxtts.evaluation.asking import Asking
from myxtts.evaluation.metrics import (
    WITHOUT_NATURALNESS,
    WITHOUT_PHONES,
    WITHOUT_RECOGNISER,
    WITHOUT_SPEAKER,
    Metrics,
    Recogniser,
    SpeakerJudge,
)
from myxtts.evaluation.scoring import (
    ErrorCount,
    Vector,
    character_errors,
    cosine,
    known,
    mean,
    phone_errors,
    pooled,
    word_errors,
)
from myxtts.synthesis.hallucinations import HallucinationChecks
from myxtts.synthesis.speech import Speech

logger = logging.getLogger(__name__)

SPEECH, CODEC, VOCODER, REAL = "speech", "codec round trip", "mel round trip", "real clip"
SYSTEMS = (SPEECH, CODEC, VOCODER, REAL)
Wave = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One text to speak in one speaker's voice, beside the real clip where there is one."""

    id: str
    text: str
    language: str
    speaker: str
    reference: Wave
    """Another clip of the speaker, at 22,050 samples a second."""
    real: Wave | None = None
    group: str = ""
    """Items of one group are summed up together."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sound and what the metrics say of it; None where a metric is missing or does not know the language."""

    item: str
    system: str
    text: str
    language: str
    speaker: str
    heard: str | None = None
    words: ErrorCount | None = None
    characters: ErrorCount | None = None
    phones: ErrorCount | None = None
    similarity: float | None = None
    """Cosine to the speaker's references; None where the item's own clip is the only one."""
    other_similarity: float | None = None
    """Cosine to the reference of the most similar other speaker; None with fewer than two."""
    right_speaker: bool | None = None
    """No other speaker is more similar; None with fewer than two. Nobody's voice is heard where nothing was spoken."""
    naturalness: float | None = None
    seconds: float = 0.0
    length_ratio: float | None = None
    """Of the real clip's length."""
    failure: str | None = None
    """Why nothing was spoken, or what the checks still found wrong."""
    metric_errors: dict[str, str] = field(default_factory=dict)
    """Metrics that failed on this sound, by name, with their reasons."""
    path: str | None = None
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means over one system's rows of one group."""

    group: str
    system: str
    utterances: int
    word_error: float | None
    character_error: float | None
    phone_error: float | None
    similarity: float | None
    other_similarity: float | None
    right_speaker: float | None
    naturalness: float | None
    length_ratio: float | None
    failures: int
    evaluated: dict[str, int]
    """How many utterances have a score, for those scores that some have and others not."""


class Speak(Protocol):
    """A text in the voice of a reference."""

    def __call__(
        self, text: str, *, reference: Any, language: str, seed: int, checks: HallucinationChecks | None
    ) -> Speech: ...


class Speaking(Protocol):
    """What evaluation needs of `Synthesizer`; of a run whose GPT has not learnt yet, `CodecAlone`."""

    @property
    def codec(self) -> Any: ...

    @property
    def speak(self) -> Speak | None: ...


@dataclass(frozen=True)
class CodecAlone:
    """What cannot speak yet: clips go through its codec, and no text is spoken."""

    codec: Any
    speak: None = None


class Evaluation:
    """Speaks items and metrics every version of them."""

    def __init__(
        self,
        synthesizer: Speaking,
        metrics: Metrics,
        folder: Path,
        *,
        seed: int = 0,
        checks: HallucinationChecks | None,
    ) -> None:
        self._synthesizer, self._metrics, self._folder = synthesizer, metrics, folder
        self._options: dict[str, Any] = {"seed": seed, "checks": checks}
        self._asking = Asking()
        self._references: dict[str, dict[int, Vector]] = {}

    def run(self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None) -> Iterator[Row]:
        self._references = self._reference_vectors(items)
        for number, item in enumerate(items, 1):
            yield from self._versions(item)
            if progress is not None:
                progress(number, len(items))

    def _versions(self, item: Item) -> Iterator[Row]:
        real_s = None if item.real is None else len(item.real) / SAMPLE_RATE
        if self._synthesizer.speak is not None:
            yield self._spoken(item, real_s, self._synthesizer.speak)
        if item.real is None:
            return
        if self._synthesizer.codec is not None:
            coded = self._synthesizer.codec.round_trip(item.real)
            yield self._evaluated(item, CODEC, coded, SAMPLE_RATE, real_s)
            yield self._evaluated(
                item, VOCODER, self._synthesizer.codec.griffin_lim_only(item.real), SAMPLE_RATE, real_s
            )
        yield self._evaluated(item, REAL, item.real, SAMPLE_RATE, real_s)

    def _spoken(self, item: Item, real_s: float | None, speak: Speak) -> Row:
        try:
            speech = speak(item.text, reference=[item.reference], language=item.language, **self._options)
        except SynthesisError as error:
            logger.warning("%s was not spoken: %s", item.id, error.problem)
            return self._silent(item, error.problem)
        faults = ", ".join(piece.fault for piece in speech.report.faults if piece.fault) or None
        return self._evaluated(item, SPEECH, speech.wave, speech.sample_rate, real_s, faults)

    def _silent(self, item: Item, failure: str) -> Row:
        """A text that was not spoken: all of it was missed, and in nobody's voice."""
        heard, voices = self._hears(item), self._voices(item)
        return Row(
            item=item.id,
            system=SPEECH,
            text=item.text,
            language=item.language,
            speaker=item.speaker,
            words=word_errors(item.text, "", item.language) if heard else None,
            characters=character_errors(item.text, "", item.language) if heard else None,
            phones=phone_errors(item.text, [], item.language) if self._knows_phones(item) else None,
            right_speaker=False if item.speaker in voices and len(voices) > 1 else None,
            failure=failure,
            group=item.group,
        )

    def _evaluated(
        self, item: Item, system: str, wave: Wave, rate: int, real_s: float | None, failure: str | None = None
    ) -> Row:
        name = f"{item.id}-{system.replace(' ', '-')}.wav".replace("/", "_")
        write_audio(self._folder / name, wave, rate)
        metrics, sound = self._metrics, self._asking.about(f"{item.id} ({system})")
        heard = sound.ask(
            metrics.recogniser if self._hears(item) else None,
            lambda metric: _text(metric, wave, rate),
            without=WITHOUT_RECOGNISER,
        )
        phones = sound.ask(
            metrics.phones if self._knows_phones(item) else None,
            lambda metric: metric.hear([resampled(wave, rate, SAMPLE_RATE)])[0],
            without=WITHOUT_PHONES,
        )
        vector = sound.ask(metrics.speaker, lambda metric: metric.embed(wave, rate), without=WITHOUT_SPEAKER)
        naturalness = sound.ask(
            metrics.naturalness, lambda metric: float(metric.score(wave, rate)), without=WITHOUT_NATURALNESS
        )
        similarity, other_similarity = (None, None) if vector is None else self._similarities(item, vector)
        return Row(
            item=item.id,
            system=system,
            text=item.text,
            language=item.language,
            speaker=item.speaker,
            heard=heard,
            words=None if heard is None else word_errors(item.text, heard, item.language),
            characters=None if heard is None else character_errors(item.text, heard, item.language),
            phones=None if phones is None else phone_errors(item.text, phones, item.language),
            similarity=similarity,
            other_similarity=other_similarity,
            right_speaker=None if similarity is None or other_similarity is None else similarity > other_similarity,
            naturalness=naturalness,
            seconds=len(wave) / rate,
            length_ratio=len(wave) / rate / real_s if real_s else None,
            failure=failure,
            metric_errors=sound.errors,
            path=name,
            group=item.group,
        )

    def _hears(self, item: Item) -> bool:
        recogniser = self._metrics.recogniser
        return recogniser is not None and item.language in recogniser.languages

    def _knows_phones(self, item: Item) -> bool:
        return self._metrics.phones is not None and item.language in self._metrics.phones.languages

    def _similarities(self, item: Item, heard: Vector) -> tuple[float | None, float | None]:
        """To the item's speaker, and to the most similar other one; None where nothing is left to compare with."""
        to = {speaker: cosine(heard, voice) for speaker, voice in self._voices(item).items()}
        return to.pop(item.speaker, None), max(to.values(), default=None)

    def _voices(self, item: Item) -> dict[str, Vector]:
        """Each speaker as the mean of its references but for the item's own clip, which would be compared with itself.

        A speaker of whom nothing else is there is left out.
        """
        own_clip = None if item.real is None else _clip_key(item.real)
        voices: dict[str, Vector] = {}
        for speaker, vectors in self._references.items():
            kept = [vector for clip, vector in vectors.items() if clip != own_clip]
            if kept:
                voices[speaker] = np.asarray(np.mean(kept, axis=0), np.float32)
        return voices

    def _reference_vectors(self, items: Sequence[Item]) -> dict[str, dict[int, Vector]]:
        """For each speaker, its references as the metric hears them, by clip."""
        vectors: dict[str, dict[int, Vector]] = {}
        tried: set[tuple[str, int]] = set()
        for item in items:
            clip = _clip_key(item.reference)
            if (item.speaker, clip) in tried:
                continue
            tried.add((item.speaker, clip))
            vector = self._asking.about(f"the reference of {item.id}").ask(
                self._metrics.speaker,
                partial(_embedded, wave=item.reference),
                without=WITHOUT_SPEAKER,
            )
            if vector is not None:
                vectors.setdefault(item.speaker, {})[clip] = vector
        return vectors


def _clip_key(wave: Wave) -> int:
    return hash(wave.tobytes())


def _embedded(metric: SpeakerJudge, wave: Wave) -> Vector:
    return metric.embed(wave, SAMPLE_RATE)


def _text(metric: Recogniser, wave: Wave, rate: int) -> str:
    heard = metric.transcribe(wave, rate)
    if not isinstance(heard, str):  # it may be one of the user's own
        raise TypeError(f"it answered {heard!r}, which is no text")
    return heard


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """One line for each group and system that has rows; groups in their order, speech first."""
    groups = dict.fromkeys(row.group for row in rows)
    lines = []
    for group, system in ((group, system) for group in groups for system in SYSTEMS):
        own = [row for row in rows if row.group == group and row.system == system]
        if not own:
            continue
        lines.append(_summary(group, system, own))
    return lines


def _summary(group: str, system: str, rows: Sequence[Row]) -> Summary:
    counts = {
        "word_error": [row.words for row in rows],
        "character_error": [row.characters for row in rows],
        "phone_error": [row.phones for row in rows],
    }
    values = {
        "similarity": [row.similarity for row in rows],
        "other_similarity": [row.other_similarity for row in rows],
        "right_speaker": [None if row.right_speaker is None else float(row.right_speaker) for row in rows],
        "naturalness": [row.naturalness for row in rows],
        "length_ratio": [row.length_ratio for row in rows],
    }
    evaluated = {name: sum(count is not None for count in own) for name, own in counts.items()}
    evaluated |= {name: len(known(own)) for name, own in values.items()}
    return Summary(
        group=group,
        system=system,
        utterances=len(rows),
        failures=sum(row.failure is not None for row in rows),
        evaluated={name: number for name, number in evaluated.items() if 0 < number < len(rows)},
        **{name: pooled(own) for name, own in counts.items()},
        **{name: mean(own) for name, own in values.items()},
    )


def as_json(
    rows: Sequence[Row], summaries: Sequence[Summary], metrics: Metrics, about: dict[str, Any]
) -> dict[str, Any]:
    names = {
        "recogniser": metrics.recogniser.name if metrics.recogniser else None,
        "phones": metrics.phones.name if metrics.phones else None,
        "speaker": metrics.speaker.name if metrics.speaker else None,
        "naturalness": metrics.naturalness.name if metrics.naturalness else None,
    }
    return {
        **about,
        "metrics": names,
        "missing": metrics.missing,
        "summary": [asdict(line) for line in summaries],
        "utterances": [asdict(row) for row in rows],
    }
