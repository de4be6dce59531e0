"""Which stage may learn now: each stands on the ones before it, which must be done by then and stay as they are.

A GPT speaks the codes of one codec and a decoder understands the latents of one GPT. What a stage before them learnt
later would leave them speaking a language that nobody understands any more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.config.training import Stage
from myxtts.errors import CheckpointError, DamagedError
from myxtts.models.weights import read_manifest
from myxtts.synthesis.voice import voice_facts
from myxtts.training.checkpoint import list_checkpoints
from myxtts.training.recipes import STAGES
from myxtts.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

_LEARNT_IN = {"codec": {"dvae"}, "gpt": {"gpt"}, "decoder": {"hifigan", "mel_decoder"}}
"""Parts that tell that a stage has learnt."""

TRAINED_TO = "trained_to"
"""Among the facts of a voice: the stage and its step that the weights are of."""


@dataclass(frozen=True, order=True)
class Trained:
    """How far weights have come; later stages are further."""

    place: int
    step: float

    @classmethod
    def to(cls, stage: Stage, step: float) -> Trained:
        return cls(STAGES.index(stage), step)


def published(facts: Mapping[str, Any], *, brought: Iterable[str] = ()) -> Trained:
    """How far the weights of a voice have come, by its facts.

    Without the fact itself it is a voice that the run has `brought`, which has learnt nothing here, or one of an
    earlier version, which tells by its parts which stage it is of.
    """
    if TRAINED_TO in facts:
        stage, step = facts[TRAINED_TO]
        return Trained.to(stage, step)
    known = [] if brought else [stage for stage in STAGES if _LEARNT_IN[stage] & set(facts.get("parts", ()))]
    return Trained.to(known[-1], math.inf) if known else Trained(-1, 0)


def stages_before(stage: Stage) -> tuple[Stage, ...]:
    return STAGES[: STAGES.index(stage)]


def refuse_without_checkpoints(folder: RunFolder) -> None:
    """A voice that was trained here has checkpoints, unless they are elsewhere: its stage would begin anew over it."""
    facts = voice_facts(folder.voice)
    if TRAINED_TO not in facts:
        return
    stage, step = facts[TRAINED_TO]
    checkpoints = folder.checkpoints(stage)
    newest = _newest(checkpoints)
    if newest is None:
        raise CheckpointError(
            f"{folder.voice} was trained to step {step} of stage {stage}, and there is no checkpoint in {checkpoints}",
            hint="give the --checkpoint-dir that the run has its checkpoints in, or start over with --fresh",
        )
    if newest[0] < step:
        logger.warning(
            "%s was trained to step %d of stage %s, the newest checkpoint in %s is of step %d: training goes on from "
            "there, and that voice is replaced",
            folder.voice,
            step,
            stage,
            checkpoints,
            newest[0],
        )


def refuse_without_ground(stage: Stage, folder: RunFolder, *, fresh: bool) -> None:
    """The stages before it were trained here, to their ends, and the voice has what they learnt."""
    reached = {earlier: None if fresh else _newest(folder.checkpoints(earlier)) for earlier in stages_before(stage)}
    begun = bool(list_checkpoints(folder.checkpoints(stage)))
    for earlier, steps in reached.items():
        if steps is None:
            raise CheckpointError(
                f"stage {stage} needs stage {earlier}, which this run has not trained",
                hint=f"run --stage {earlier} first, or leave --stage out to run all in order",
            )
        step, total_steps = steps
        # A stage that has begun keeps the ground that it has: only going on there could take it away.
        if step < total_steps and not begun:
            raise CheckpointError(
                f"stage {stage} needs stage {earlier}, which stopped at step {step} of {total_steps}",
                hint=f"run --stage {earlier} first (with a --max-steps beyond {step} it ends there), or leave --stage "
                "out to run all in order",
            )
        if earlier == stages_before(stage)[-1] and not begun:
            _refuse_older_voice(stage, earlier, step, folder)


def _refuse_older_voice(stage: Stage, earlier: Stage, step: int, folder: RunFolder) -> None:
    if published(voice_facts(folder.voice)) < Trained.to(earlier, step):
        raise CheckpointError(
            f"stage {stage} needs what stage {earlier} learnt to step {step}, and {folder.voice} does not have it",
            hint=f"run --stage {earlier} first, which writes it, or leave --stage out to run all in order",
        )


def _newest(folder: Path) -> tuple[int, int] | None:
    """Step and last step of the newest checkpoint whose manifest can be read."""
    for path in reversed(list_checkpoints(folder)):
        try:
            metadata = read_manifest(path)["metadata"]
            return metadata["step"], metadata["state"].get("total_steps", metadata["step"])
        except (DamagedError, KeyError):
            continue
    return None


def refuse_to_shift_ground(stage: Stage, step: int, total_steps: int, folder: RunFolder) -> None:
    """For a stage that has steps left: it may not take them once a later one has learnt from it."""
    later = [other for other in STAGES[STAGES.index(stage) + 1 :] if list_checkpoints(folder.checkpoints(other))]
    if later:
        raise CheckpointError(
            f"stage {stage} is at step {step} of {total_steps}, and stage {later[0]} has learnt from it as it is: what "
            f"{stage} learnt now would undo that",
            hint=f"--stage {later[0]} trains that one on; to train {stage} on, choose another --run-dir or start over "
            "with --fresh",
        )
