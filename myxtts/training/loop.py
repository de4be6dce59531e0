"""The loop of one stage: read, process, transfer, step, validate, save, from the first step or the last checkpoint on.

`StageLoop.run` is the whole story; what it calls stands below it, first how it ends, then in the order in which it is
called.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.data.batching import BatchSource
from myxtts.data.state import place_in_plan
from myxtts.errors import MyXTTSError
from myxtts.files import writing
from myxtts.monitoring.events import EventLog
from myxtts.pipeline import DeviceBatch, Pipeline, SequentialPipeline, split_rows
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.pipeline.pipeline import PipelineBase
from myxtts.runtime.plan_log import TRAINING_STARTS, warmup_line
from myxtts.runtime.strategy import get_device_context
from myxtts.training.alignment import Aligner
from myxtts.training.checkpoint import Checkpoint, load_best, load_latest, mark_best, read_best, save_checkpoint
from myxtts.training.data_worker import DataWorkers, NumberedBatches, setup_of
from myxtts.training.initial_voice import nothing_fits
from myxtts.training.out_of_memory import limits_in_words, out_of_memory, ran_out_of_memory
from myxtts.training.recipes import is_fine_tuning, length_of, recipe_for, with_batches_of, with_steps
from myxtts.training.run_folder import (
    RunFolder,
    corpus_marks,
    disk_full_hint,
    refuse_other_configuration,
    refuse_other_corpus,
)
from myxtts.training.stage_data import StageData, size_of
from myxtts.training.stage_order import refuse_if_later_stage_learnt
from myxtts.training.stages.spec import StageSpec
from myxtts.training.team import OwnRows, Team
from myxtts.training.trainer import XTTSTrainer
from myxtts.training.watch import StageWatch

logger = logging.getLogger(__name__)

VALIDATION_BATCHES = 8
FINE_TUNING_VALIDATIONS = 10
"""Over a fine-tuning, at least: its best weights are to be caught."""
PATIENCE = 3
"""Early stopping of a fine-tuning: validations without a lower held-out loss."""


class StageLoop:
    """Runs a stage over the pipeline that the plan asks for. `on_checkpoint` and `on_validation` are the run's."""

    def __init__(
        self,
        trainer: XTTSTrainer,
        data: StageData,
        folder: RunFolder,
        events: EventLog,
        on_checkpoint: Callable[[StageSpec], None],
        on_validation: Callable[[StageSpec, int], None] | None = None,
        *,
        team: Team | None = None,
        data_workers: DataWorkers | None = None,
    ) -> None:
        """`team` are the model workers that learn together, `data_workers` what computes batches in other processes."""
        self.trainer, self.data, self.folder, self.events = trainer, data, folder, events
        self.config: XTTSConfig = trainer.config
        self.spec, self.should_stop = data.spec, data.should_stop
        self._on_checkpoint, self._on_validation = on_checkpoint, on_validation
        self._team, self._data_workers = team or Team(), data_workers
        self._validation: list[DeviceBatch] | None = None
        self.watch: StageWatch
        self.total_steps: int

    def run(self) -> bool:
        """Train to the end; `False` if it was asked to stop before, with everything saved."""
        trainer, training = self.trainer, self.config.training
        if not self._start():
            return False
        with self._source() as source:
            self._restore_or_initialise(source)
            if self._decide()[0]:
                return self._finished()
            model = self.config.model
            refuse_if_later_stage_learnt(self.spec, model, trainer.step_number, self.total_steps, self.folder)
            if not self._add_ctc_loss():
                return False
            first_step = trainer.step_number
            # Asked before the pipeline reads ahead: a checkpoint needs the state after the batch that was learnt last.
            data_state: Any = source.get_state()
            with self._pipeline(source) as pipeline:  # reads, processes on the data device, transfers
                self._warm_up(pipeline)
                if self._selects_best and first_step == 0:
                    with pipeline.pause():
                        self._save(data_state, self._validate())
                while not any(over := self._decide()):
                    try:
                        batches = [next(pipeline) for _ in range(training.grad_accum)]
                    except Exception:  # raised again: whatever ended the data, what was learnt from it is kept
                        if trainer.step_number > first_step:
                            self._save_what_was_learnt(data_state)
                        raise
                    result = trainer.learn(batches)
                    data_state = batches[-1].state
                    self.watch.step(pipeline, result)
                    last = result.step == self.total_steps
                    validating = last or result.step % self._validate_every == 0
                    if validating or result.step % training.checkpoint_every == 0:
                        with pipeline.pause():
                            self._save(data_state, self._validate() if validating else None)
                if not over[0]:
                    self._save(data_state)
                    return False
        self.events.write("stage_done", stage=self.spec.name, step=trainer.step_number)
        return self._finished()

    # The end

    @property
    def _selects_best(self) -> bool:
        return is_fine_tuning(self.config, self.spec) and self.trainer.current_stage().selects_best

    @property
    def _validate_every(self) -> int:
        usual = self.config.training.validate_every
        return min(usual, max(1, self.total_steps // FINE_TUNING_VALIDATIONS)) if self._selects_best else usual

    def _decide(self) -> list[bool]:
        """Whether the stage is at its end, and whether it was asked to stop: the same for all model workers."""
        return self._team.any(self._team.is_chief and self._at_its_end(), self.should_stop())

    def _at_its_end(self) -> bool:
        """All steps are done, or the held-out loss of a fine-tuning has stopped falling."""
        if self.trainer.step_number >= self.total_steps:
            return True
        best = read_best(self.folder.checkpoints(self.spec.name)) if self._selects_best else None
        return best is not None and self.trainer.step_number - best["step"] >= PATIENCE * self._validate_every

    def _finished(self) -> bool:
        """A fine-tuning goes on with its best weights, which may be those that it began with."""
        best = load_best(self.folder.checkpoints(self.spec.name)) if self._selects_best else None
        if best is not None and best.step != self.trainer.step_number:
            if best.step:
                logger.info(
                    "Stage %s: the held-out loss was lowest at step %d, whose weights speak", self.spec.name, best.step
                )
            else:
                logger.warning(
                    "Stage %s: %d steps made the loss of the %d held-out clips no lower, so the voice that it began "
                    "with speaks: train it on more recordings",
                    self.spec.name,
                    self.trainer.step_number,
                    len(self.data.held_out.clips),
                )
            self.trainer.restore(best)
        return True

    # Before the first step

    def _start(self) -> bool:
        """Length, optimiser, compiled functions and alignments; `False` if asked to stop meanwhile."""
        if not len(self.data.train.clips):
            raise nothing_fits(self.data.train.prepared, self.config.model)
        with self.data.source() as source:
            length = length_of(self.config, self.spec, source.batches_per_epoch)
        logger.info("Stage %s: %d steps, ended by %s", self.spec.name, length.steps, length.ended_by)
        self.total_steps = length.steps
        self.trainer.start_stage(self.spec.name, with_steps(recipe_for(self.config, self.spec), length.steps))
        self.watch = StageWatch(self.trainer, self.events, length.steps)
        return self._found_by_all(lambda: self.data.align(steps=length.steps, device=self.trainer.plan.model.name))

    def _found_by_all(self, find: Callable[[], bool]) -> bool:
        """What the chief finds and keeps, the others read; `False` if one of them was asked to stop meanwhile."""
        return not self._team.any(not self._team.in_turn(find))[0]

    def _source(self) -> BatchSource:
        return self.data.source(steps=self.total_steps)

    def _restore_or_initialise(self, source: BatchSource) -> None:
        folder, prepared = self.folder.checkpoints(self.spec.name), self.data.train.prepared
        checkpoint = load_latest(folder)
        if checkpoint is not None:
            refuse_other_corpus(checkpoint.state, prepared, self.spec, self.config.data.train_data, folder)
            refuse_other_configuration(checkpoint.state["config"], self.config, folder)
            self.trainer.restore(checkpoint)
            source.set_state(place_in_plan(checkpoint.state["data"], source.get_state()))
            if checkpoint.step < self.total_steps:
                what = "Stage %s continues at step %d of %d"
            else:
                what = "Stage %s: nothing is left to do: %d steps are done, %d were asked for"
            logger.info(what, self.spec.name, checkpoint.step, self.total_steps)
        else:
            self._initialise()
        self._team.refuse_different("step", self.trainer.step_number)
        if self._team.size > 1:
            # Another kind of CPU may have computed other initial weights.
            self.trainer.set_arrays(self._team.of_chief(self.trainer.arrays()))

    def _initialise(self) -> None:
        stage = self.trainer.current_stage()
        if self.trainer.pretrained_parts & set(stage.layers):
            return  # It learns on from the weights of the voice that the run started from.
        if stage.measured_batches:
            with self.data.source() as sample, get_device_context(self.trainer.plan.producer_device):
                stage.measure([stage.process(next(sample)) for _ in range(stage.measured_batches)])
        stage.initialise(self.config.training.seed)

    def _add_ctc_loss(self) -> bool:
        """Give a stage that makes mels its CTC perceptual loss; `False` if asked to stop before the aligner learnt."""
        stage, weight = self.trainer.current_stage(), self.config.training.ctc_loss_weight
        if not stage.takes_ctc_loss or not weight:
            return True
        aligner: list[Aligner | None] = []

        def find() -> bool:
            with tf.device(self.trainer.plan.model.name):
                aligner.append(self.data.aligner(steps=self.total_steps))
            return aligner[0] is not None

        if not self._found_by_all(find) or aligner[0] is None:
            return False
        stage.add_ctc_loss(self.trainer.on_every_model_device(aligner[0].network), weight)
        return True

    @contextmanager
    def _pipeline(self, source: BatchSource) -> Iterator[PipelineBase]:
        """Batches made here, on the plan's devices, or by data workers."""
        plan, data = self.trainer.plan, self.config.data
        model_devices = [role.name for role in plan.models]
        settings: dict[str, Any] = {
            "model_devices": model_devices,
            "start_delay_s": data.model_start_delay,
            "devices": TensorFlowDevices(deep_copy=plan.simulated),
        }
        if self._data_workers is None:
            own_source = OwnRows(source, self._team) if self._team.size > 1 else source
            schedule = Pipeline if plan.two_roles else SequentialPipeline
            settings |= {"buffer_size": data.buffer_size, "measure": size_of}
            split = split_rows if plan.replicated else None
            with schedule(own_source, self.trainer.producers, split=split, **settings) as pipeline:
                yield pipeline
            return
        with self._data_workers.begin(setup_of(self.trainer, self.data), model_devices) as remote:
            settings |= {"buffer_size": max(1, data.buffer_size - remote.in_flight), "measure": remote.measure}
            numbers = NumberedBatches(source)
            with Pipeline(numbers, remote.producers, telemetry=remote.telemetry, **settings) as pipeline:
                yield pipeline

    def _warm_up(self, pipeline: PipelineBase) -> None:
        logger.info(warmup_line(self.config.data.model_start_delay))
        ready = pipeline.wait_until_ready()
        self.events.write("warmup", **dataclasses.asdict(ready))
        logger.info(TRAINING_STARTS)
        self.events.write(
            "training_start",
            stage=self.spec.name,
            step=self.trainer.step_number + 1,
            total_steps=self.total_steps,
        )

    # Validation

    def _validate(self) -> float | None:
        """Held-out loss of the weights that the voice gets; None where no batch can be made."""
        assert self.trainer.optimizer is not None
        with self.trainer.optimizer.averages_in_place():
            figures = self.validate()
            if figures:
                self.events.write("validation", stage=self.spec.name, step=self.trainer.step_number, **figures)
                self.watch.validation(figures, several_speakers=self.data.several_speakers)
            if self._on_validation is not None and self._team.is_chief:
                self._on_validation(self.spec, self.trainer.step_number)
        return figures.get("loss")

    def validate(self) -> dict[str, float]:
        """Held-out losses over the same few batches each time; empty where no batch can be made."""
        if self._validation is None:
            self._validation = self._validation_batches()
        if not self._validation:
            return {}
        with get_device_context(self.trainer.plan.model.name):
            batches = [batch.replicas[0] for batch in self._validation]
            together = self.trainer.current_stage().validate_together(batches)
        return {**self.trainer.evaluate(self._validation), **together}

    def _validation_batches(self) -> list[DeviceBatch]:
        if not len(self.data.held_out.clips):
            self.watch.warn("no clip is held out, so nothing is validated", "add --val-data, or clips to the corpus")
            return []
        plan = self.trainer.plan
        with SequentialPipeline(
            self.data.held_out_source(),
            self.trainer.producers,
            model_devices=[role.name for role in plan.models],
            host_buffer_size=0,
            devices=TensorFlowDevices(deep_copy=plan.simulated),
            split=self._team.own_rows if self._team.size > 1 else split_rows if plan.replicated else None,
        ) as pipeline:
            return [batch for _, batch in zip(range(VALIDATION_BATCHES), pipeline, strict=False)]

    # Checkpoints

    def _save(self, data_state: Any, validation_loss: float | None = None) -> None:
        if not self._team.is_chief:
            return
        trainer = self.trainer
        state = {
            "stage": self.spec.name,
            "data": dict(data_state),
            "config": as_plain_values(self.config),
            "skipped_steps": trainer.skipped_steps,
            "loss_scale": trainer.loss_scale.get_state(),
            "total_steps": self.total_steps,
            **trainer.current_stage().get_state(),
            **corpus_marks(self.data.train.prepared),
        }
        checkpoint = Checkpoint(step=trainer.step_number, arrays=trainer.arrays(), state=state)
        folder = self.folder.checkpoints(self.spec.name)
        path = save_checkpoint(folder, checkpoint, keep=self.config.training.keep)
        self.events.write("checkpoint", stage=self.spec.name, step=checkpoint.step, path=path)
        best = False
        if validation_loss is not None and math.isfinite(validation_loss):
            with writing(folder, hint=disk_full_hint("--checkpoint-dir")):
                best = mark_best(folder, checkpoint.step, validation_loss)
        if best or not self._selects_best:
            self._on_checkpoint(self.spec)

    def _save_what_was_learnt(self, data_state: Any) -> None:
        """For a run whose data failed; it must not hide the failure. Before the first step there is nothing to save."""
        try:
            self._save(data_state)
        except (MyXTTSError, OSError, tf.errors.OpError) as error:
            logger.warning("What was learnt since the last checkpoint is lost: %s", error)


def run_stage(loop: StageLoop) -> bool:
    """`StageLoop.run` with its last words: averaged weights adopted at the end, memory that ran out explained."""
    try:
        finished = loop.run()
    except tf.errors.OpError as error:
        if not ran_out_of_memory(error):
            raise
        # The producer's half, validation or samples: what learning itself could not fit is said by the trainer.
        limits = with_batches_of(recipe_for(loop.config, loop.spec), loop.config.data)
        raise out_of_memory(error, loop.trainer.plan, limits_in_words(limits, loop.spec.name)) from error
    if finished and loop.trainer.optimizer is not None:
        loop.trainer.optimizer.adopt_averages()
    return finished
