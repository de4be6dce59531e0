"""One stage from its first step, or from its last checkpoint, to its end: the loop around the trainer's step."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.loading import as_plain_values
from myxtts.config.training import Stage
from myxtts.data.alignments import Alignments
from myxtts.data.batching import batches
from myxtts.data.prepared import PreparedCorpus
from myxtts.data.state import place_in_plan
from myxtts.errors import MyXTTSError
from myxtts.files import writing
from myxtts.monitoring.events import EventLog, ProgressEvents
from myxtts.monitoring.verdict import diagnose
from myxtts.pipeline import DeviceBatch, Pipeline, SequentialPipeline, split_rows
from myxtts.pipeline.pipeline import PipelineBase
from myxtts.runtime.leaks import LeakWatch
from myxtts.runtime.memory import memory_of_plan, watched_memory_mb
from myxtts.runtime.plan_log import TRAINING_STARTS, warmup_line
from myxtts.runtime.strategy import get_device_context
from myxtts.training.alignment import aligner_of, alignments_of
from myxtts.training.checkpoint import Checkpoint, load_latest, mark_best, save_checkpoint
from myxtts.training.initial_voice import nothing_fits
from myxtts.training.optim import AdamW
from myxtts.training.out_of_memory import limits_in_words, out_of_memory
from myxtts.training.recipes import recipe_for, with_steps
from myxtts.training.run_folder import (
    RunFolder,
    corpus_marks,
    disk_full_hint,
    refuse_other_configuration,
    refuse_other_corpus,
)
from myxtts.training.sources import DrawnBatches, size_of, with_batches_of
from myxtts.training.stage_length import length_of
from myxtts.training.stage_order import refuse_if_later_stage_learnt
from myxtts.training.steps.codec import CodecStage
from myxtts.training.steps.gpt import COLLAPSED_VARIATION, CONDITIONING_VARIATION
from myxtts.training.steps.mel_decoder import MelDecoderStage
from myxtts.training.trainer import StepResult, XTTSTrainer

logger = logging.getLogger(__name__)

VALIDATION_BATCHES = 8
CHECK_EVERY = 100
DIAGNOSED_STEPS = 10
"""A window of fewer steps is too short to warn of what it shows."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Prepared clips and which of them this run uses."""

    prepared: PreparedCorpus
    clips: np.ndarray


class StageRun:
    """Runs a stage over the pipeline that the plan asks for; saves, validates and reports on the way."""

    def __init__(
        self,
        trainer: XTTSTrainer,
        stage: Stage,
        train: Corpus,
        held_out: Corpus,
        folder: RunFolder,
        events: EventLog,
        should_stop: Callable[[], bool],
        on_checkpoint: Callable[[Stage], None],
        on_validation: Callable[[Stage, int], None] | None = None,
    ) -> None:
        self.trainer, self.stage, self.folder, self.events = trainer, stage, folder, events
        self.config: XTTSConfig = trainer.config
        self._train, self._held_out = train, held_out
        self._should_stop, self._on_checkpoint, self._on_validation = should_stop, on_checkpoint, on_validation
        self._memory = LeakWatch()
        self._leaks_reported: set[str | None] = set()
        self._began_at = 0
        self._progress = ProgressEvents(events)
        self._warned: set[str] = set()
        self._validation: list[DeviceBatch] | None = None
        self._alignments: dict[Path, Alignments] = {}
        if not len(train.clips):
            raise nothing_fits(train.prepared, self.config.model)
        source = self._source(self._train)
        self.length = length_of(self.config, stage, source.batches_per_epoch)
        self.total_steps = self.length.steps
        source.close()

    def run(self) -> bool:
        """Train to the end. `False` if it was asked to stop before; the state is saved either way.

        A stage that is done leaves the weights that its voice has: the averages, where it keeps some.
        """
        try:
            finished = self._run()
        except tf.errors.ResourceExhaustedError as error:
            # The producer's half, validation or samples: what learning itself could not fit is said by the trainer.
            limits = with_batches_of(recipe_for(self.config, self.stage), self.config.data)
            raise out_of_memory(error, self.trainer.plan, limits_in_words(limits, self.stage)) from error
        if finished:
            self._optimizer.adopt_averages()
        return finished

    @property
    def _optimizer(self) -> AdamW:
        assert self.trainer.optimizer is not None  # since the stage was started
        return self.trainer.optimizer

    def _run(self) -> bool:
        training = self.config.training
        self.trainer.start_stage(self.stage, with_steps(recipe_for(self.config, self.stage), self.total_steps))
        if not self._align():
            return False
        source = self._source(self._train, steps=self.total_steps)
        self._restore_or_begin(source)
        if self.trainer.step_number >= self.total_steps:
            source.close()
            return True
        refuse_if_later_stage_learnt(self.stage, self.trainer.step_number, self.total_steps, self.folder)
        if not self._add_ctc_loss():
            source.close()
            return False
        self._began_at = self.trainer.step_number
        # Asked before the pipeline reads ahead: what a checkpoint needs is the state after the batch learnt last.
        data_state: Any = source.get_state()
        with self._pipeline(source) as pipeline:
            self._warm_up(pipeline)
            while self.trainer.step_number < self.total_steps and not self._should_stop():
                taken = self._take(pipeline, data_state)
                data_state = taken[-1].state
                result = self.trainer.learn(taken)
                self._watch(pipeline, result)
                step = result.step
                last = step == self.total_steps
                if last or step % training.validate_every == 0 or step % training.checkpoint_every == 0:
                    with pipeline.pause():
                        self._validate_and_save(step, data_state, last=last)
            finished = self.trainer.step_number >= self.total_steps
            if not finished:
                self._save(data_state)
        if finished:
            self.events.write("stage_done", stage=self.stage, step=self.trainer.step_number)
        return finished

    def _take(self, pipeline: PipelineBase, data_state: Any) -> list[DeviceBatch]:
        """The batches of a step. Where they cannot be had, what was learnt up to `data_state` is saved first."""
        try:
            return [next(pipeline) for _ in range(self.config.training.grad_accum)]
        except Exception:
            # A run that has learnt nothing here saves nothing: other settings may be its way out.
            if self.trainer.step_number > self._began_at:
                try:
                    self._save(data_state)
                except (MyXTTSError, OSError, tf.errors.OpError) as error:
                    logger.warning("What was learnt since the last checkpoint is lost: %s", error)
            raise

    # Beginning

    def _source(self, corpus: Corpus, *, epochs: int | None = None, steps: int = 0) -> DrawnBatches:
        """`steps` are those of the whole stage. The mel decoder's speech is what is heard: its speed never varies."""
        recipe = recipe_for(self.config, self.stage)
        settings = with_batches_of(recipe, self.config.data)
        seed = self.config.training.seed
        varied = self._varied and corpus is self._train
        source = batches(corpus.prepared, config=settings, seed=seed, clips=corpus.clips, epochs=epochs)
        return DrawnBatches(
            source,
            corpus.prepared,
            corpus.clips,
            seed=seed,
            reference_seconds=0.0 if self.stage == "codec" else recipe.reference_seconds,
            alignments=self._alignments.get(corpus.prepared.path),
            concatenation=self.config.training.concatenation if varied else 0.0,
            speed_perturbation=self.config.training.speed_perturbation if varied else 0.0,
            varied_batches=steps * self.config.training.grad_accum if self.stage == "gpt" else 0,
            text_dropout=self.config.training.text_dropout if varied and self.stage == "gpt" else 0.0,
        )

    @property
    def _varied(self) -> bool:
        """Whether the stage learns texts together with their sound, and could learn those of a corpus by heart."""
        return self.stage == "gpt" or (self.stage == "decoder" and self.config.model.decoder == "mel")

    def _add_ctc_loss(self) -> bool:
        """Give a stage that makes mels an aligner to learn from; `False` if asked to stop before that has learnt."""
        stage, weight = self.trainer.current_stage(), self.config.training.ctc_loss_weight
        if not isinstance(stage, (CodecStage, MelDecoderStage)) or not weight:
            return True
        with tf.device(self.trainer.plan.model.name):
            aligner = aligner_of(
                self._train.prepared,
                self._train.clips,
                steps=self.total_steps,
                should_stop=self._should_stop,
                progress=self._progress,
            )
        if aligner is None:
            return False
        stage.mel_loss.add_ctc_loss(self.trainer.on_every_model_device(aligner.network), weight)
        return True

    def _align(self) -> bool:
        """Find which token is spoken when, where this stage learns from that; `False` if asked to stop meanwhile."""
        if not self._varied or not self.config.training.alignment_weight:
            return True
        corpora = list({corpus.prepared.path: corpus.prepared for corpus in (self._train, self._held_out)}.values())
        found = alignments_of(
            self._train.prepared,
            self._train.clips,
            corpora[1:],
            steps=self.total_steps,
            device=self.trainer.plan.model.name,
            should_stop=self._should_stop,
            progress=self._progress,
        )
        if found is None:
            return False
        self._alignments = {prepared.path: one for prepared, one in zip(corpora, found, strict=True)}
        return True

    def _restore_or_begin(self, source: DrawnBatches) -> None:
        folder = self.folder.checkpoints(self.stage)
        checkpoint = load_latest(folder)
        if checkpoint is not None:
            refuse_other_corpus(checkpoint.state, self._train.prepared, self.stage, folder)
            refuse_other_configuration(checkpoint.state["config"], self.config, folder)
            self.trainer.restore(checkpoint)
            source.set_state(place_in_plan(checkpoint.state["data"], source.get_state()))
            logger.info("Stage %s continues at step %d of %d", self.stage, checkpoint.step, self.total_steps)
            return
        stage = self.trainer.current_stage()
        if self.trainer.pretrained_parts & set(stage.layers):
            return  # It learns on from the weights that a voice brought.
        if stage.first_batches:
            sample = self._source(self._train)
            with get_device_context(self.trainer.plan.producer_device):
                seen = [stage.process(next(sample)) for _ in range(stage.first_batches)]
            stage.fit_to(seen)
            sample.close()
        stage.initialise(self.config.training.seed)

    def _pipeline(self, source: DrawnBatches) -> PipelineBase:
        plan, data = self.trainer.plan, self.config.data
        schedule = Pipeline if plan.two_roles else SequentialPipeline
        return schedule(
            source,
            self.trainer.current_stage().process,
            data_device=plan.producer_device,
            model_devices=[role.name for role in plan.models],
            buffer_size=data.buffer_size,
            start_delay_s=data.model_start_delay,
            deep_copy=plan.simulated,
            split=split_rows if len(plan.models) > 1 else None,
            measure=size_of,
        )

    def _warm_up(self, pipeline: PipelineBase) -> None:
        logger.info(warmup_line(self.config.data.model_start_delay))
        ready = pipeline.wait_until_ready()
        self.events.write("warmup", **dataclasses.asdict(ready))
        logger.info(TRAINING_STARTS)
        self.events.write(
            "training_start", stage=self.stage, step=self.trainer.step_number + 1, total_steps=self.total_steps
        )

    # While it runs

    def _watch(self, pipeline: PipelineBase, result: StepResult) -> None:
        step, every = result.step, self.config.training.log_every
        self._memory.add(step, watched_memory_mb(self.trainer.plan))
        if step == 1 or step % every == 0 or step == self.total_steps:
            self.events.write(
                "step",
                stage=self.stage,
                step=step,
                loss=result.loss,
                gradient_norm=result.gradient_norm,
                skipped=self.trainer.skipped_steps,
                **result.figures,
            )
        if step % every == 0:
            figures = pipeline.telemetry.window()
            self.events.write("window", stage=self.stage, step=step, **figures.to_event())
            memory = memory_of_plan(self.trainer.plan)
            self.events.write("memory", devices={name: dataclasses.asdict(m) for name, m in memory.items()})
            verdict = diagnose(figures)
            if verdict.level == "warning" and step > every and figures.steps >= DIAGNOSED_STEPS:
                self._warn(verdict.problem, verdict.advice)
        if step % CHECK_EVERY == 0:
            self.trainer.current_stage().check(step)
            self._look_for_leaks()

    def _look_for_leaks(self) -> None:
        for report in self._memory.reports():
            if not report.leaking or report.memory in self._leaks_reported:
                continue
            self._leaks_reported.add(report.memory)
            logger.warning(report.describe())
            rate_mb = report.rate_mb_per_1000_steps / 1000
            self.events.write(
                "leak", device=report.memory, mb_per_step=rate_mb, stage=self.stage, step=self.trainer.step_number
            )

    def _warn(self, message: str, hint: str) -> None:
        # One warning for each flag to change: the figures in the words differ from window to window.
        if hint not in self._warned:
            self._warned.add(hint)
            logger.warning("%s: %s", message, hint)
            self.events.write("warning", message=message, hint=hint)

    # Validation and checkpoints

    def _validate_and_save(self, step: int, data_state: Any, *, last: bool) -> None:
        training = self.config.training
        loss = None
        if last or step % training.validate_every == 0:
            # What is adversarial and heard is what the voice gets.
            with self._optimizer.averages_in_place():
                figures = self.validate()
                loss = figures.get("loss")
                if loss is not None:
                    self.events.write("validation", stage=self.stage, step=step, **figures)
                self._warn_of_one_voice(figures)
                if self._on_validation is not None:
                    self._on_validation(self.stage, step)
        if last or step % training.checkpoint_every == 0 or loss is not None:
            path = self._save(data_state)
            if loss is not None and math.isfinite(loss):
                with writing(path.parent, hint=disk_full_hint("--checkpoint-dir")):
                    mark_best(path.parent, step, loss)

    def validate(self) -> dict[str, float]:
        """Held-out losses over the same few batches each time; empty where no batch can be made."""
        if self._validation is None:
            self._validation = self._validation_batches()
        if not self._validation:
            return {}
        with get_device_context(self.trainer.plan.model.name):
            together = self.trainer.current_stage().look_over([batch.replicas[0] for batch in self._validation])
        return {**self.trainer.evaluate(self._validation), **together}

    def _warn_of_one_voice(self, figures: Mapping[str, float]) -> None:
        # One voice needs no reference, whoever it is validated with.
        several = len(np.unique(self._train.prepared.index.speaker[self._train.clips])) > 1
        if several and figures.get(CONDITIONING_VARIATION, 1.0) < COLLAPSED_VARIATION:
            self._warn(
                "the references are ignored: all of them give the same voice",
                "the GPT does not come back from that; start over with --fresh and a lower --learning-rate",
            )

    def _validation_batches(self) -> list[DeviceBatch]:
        if not len(self._held_out.clips):
            self._warn("no clip is held out, so nothing is validated", "add --val-data, or clips to the corpus")
            return []
        source = self._source(self._held_out, epochs=1)
        kept: list[DeviceBatch] = []
        plan = self.trainer.plan
        with SequentialPipeline(
            source,
            self.trainer.current_stage().process,
            data_device=plan.producer_device,
            model_devices=[role.name for role in plan.models],
            host_buffer_size=0,
            deep_copy=plan.simulated,
            split=split_rows if len(plan.models) > 1 else None,
        ) as pipeline:
            for batch in pipeline:
                kept.append(batch)
                if len(kept) == VALIDATION_BATCHES:
                    break
        return kept

    def _save(self, data_state: Any) -> Path:
        step = self.trainer.step_number
        state = {
            "stage": self.stage,
            "data": dict(data_state),
            "config": as_plain_values(self.config),
            "skipped_steps": self.trainer.skipped_steps,
            "loss_scale": self.trainer.loss_scale.get_state(),
            "total_steps": self.total_steps,
            **self.trainer.current_stage().kept(),
            **corpus_marks(self._train.prepared),
        }
        checkpoint = Checkpoint(step=step, arrays=self.trainer.arrays(), state=state)
        path = save_checkpoint(self.folder.checkpoints(self.stage), checkpoint, keep=self.config.training.keep)
        self.events.write("checkpoint", stage=self.stage, step=step, path=path)
        self._on_checkpoint(self.stage)
        return path
