"""A voice judged: texts spoken beside the real clips and the codec's round trip, each heard by the same judges.

`Evaluation` speaks and judges; `summarise` adds up. What failed is counted and named, never left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import soxr
from numpy.typing import NDArray

from myxtts.audio.io import write_audio
from myxtts.audio.mel import SAMPLE_RATE
from myxtts.errors import SynthesisError
from myxtts.evaluation.judges import Judges
from myxtts.evaluation.scoring import (
    ErrorCount,
    Vector,
    character_errors,
    cosine,
    mean,
    phone_errors,
    pooled,
    word_errors,
)
from myxtts.models.guards import GuardConfig
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
    """One sound and what the judges say of it; None where a judge is missing or does not know the language."""

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
    """No other speaker is more similar; None with fewer than two."""
    naturalness: float | None = None
    seconds: float = 0.0
    length_ratio: float | None = None
    """Of the real clip's length."""
    failure: str | None = None
    """Why nothing was spoken, or what the guards still found wrong."""
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


class Speaking(Protocol):
    """What evaluation needs of `Synthesizer`."""

    codec: Any

    def speak(self, text: str, *, reference: Any, language: str, seed: int, guards: GuardConfig | None) -> Speech: ...


class Evaluation:
    """Speaks items and judges every version of them."""

    def __init__(
        self, synthesizer: Speaking, judges: Judges, folder: Path, *, seed: int = 0, guards: GuardConfig | None
    ) -> None:
        self._synthesizer, self._judges, self._folder = synthesizer, judges, folder
        self._manner: dict[str, Any] = {"seed": seed, "guards": guards}
        self._references: dict[str, dict[int, Vector]] = {}

    def run(self, items: Sequence[Item], progress: Callable[[int, int], None] | None = None) -> Iterator[Row]:
        self._references = self._reference_vectors(items)
        for number, item in enumerate(items, 1):
            yield from self._versions(item)
            if progress is not None:
                progress(number, len(items))

    def _versions(self, item: Item) -> Iterator[Row]:
        real_s = None if item.real is None else len(item.real) / SAMPLE_RATE
        try:
            speech = self._synthesizer.speak(
                item.text, reference=[item.reference], language=item.language, **self._manner
            )
        except SynthesisError as error:
            logger.warning("%s was not spoken: %s", item.id, error.problem)
            yield Row(
                item=item.id,
                system=SPEECH,
                text=item.text,
                language=item.language,
                speaker=item.speaker,
                failure=error.problem,
                group=item.group,
                words=word_errors(item.text, "", item.language) if self._hears(item) else None,
                characters=character_errors(item.text, "", item.language) if self._hears(item) else None,
                phones=phone_errors(item.text, [], item.language) if self._judges.phones else None,
            )
        else:
            faults = ", ".join(piece.fault for piece in speech.report.faults if piece.fault) or None
            yield self._judged(item, SPEECH, speech.wave, speech.sample_rate, real_s, faults)
        if item.real is None:
            return
        if self._synthesizer.codec is not None:
            coded = self._synthesizer.codec.round_trip(item.real)
            yield self._judged(item, CODEC, coded, SAMPLE_RATE, real_s)
            yield self._judged(item, VOCODER, self._synthesizer.codec.griffin_lim_only(item.real), SAMPLE_RATE, real_s)
        yield self._judged(item, REAL, item.real, SAMPLE_RATE, real_s)

    def _judged(
        self, item: Item, system: str, wave: Wave, rate: int, real_s: float | None, failure: str | None = None
    ) -> Row:
        name = f"{item.id}-{system.replace(' ', '-')}.wav".replace("/", "_")
        write_audio(self._folder / name, wave, rate)
        heard = (
            self._judges.recogniser.transcribe(wave, rate) if self._hears(item) and self._judges.recogniser else None
        )
        similarity, other_similarity = self._similarities(item, wave, rate)
        return Row(
            item=item.id,
            system=system,
            text=item.text,
            language=item.language,
            speaker=item.speaker,
            heard=heard,
            words=None if heard is None else word_errors(item.text, heard, item.language),
            characters=None if heard is None else character_errors(item.text, heard, item.language),
            phones=self._phones(item, wave, rate),
            similarity=similarity,
            other_similarity=other_similarity,
            right_speaker=None if similarity is None or other_similarity is None else similarity > other_similarity,
            naturalness=None if self._judges.naturalness is None else self._judges.naturalness.score(wave, rate),
            seconds=len(wave) / rate,
            length_ratio=len(wave) / rate / real_s if real_s else None,
            failure=failure,
            path=name,
            group=item.group,
        )

    def _hears(self, item: Item) -> bool:
        recogniser = self._judges.recogniser
        return recogniser is not None and item.language in recogniser.languages

    def _phones(self, item: Item, wave: Wave, rate: int) -> ErrorCount | None:
        if self._judges.phones is None:
            return None
        at_rate = wave if rate == SAMPLE_RATE else soxr.resample(wave, rate, SAMPLE_RATE)
        return phone_errors(item.text, self._judges.phones.hear([np.asarray(at_rate, np.float32)])[0], item.language)

    def _similarities(self, item: Item, wave: Wave, rate: int) -> tuple[float | None, float | None]:
        """To the item's speaker, and to the most similar other one; None where nothing is left to compare with.

        A speaker is the mean of its references but for the item's own clip, which would be compared with itself.
        """
        if self._judges.speaker is None:
            return None, None
        heard = self._judges.speaker.embed(wave, rate)
        own_clip = None if item.real is None else _clip_key(item.real)
        to: dict[str, float] = {}
        for speaker, vectors in self._references.items():
            kept = [vector for clip, vector in vectors.items() if clip != own_clip]
            if kept:
                to[speaker] = cosine(heard, np.asarray(np.mean(kept, axis=0), np.float32))
        return to.pop(item.speaker, None), max(to.values(), default=None)

    def _reference_vectors(self, items: Sequence[Item]) -> dict[str, dict[int, Vector]]:
        """For each speaker, its references as the judge hears them, by clip."""
        judge = self._judges.speaker
        if judge is None:
            return {}
        heard: dict[str, dict[int, Vector]] = {}
        for item in items:
            of_speaker, clip = heard.setdefault(item.speaker, {}), _clip_key(item.reference)
            if clip not in of_speaker:
                of_speaker[clip] = judge.embed(item.reference, SAMPLE_RATE)
        return heard


def _clip_key(wave: Wave) -> int:
    return hash(wave.tobytes())


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """One line for each group and system that has rows; groups in their order, speech first."""
    groups = dict.fromkeys(row.group for row in rows)
    lines = []
    for group, system in ((group, system) for group in groups for system in SYSTEMS):
        own = [row for row in rows if row.group == group and row.system == system]
        if not own:
            continue
        lines.append(
            Summary(
                group=group,
                system=system,
                utterances=len(own),
                word_error=pooled(row.words for row in own),
                character_error=pooled(row.characters for row in own),
                phone_error=pooled(row.phones for row in own),
                similarity=mean(row.similarity for row in own),
                other_similarity=mean(row.other_similarity for row in own),
                right_speaker=mean(None if row.right_speaker is None else float(row.right_speaker) for row in own),
                naturalness=mean(row.naturalness for row in own),
                length_ratio=mean(row.length_ratio for row in own),
                failures=sum(row.failure is not None for row in own),
            )
        )
    return lines


def as_json(rows: Sequence[Row], summaries: Sequence[Summary], judges: Judges, about: dict[str, Any]) -> dict[str, Any]:
    names = {
        "recogniser": judges.recogniser.name if judges.recogniser else None,
        "speaker": judges.speaker.name if judges.speaker else None,
        "naturalness": judges.naturalness.name if judges.naturalness else None,
    }
    return {
        **about,
        "judges": names,
        "missing": judges.missing,
        "summary": [asdict(line) for line in summaries],
        "utterances": [asdict(row) for row in rows],
    }
