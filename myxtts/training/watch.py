"""What a run says about its steps: events, figures of each window, warnings with their way out, memory leaks."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from myxtts.monitoring.events import EventLog
from myxtts.monitoring.verdict import diagnose
from myxtts.pipeline.pipeline import PipelineBase
from myxtts.runtime.leaks import LeakWatch
from myxtts.runtime.memory import memory_of_plan, watched_memory_mb
from myxtts.training.stages.gpt import COLLAPSED_VARIATION, CONDITIONING_VARIATION
from myxtts.training.trainer import StepResult, XTTSTrainer

logger = logging.getLogger(__name__)

CHECK_EVERY = 100
"""Steps between two looks for a stage that has failed for good, and for leaks."""
DIAGNOSED_STEPS = 10
"""A window of fewer steps is too short to warn of what it shows."""


class StageWatch:
    """Called after every step of one stage."""

    def __init__(self, trainer: XTTSTrainer, events: EventLog, total_steps: int) -> None:
        self._trainer, self._events, self._total_steps = trainer, events, total_steps
        self._stage = trainer.current_stage().name
        self._memory = LeakWatch()
        self._leaks_reported: set[str | None] = set()
        self._warned: set[str] = set()

    def step(self, pipeline: PipelineBase, result: StepResult) -> None:
        """Write what is due at this step; raises a `TrainingError` where the stage has failed for good."""
        step, every = result.step, self._trainer.config.training.log_every
        self._memory.add(step, watched_memory_mb(self._trainer.plan))
        if step == 1 or step % every == 0 or step == self._total_steps:
            self._events.write(
                "step",
                stage=self._stage,
                step=step,
                loss=result.loss,
                gradient_norm=result.gradient_norm,
                skipped=self._trainer.skipped_steps,
                **result.figures,
            )
        if step % every == 0:
            self._window(pipeline, step, first=step == every)
        if step % CHECK_EVERY == 0:
            self._trainer.current_stage().check_health(step)
            self._report_leaks()

    def _window(self, pipeline: PipelineBase, step: int, *, first: bool) -> None:
        figures = pipeline.telemetry.window()
        self._events.write("window", stage=self._stage, step=step, **figures.to_event())
        memory = memory_of_plan(self._trainer.plan)
        self._events.write("memory", devices={name: dataclasses.asdict(m) for name, m in memory.items()})
        verdict = diagnose(figures)
        if verdict.level == "warning" and not first and figures.steps >= DIAGNOSED_STEPS:
            self.warn(verdict.problem, verdict.advice)

    def validation(self, figures: Mapping[str, float], *, several_speakers: bool) -> None:
        """Warn of conditioning collapse; one voice needs no reference, whoever it is validated with."""
        if several_speakers and figures.get(CONDITIONING_VARIATION, 1.0) < COLLAPSED_VARIATION:
            self.warn(
                "the conditioning has collapsed: every reference gives the same voice",
                "the GPT does not come back from that; start over with --fresh and a lower --learning-rate",
            )

    def warn(self, message: str, hint: str) -> None:
        """Once for each hint: the figures in the words differ from window to window."""
        if hint not in self._warned:
            self._warned.add(hint)
            logger.warning("%s: %s", message, hint)
            self._events.write("warning", message=message, hint=hint)

    def _report_leaks(self) -> None:
        for report in self._memory.reports():
            if report.leaking and report.memory not in self._leaks_reported:
                self._leaks_reported.add(report.memory)
                logger.warning(report.describe())
                self._events.write(
                    "leak",
                    device=report.memory,
                    mb_per_step=report.rate_mb_per_1000_steps / 1000,
                    stage=self._stage,
                    step=self._trainer.step_number,
                )
