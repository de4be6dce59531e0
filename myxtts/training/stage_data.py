"""The data of one stage of a run: training and held-out clips, their alignments, and the batches made of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.config import XTTSConfig
from myxtts.data.alignments import Alignments
from myxtts.data.augmentation import Augmentation
from myxtts.data.batching import BatchSource, batches
from myxtts.data.prepared import PreparedCorpus
from myxtts.files import replacing, writing
from myxtts.pipeline import BatchSize
from myxtts.training.alignment import Aligner, Progress, aligner_of, alignments_of, kept_network
from myxtts.training.recipes import recipe_for, with_batches_of
from myxtts.training.stages.spec import StageSpec


@dataclass(frozen=True)
class Corpus:
    """Prepared clips and which of them this run uses."""

    prepared: PreparedCorpus
    clips: np.ndarray


@dataclass
class StageData:
    """What a stage reads. Aligning may take minutes and can be asked to stop: `align` and `aligner` say so."""

    config: XTTSConfig
    spec: StageSpec
    train: Corpus
    held_out: Corpus
    should_stop: Callable[[], bool]
    progress: Progress
    initial_aligner: Path | None = None
    """The aligner of the voice that the run started from."""
    _alignments: dict[Path, Alignments] = field(default_factory=dict)

    def source(self, *, steps: int = 0, stride: int = 1) -> BatchSource:
        """Endless training batches; `steps` of the whole stage are what the speed perturbation falls over."""
        return self._batches(self.train, steps=steps, augmented=True, stride=stride)

    def held_out_source(self) -> BatchSource:
        """The held-out clips once, as they were recorded."""
        return self._batches(self.held_out, epochs=1)

    def _batches(
        self, corpus: Corpus, *, epochs: int | None = None, steps: int = 0, augmented: bool = False, stride: int = 1
    ) -> BatchSource:
        training, features = self.config.training, self.spec.features
        recipe = recipe_for(self.config, self.spec)
        reference = features.reference or (features.voice_reference and self.config.model.voice_width > 0)
        augmentation = Augmentation(
            reference_seconds=recipe.reference_seconds if reference else 0.0,
            alignments=self.alignments_of(corpus),
            concatenation=training.concatenation if augmented and features.concatenation else 0.0,
            # Above 0 it offsets the codes too; the speed itself changes only over `speed_perturbation_batches`.
            speed_perturbation=training.speed_perturbation if augmented and features.code_offset else 0.0,
            speed_perturbation_batches=steps * training.grad_accum if features.speed_perturbation else 0,
            text_dropout=training.text_dropout if augmented and features.text_dropout else 0.0,
            token_corruption=training.token_corruption if augmented and features.token_corruption else 0.0,
            audio_codes=self.config.model.audio_codes,
        )
        return batches(
            corpus.prepared,
            config=with_batches_of(recipe, self.config.data),
            seed=training.seed,
            clips=corpus.clips,
            epochs=epochs,
            augmentation=augmentation,
            stride=stride,
        )

    def align(self, *, steps: int, device: str) -> bool:
        """Find the forced alignments where the stage learns from them; `False` if asked to stop meanwhile."""
        if not self.spec.features.alignment or not self.config.training.alignment_weight:
            return True
        corpora = list({corpus.prepared.path: corpus.prepared for corpus in (self.train, self.held_out)}.values())
        found = alignments_of(
            self.train.prepared,
            self.train.clips,
            corpora[1:],
            steps=steps,
            device=device,
            should_stop=self.should_stop,
            progress=self.progress,
            initial=self.initial_aligner,
        )
        if found is None:
            return False
        self._alignments = {prepared.path: one for prepared, one in zip(corpora, found, strict=True)}
        return True

    def alignments_of(self, corpus: Corpus) -> Alignments | None:
        """The forced alignments that `align` has found or another process has given."""
        return self._alignments.get(corpus.prepared.path)

    def give_alignments(self, corpus: Corpus, alignments: Alignments) -> None:
        self._alignments[corpus.prepared.path] = alignments

    def aligner(self, *, steps: int) -> Aligner | None:
        """The trained CTC aligner of the corpus, on the device at hand; None if asked to stop before it has learnt."""
        return aligner_of(
            self.train.prepared,
            self.train.clips,
            steps=steps,
            should_stop=self.should_stop,
            progress=self.progress,
            initial=self.initial_aligner,
        )

    def keep_aligner(self, path: Path, *, steps: int) -> None:
        """Copy the stage's trained aligner, where it had one, to `path`."""
        network = kept_network(self.train.prepared, self.train.clips, steps, self.initial_aligner)
        if network.is_file():
            with writing(path.parent), replacing(path) as part:
                shutil.copyfile(network, part)

    @property
    def several_speakers(self) -> bool:
        return len(np.unique(self.train.prepared.index.speaker[self.train.clips])) > 1


def size_of(batch: Mapping[str, Any]) -> BatchSize:
    """Audio seconds of a host batch, and of the rectangle that it takes with its padding."""
    return BatchSize(
        audio_seconds=float(batch["wave_lengths"].sum()) / SAMPLE_RATE, padded_seconds=batch["wave"].size / SAMPLE_RATE
    )
