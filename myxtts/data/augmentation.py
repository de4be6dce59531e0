"""Augmentation of batches: references, concatenation, speed perturbation, text dropout and token corruption.

`BatchAugmenter` is a Grain map: it runs where the batch is read, on a thread of the training process or in a worker
process (--num-workers). All draws of a batch come from one generator that is seeded with (seed, epoch, position), in
the order of `BatchAugmenter.__call__`. A run that is resumed, also one of an earlier version, draws the same only while
that order stays: new draws go last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.io import from_int16, padded_rows, resampled, to_int16
from myxtts.audio.mel import HOP, SAMPLE_RATE
from myxtts.config.model import FRAMES_PER_CODE
from myxtts.data.alignments import Alignments, codes_of
from myxtts.data.concatenation import Concatenator
from myxtts.data.planning import BatchPlace
from myxtts.data.prepared import PreparedCorpus

_SAMPLES_PER_CODE = FRAMES_PER_CODE * HOP


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What a batch has beside its clips, and how its clips are changed.

    Every augmented batch has `draw`, a number from 0 to 1 for each clip; everything else is off by default.
    """

    reference_seconds: float = 0.0
    """Length of the references: other clips of the same speaker, as `reference` and `reference_lengths`. Those of a
    batch are cut to this length or to half of it (few shapes: XLA compiles each), so that the model learns to use
    short references too. 0 adds none."""

    alignments: Alignments | None = field(default=None, repr=False, compare=False)
    """Forced alignments of the corpus: they add `alignment`, for each code the index of its token."""

    concatenation: float = 0.0
    """Share of the clips that end as another clip of the same speaker does; none without alignments."""

    speed_perturbation: float = 0.0
    """Largest change of speed at the first batch, as a share. Above 0, clips also begin at any sample of their first
    code, so that the same speech gives other codes."""

    speed_perturbation_batches: int = 0
    """The change of speed falls to 0 over this many batches, for the last thing learnt should be how the recordings
    sound. With 0 the speed is never changed."""

    text_dropout: float = 0.0
    """Share of the clips whose text is left out, for classifier-free guidance."""

    token_corruption: float = 0.0
    """Share of the codes that are replaced in the GPT's input: adds `corruption`, the replacing codes, -1 elsewhere."""

    audio_codes: int = 0
    """Size of the codebook that replacing codes are drawn from; needed for token corruption."""

    def __post_init__(self) -> None:
        if self.token_corruption and self.audio_codes < 1:
            raise ValueError(f"token corruption needs the size of the codebook, and audio_codes is {self.audio_codes}")


class BatchAugmenter:
    """Augments the batches of some clips of a corpus."""

    def __init__(
        self,
        augmentation: Augmentation,
        prepared: PreparedCorpus,
        clips: NDArray[np.int64],
        seed: int,
        place_of: Callable[[int], BatchPlace],
    ) -> None:
        """`place_of` gives the place in the plan of a batch by its number; `seed` is the plan's."""
        self._arguments = augmentation, prepared, clips, seed, place_of
        self._augmentation, self._prepared = augmentation, prepared
        self._seed, self._place_of = seed, place_of
        self._concatenator: Concatenator | None = None
        if augmentation.concatenation and augmentation.alignments is not None:
            self._concatenator = Concatenator(prepared, clips, augmentation.alignments, augmentation.concatenation)
        self._clips_of_speaker: dict[int, NDArray[np.int64]] = {}
        if augmentation.reference_seconds:
            speakers = np.asarray(prepared.index.speaker)[clips]
            self._clips_of_speaker = {
                int(speaker): np.sort(clips[speakers == speaker]) for speaker in np.unique(speakers)
            }

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process makes the tables itself.
        return BatchAugmenter, self._arguments

    def __call__(self, number: int, batch: dict[str, Any]) -> dict[str, Any]:
        """Augment the batch with that number in place; its shapes stay."""
        settings, place = self._augmentation, self._place_of(number)
        codes = codes_of(batch["wave"].shape[1])
        random = np.random.default_rng([self._seed, place.epoch, place.position])
        batch["draw"] = random.random(len(batch["clip"]), dtype=np.float32)
        if settings.reference_seconds:
            batch["reference"], batch["reference_lengths"] = self._references(batch, random)
        if settings.alignments is not None:
            batch["alignment"] = settings.alignments.rows(batch["clip"], codes)
        if self._concatenator is not None:
            self._concatenator.concatenate(batch, random)
        if settings.speed_perturbation:
            perturb_speed(batch, self._speed_perturbation_at(place), random)
        if settings.text_dropout:
            drop_texts(batch, settings.text_dropout, random)
        if settings.token_corruption:
            shape = len(batch["clip"]), codes
            batch["corruption"] = token_corruption(shape, settings.token_corruption, settings.audio_codes, random)
        return batch

    def _speed_perturbation_at(self, place: BatchPlace) -> float:
        batches = self._augmentation.speed_perturbation_batches
        left = max(0.0, 1.0 - place.batches_before / batches) if batches else 0.0
        return self._augmentation.speed_perturbation * left

    def _references(
        self, batch: Mapping[str, Any], random: np.random.Generator
    ) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
        """For each clip a random piece of another clip of its speaker; of the same clip where there is no other."""
        longest = int(self._augmentation.reference_seconds * random.choice((0.5, 1.0)) * SAMPLE_RATE)
        pieces = []
        for clip, speaker in zip(batch["clip"], batch["speaker"], strict=True):
            others = self._clips_of_speaker[int(speaker)]
            chosen = int(others[random.integers(len(others))])
            if chosen == int(clip) and len(others) > 1:
                chosen = int(others[(np.searchsorted(others, chosen) + 1) % len(others)])
            wave, _ = self._prepared.read_arrays(chosen)
            start = int(random.random() * max(0, len(wave) - longest))
            pieces.append(wave[start : start + longest])
        return padded_rows(pieces, longest)


def perturb_speed(batch: dict[str, Any], share: float, random: np.random.Generator) -> None:
    """Make each clip up to `share` faster or slower, and let it begin at a random sample of its first code.

    The alignment follows the clip. A clip is slowed down only as far as the batch has room for it. Faster speech is
    also higher, so it is another voice: the reference, which tells the model whose voice it is, changes as much.
    """
    for row, length in enumerate(batch["wave_lengths"].tolist()):
        start = int(random.integers(_SAMPLES_PER_CODE))
        speed = max(1.0 + share * (2.0 * random.random() - 1.0), length / batch["wave"].shape[1])
        _change_speed(batch, "wave", row, start, speed)
        if "reference" in batch:
            _change_speed(batch, "reference", row, 0, speed)
        if "alignment" in batch:
            aligned = batch["alignment"][row]
            codes = (np.arange(len(aligned)) * speed + start / _SAMPLES_PER_CODE).astype(int)
            batch["alignment"][row] = aligned[np.minimum(codes, codes_of(length) - 1)]


def _change_speed(batch: dict[str, Any], name: str, row: int, start: int, speed: float) -> None:
    """Replace a wave by what follows `start`, at that speed, cut where the batch has no room."""
    waves, lengths = batch[name], batch[f"{name}_lengths"]
    original = from_int16(waves[row, start : lengths[row]])
    changed = to_int16(resampled(original, SAMPLE_RATE * speed, SAMPLE_RATE))[: waves.shape[1]]
    waves[row], lengths[row] = 0, len(changed)
    waves[row, : len(changed)] = changed


def drop_texts(batch: dict[str, Any], share: float, random: np.random.Generator) -> None:
    """Set the text length of about a share of the clips to 0."""
    dropped = random.random(len(batch["text_lengths"])) < share
    batch["text_lengths"] = np.where(dropped, 0, batch["text_lengths"])


def token_corruption(
    shape: tuple[int, int], share: float, vocabulary: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """Codes to replace about a share of a batch's codes, drawn evenly from the vocabulary; -1 where a code stays."""
    replaced = random.random(shape, dtype=np.float32) < share
    return np.where(replaced, random.integers(vocabulary, size=shape, dtype=np.int32), np.int32(-1))
