"""What the stages need beside the planned batches: a draw for every clip, a reference clip of the same speaker, and
which token is spoken when.

Draws and references are functions of (seed, epoch, position), so a resumed run draws what an uninterrupted one would
have drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from myxtts.audio.io import resampled, to_int16
from myxtts.audio.mel import HOP, SAMPLE_RATE
from myxtts.config.data import DataConfig
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.batching import BatchSource
from myxtts.data.concatenation import Concatenator
from myxtts.data.prepared import PreparedCorpus
from myxtts.pipeline import BatchSize
from myxtts.training.stages.spec import StageRecipe


class DrawnBatches:
    """A source of batches that adds `draw` (0 to 1 for each clip) and, if asked, `reference` and `alignment`.

    References of a batch are `reference_seconds` long or half of that (few shapes: XLA compiles each), so that a voice
    is known from little speech as well as from much; 0 gives none.
    """

    def __init__(
        self,
        source: BatchSource,
        prepared: PreparedCorpus,
        clips: np.ndarray,
        *,
        seed: int,
        reference_seconds: float = 0.0,
        alignments: Alignments | None = None,
        concatenation: float = 0.0,
        speed_perturbation: float = 0.0,
        varied_batches: int = 0,
        text_dropout: float = 0.0,
    ) -> None:
        """`speed_perturbation` is the most at first; it gets smaller with every batch, and after `varied_batches` every
        clip has its own speed again: speech is to sound like the recordings, which is learnt last."""
        self._source = source
        self._prepared = prepared
        self._seed = seed
        self._reference_seconds = reference_seconds
        self._alignments = alignments
        self._concatenator = (
            Concatenator(prepared, clips, alignments, concatenation)
            if concatenation and alignments is not None
            else None
        )
        self._speed_perturbation, self._varied_batches, self._text_dropout = (
            speed_perturbation,
            varied_batches,
            text_dropout,
        )
        self._clips_of_speaker = _group_by_speaker(prepared, clips) if reference_seconds else None

    @property
    def batches_per_epoch(self) -> int:
        return self._source.batches_per_epoch

    def __iter__(self) -> DrawnBatches:
        return self

    def __next__(self) -> dict[str, Any]:
        place = self._source.get_state()
        batch: dict[str, Any] = dict(next(self._source))
        random = np.random.default_rng([self._seed, place["epoch"], place["position"]])
        batch["draw"] = random.random(len(batch["clip"]), dtype=np.float32)
        if self._clips_of_speaker is not None:
            batch["reference"], batch["reference_lengths"] = self._references(batch, random)
        if self._alignments is not None:
            batch["alignment"] = self._alignments.rows(batch["clip"], codes_of(batch["wave"].shape[1]))
        if self._concatenator is not None:
            self._concatenator.concatenation(batch, random)
        if self._speed_perturbation:
            speed_perturbation(batch, self._speed_perturbation * self._variation_left(place), random)
        if self._text_dropout:
            hide_texts(batch, self._text_dropout, random)
        return batch

    def _variation_left(self, place: Mapping[str, int]) -> float:
        """1 at the first batch, 0 from the last varied one on."""
        done = place["epoch"] * self.batches_per_epoch + place["position"]
        return max(0.0, 1.0 - done / self._varied_batches) if self._varied_batches else 0.0

    def _references(self, batch: Mapping[str, Any], random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        assert self._clips_of_speaker is not None
        longest = int(self._reference_seconds * random.choice((0.5, 1.0)) * SAMPLE_RATE)
        waves = np.zeros((len(batch["clip"]), longest), np.int16)
        lengths = np.zeros(len(batch["clip"]), np.int32)
        for row, (clip, speaker) in enumerate(zip(batch["clip"], batch["speaker"], strict=True)):
            others = self._clips_of_speaker[int(speaker)]
            chosen = int(others[random.integers(len(others))])
            if chosen == int(clip) and len(others) > 1:
                chosen = int(others[(np.searchsorted(others, chosen) + 1) % len(others)])
            wave, _ = self._prepared.read_arrays(chosen)
            start = int(random.random() * max(0, len(wave) - longest))
            piece = wave[start : start + longest]
            waves[row, : len(piece)], lengths[row] = piece, len(piece)
        return waves, lengths

    def get_state(self) -> dict[str, int]:
        return self._source.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._source.set_state(dict(state))

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> DrawnBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def speed_perturbation(batch: dict[str, Any], share: float, random: np.random.Generator) -> None:
    """Every clip of the batch up to `share` faster or slower, from a point within its first code on, so that the same
    speech comes as other codes; its alignment goes with it. A clip that would not fit is as slow as it can be.

    Faster speech is higher too: another voice. So the reference goes as fast, and says which voice it is.
    """
    samples_per_code = FRAMES_PER_CODE * HOP
    for row, length in enumerate(batch["wave_lengths"].tolist()):
        start = int(random.integers(samples_per_code))
        speed = max(1.0 + share * (2.0 * random.random() - 1.0), length / batch["wave"].shape[1])
        _change_speed(batch, "wave", row, start, speed)
        if "reference" in batch:
            _change_speed(batch, "reference", row, 0, speed)
        if "alignment" in batch:
            aligned = batch["alignment"][row]
            codes = (np.arange(len(aligned)) * speed + start / samples_per_code).astype(int)
            batch["alignment"][row] = aligned[np.minimum(codes, codes_of(length) - 1)]


def _change_speed(batch: dict[str, Any], name: str, row: int, start: int, speed: float) -> None:
    """What is heard of a clip from `start` on at that speed, as far as there is room for it."""
    waves, lengths = batch[name], batch[f"{name}_lengths"]
    heard = waves[row, start : lengths[row]].astype(np.float32) / 32768.0
    varied = to_int16(resampled(heard, SAMPLE_RATE * speed, SAMPLE_RATE))[: waves.shape[1]]
    waves[row], lengths[row] = 0, len(varied)
    waves[row, : len(varied)] = varied


def hide_texts(batch: dict[str, Any], share: float, random: np.random.Generator) -> None:
    """About a share of the clips have no text: what is said is to be told from the speech before it alone."""
    batch["text_lengths"] = np.where(random.random(len(batch["text_lengths"])) < share, 0, batch["text_lengths"])


def _group_by_speaker(prepared: PreparedCorpus, clips: np.ndarray) -> dict[int, np.ndarray]:
    speakers = np.asarray(prepared.index.speaker)[clips]
    return {int(speaker): np.sort(clips[speakers == speaker]) for speaker in np.unique(speakers)}


def with_batches_of(recipe: StageRecipe, data: DataConfig) -> DataConfig:
    """The settings with the limits of a stage's batches: clips or seconds, as its recipe has them, or both by flag."""
    seconds = recipe.batch_seconds if recipe.batch_size is None or data.batch_seconds is not None else None
    return replace(data, batch_size=recipe.batch_size, batch_seconds=seconds)


def size_of(batch: Mapping[str, Any]) -> BatchSize:
    """Audio seconds of a host batch, and of the rectangle that it takes with its padding."""
    return BatchSize(
        audio_seconds=float(batch["wave_lengths"].sum()) / SAMPLE_RATE, padded_seconds=batch["wave"].size / SAMPLE_RATE
    )
