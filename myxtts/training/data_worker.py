"""A stage's data work in a process of its own: all that it needs travels as a `StageSetup`, batches are asked for by
number.

What a `DataWorker` makes of batch p is what the training process itself would make of it. Who runs it, and how its
batches travel, is not known here: `DataWorkers` is what a run is given instead of data devices of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.data.alignments import Alignments
from myxtts.data.batching import BatchSource
from myxtts.data.prepared import open_prepared
from myxtts.errors import DataError
from myxtts.models.xtts import XTTS
from myxtts.pipeline import BatchSize, Producer, Telemetry
from myxtts.pipeline.batches import HostBatch
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.precision import choose_precision, set_arithmetic
from myxtts.runtime.strategy import get_device_context
from myxtts.training.stage_data import Corpus, StageData, size_of
from myxtts.training.stages import stage_named
from myxtts.training.stages.spec import StageSpec
from myxtts.training.stages.stage import StageContext
from myxtts.training.trainer import XTTSTrainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StageSetup:
    """What a stage's data work depends on, beside the files of the prepared corpus."""

    config: XTTSConfig
    stage: Stage
    steps: int
    pretrained: frozenset[str]
    corpus: Path
    corpus_identity: str
    """A digest of what was prepared: another process must find the same there."""
    clips: np.ndarray
    alignments: Alignments | None
    weights: dict[str, list[np.ndarray]]
    """Of the model's frozen parts."""


def setup_of(trainer: XTTSTrainer, data: StageData) -> StageSetup:
    """The setup of the stage that the trainer has started and that may begin to learn now."""
    assert trainer.recipe is not None
    spec, prepared = data.spec, data.train.prepared
    return StageSetup(
        config=trainer.config,
        stage=spec.name,
        steps=trainer.recipe.steps,
        pretrained=trainer.pretrained_parts,
        corpus=prepared.path.absolute(),
        corpus_identity=prepared.identity,
        clips=data.train.clips,
        alignments=data.alignments_of(data.train),
        weights={
            part: [weight.numpy() for weight in getattr(trainer.model, part).weights]
            for part in _frozen_parts(spec, trainer.pretrained_parts)
            if part in trainer.model.parts
        },
    )


def _frozen_parts(spec: StageSpec, pretrained: frozenset[str]) -> tuple[str, ...]:
    """What the stage may compute batches with; a part that it learns only where that came with a voice."""
    return (*spec.requires, *(part for part in spec.separable if part in pretrained))


@dataclass(frozen=True)
class ProducedBatch:
    """A processed batch as it travels: arrays, and what the pipeline shows of it."""

    arrays: dict[str, np.ndarray]
    size: BatchSize
    seconds: float
    """How long its device worked on it."""


class DataWorker:
    """The producer's half of one stage, on the data device of the plan; reads every `stride`-th batch."""

    def __init__(self, setup: StageSetup, plan: DevicePlan, *, stride: int) -> None:
        config = setup.config
        set_arithmetic(tf32=config.training.tf32, deterministic=config.training.deterministic)
        keras.config.set_dtype_policy(choose_precision(config.training.mixed_precision, plan))
        spec = stage_named(setup.stage, config.model)
        self._device = plan.producer_device
        with get_device_context(self._device):
            model = XTTS(config.model)
            for part, values in setup.weights.items():
                for variable, value in zip(getattr(model, part).weights, values, strict=True):
                    variable.assign(value)
        self._stage = spec.build(
            StageContext(
                config=config,
                model=model,
                plan=plan,
                data_device=self._device,
                steps=setup.steps,
                pretrained=setup.pretrained,
            )
        )
        corpus = _same_corpus(setup)
        data = StageData(config, spec, corpus, corpus, lambda: False, lambda *_: None)
        if setup.alignments is not None:
            data.give_alignments(corpus, setup.alignments)
        self._source: BatchSource = data.source(steps=setup.steps, stride=stride)

    def batch(self, number: int) -> ProducedBatch:
        """Batch `number` of the stage, counted over all epochs; cheapest where they are asked for in order."""
        self._source.go_to(number)
        host = next(self._source)
        began = time.perf_counter()
        with get_device_context(self._device):
            arrays = {name: np.asarray(tensor) for name, tensor in self._stage.process(host).items()}
        return ProducedBatch(arrays, size_of(host), time.perf_counter() - began)

    def close(self) -> None:
        self._source.close()


def _same_corpus(setup: StageSetup) -> Corpus:
    try:
        prepared = open_prepared(setup.corpus)
    except DataError as error:
        raise DataError(
            f"the prepared corpus {setup.corpus} cannot be read here: {error.problem}",
            hint="put --cache-dir on storage that all nodes share, under the same path",
        ) from error
    if prepared.identity != setup.corpus_identity:
        raise DataError(
            f"{setup.corpus} is another prepared corpus here than where the model learns",
            hint="let --cache-dir be storage that all nodes share, or copy the same prepared corpus to each",
        )
    return Corpus(prepared, setup.clips)


class RemoteBatches(Protocol):
    """A stage's producers in other processes, for one pipeline."""

    producers: Sequence[Producer]
    """They are given the number of a batch, as `NumberedBatches` has it."""
    telemetry: Telemetry
    in_flight: int
    """Batches that are on their way or being made, beside those in the pipeline's buffer."""

    def measure(self, batch: HostBatch) -> BatchSize:
        """How much a batch held that a producer has just given."""


class DataWorkers(Protocol):
    """Processes that compute a run's batches."""

    def begin(self, setup: StageSetup, model_devices: Sequence[str]) -> AbstractContextManager[RemoteBatches]:
        """Producers of a stage, until the context ends."""


class NumberedBatches:
    """A source that reads nothing: it gives the numbers of a reader's batches, whose state it keeps."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def __next__(self) -> HostBatch:
        return {"number": self._source.skip()}

    def get_state(self) -> dict[str, int]:
        return self._source.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._source.set_state(state)


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """What travelled, on the host again."""
    with tf.device("/CPU:0"):
        return {name: tf.constant(array) for name, array in arrays.items()}
