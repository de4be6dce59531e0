"""A voice evaluated: texts spoken beside the real clips and the codec's round trip, all scored by the same metrics.

`Evaluation` speaks and scores; `summarise` averages. What failed is counted and named, never left out: silence is not
the right speaker, and a score that not all utterances have says how many have it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import resampled, write_audio
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import SynthesisError
from myxtts.evaluation.metrics import (
    WITHOUT_NATURALNESS,
    WITHOUT_PHONES,
    WITHOUT_RECOGNISER,
    WITHOUT_SPEAKER,
    MetricCalls,
    Metrics,
    PhoneMetric,
    Recogniser,
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
from myxtts.synthesis.options import SpeakingOptions
from myxtts.synthesis.speech import Speech
from myxtts.synthesis.speech_model import Codec

logger = logging.getLogger(__name__)

SPEECH, CODEC, VOCODER, REAL = "speech", "codec round trip", "mel round trip", "real clip"
SYSTEMS = (SPEECH, CODEC, VOCODER, REAL)
Wave = NDArray[np.float32]
AnyRecogniser = TypeVar("AnyRecogniser", Recogniser, PhoneMetric)


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
    """Items of one group are averaged together."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sound and its scores; None where a metric is missing or does not support the language."""

    item: str
    system: str
    text: str
    language: str
    speaker: str
    transcript: str | None = None
    """Of the recogniser."""
    words: ErrorCount | None = None
    characters: ErrorCount | None = None
    phones: ErrorCount | None = None
    similarity: float | None = None
    """Cosine to the speaker's references; None where the item's own clip is the only one."""
    other_similarity: float | None = None
    """Cosine to the reference of the most similar other speaker; None with fewer than two."""
    right_speaker: bool | None = None
    """No other speaker is more similar; None with fewer than two speakers, False where nothing was spoken."""
    naturalness: float | None = None
    seconds: float = 0.0
    length_ratio: float | None = None
    """Of the real clip's length."""
    failure: str | None = None
    """Why nothing was spoken, or what the hallucination checks still found wrong."""
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


class Speaking(Protocol):
    """What evaluation needs of `Synthesizer`; `CodecAlone` stands for a run whose GPT is not trained yet."""

    @property
    def codec(self) -> Codec | None: ...

    @property
    def speak(self) -> Callable[[str, SpeakingOptions], Speech] | None: ...


@dataclass(frozen=True)
class CodecAlone:
    """A run that cannot speak yet: clips go through its codec, and no text is spoken."""

    codec: Codec
    speak: None = None


class Evaluation:
    """Speaks items and scores every version of them."""

    def __init__(
        self, synthesizer: Speaking, metrics: Metrics, folder: Path, options: SpeakingOptions | None = None
    ) -> None:
        """`folder` gets the sounds; `options` is how texts are spoken, but for reference and language."""
        self._synthesizer, self._metrics, self._folder = synthesizer, metrics, folder
        self._options = options or SpeakingOptions()
        self._calls = MetricCalls()
        self._references: dict[str, dict[int, Vector]] = {}

    def run(self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None) -> Iterator[Row]:
        """Rows of all items as they are scored; `progress` is called with how many items are done, of how many."""
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

    def _spoken(self, item: Item, real_s: float | None, speak: Callable[[str, SpeakingOptions], Speech]) -> Row:
        try:
            speech = speak(item.text, replace(self._options, reference=[item.reference], language=item.language))
        except SynthesisError as error:
            logger.warning("%s was not spoken: %s", item.id, error.problem)
            return self._silent(item, error.problem)
        faults = ", ".join(piece.fault for piece in speech.report.faults if piece.fault) or None
        return self._evaluated(item, SPEECH, speech.wave, speech.sample_rate, real_s, faults)

    def _silent(self, item: Item, failure: str) -> Row:
        """A text that was not spoken: every word is an error, and the speaker is not the right one."""
        transcribed = _for_language(self._metrics.recogniser, item) is not None
        phones, voices = _for_language(self._metrics.phones, item), self._voices(item)
        return Row(
            item=item.id,
            system=SPEECH,
            text=item.text,
            language=item.language,
            speaker=item.speaker,
            words=word_errors(item.text, "", item.language) if transcribed else None,
            characters=character_errors(item.text, "", item.language) if transcribed else None,
            phones=None if phones is None else phone_errors(item.text, [], item.language),
            right_speaker=False if item.speaker in voices and len(voices) > 1 else None,
            failure=failure,
            group=item.group,
        )

    def _evaluated(
        self, item: Item, system: str, wave: Wave, rate: int, real_s: float | None, failure: str | None = None
    ) -> Row:
        name = f"{item.id}-{system.replace(' ', '-')}.wav".replace("/", "_")
        write_audio(self._folder / name, wave, rate)
        metrics, sound, errors = self._metrics, f"{item.id} ({system})", dict[str, str]()
        transcript = self._calls.call(
            _for_language(metrics.recogniser, item),
            lambda metric: _transcript(metric, wave, rate),
            sound=sound,
            errors=errors,
            without=WITHOUT_RECOGNISER,
        )
        phones = self._calls.call(
            _for_language(metrics.phones, item),
            lambda metric: metric.recognise([resampled(wave, rate, SAMPLE_RATE)])[0],
            sound=sound,
            errors=errors,
            without=WITHOUT_PHONES,
        )
        naturalness = self._calls.call(
            metrics.naturalness,
            lambda metric: float(metric.score(wave, rate)),
            sound=sound,
            errors=errors,
            without=WITHOUT_NATURALNESS,
        )
        vector = self._speaker_vector(wave, rate, sound, errors)
        similarity, other_similarity = (None, None) if vector is None else self._similarities(item, vector)
        return Row(
            item=item.id,
            system=system,
            text=item.text,
            language=item.language,
            speaker=item.speaker,
            transcript=transcript,
            words=None if transcript is None else word_errors(item.text, transcript, item.language),
            characters=None if transcript is None else character_errors(item.text, transcript, item.language),
            phones=None if phones is None else phone_errors(item.text, phones, item.language),
            similarity=similarity,
            other_similarity=other_similarity,
            right_speaker=None if similarity is None or other_similarity is None else similarity > other_similarity,
            naturalness=naturalness,
            seconds=len(wave) / rate,
            length_ratio=len(wave) / rate / real_s if real_s else None,
            failure=failure,
            metric_errors=errors,
            path=name,
            group=item.group,
        )

    def _speaker_vector(self, wave: Wave, rate: int, sound: str, errors: dict[str, str]) -> Vector | None:
        return self._calls.call(
            self._metrics.speaker,
            lambda metric: metric.embed(wave, rate),
            sound=sound,
            errors=errors,
            without=WITHOUT_SPEAKER,
        )

    def _similarities(self, item: Item, vector: Vector) -> tuple[float | None, float | None]:
        """To the item's speaker, and to the most similar other one; None where nothing is left to compare with."""
        to = {speaker: cosine(vector, voice) for speaker, voice in self._voices(item).items()}
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
        """For each speaker, the vectors of its references by clip."""
        vectors: dict[str, dict[int, Vector]] = {}
        tried: set[tuple[str, int]] = set()
        for item in items:
            clip = _clip_key(item.reference)
            if (item.speaker, clip) in tried:
                continue
            tried.add((item.speaker, clip))
            vector = self._speaker_vector(item.reference, SAMPLE_RATE, f"the reference of {item.id}", {})
            if vector is not None:
                vectors.setdefault(item.speaker, {})[clip] = vector
        return vectors


def _for_language(metric: AnyRecogniser | None, item: Item) -> AnyRecogniser | None:
    """The metric where it supports the item's language."""
    return metric if metric is not None and item.language in metric.languages else None


def _clip_key(wave: Wave) -> int:
    return hash(wave.tobytes())


def _transcript(recogniser: Recogniser, wave: Wave, rate: int) -> str:
    transcript = recogniser.transcribe(wave, rate)
    if not isinstance(transcript, str):  # it may be one of the user's own
        raise TypeError(f"it answered {transcript!r}, which is no text")
    return transcript


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
