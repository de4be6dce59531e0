"""Which stage may learn now: each stands on the ones before it, which must be done by then and stay as they are.

A GPT speaks the codes of one codec and a decoder understands the latents of one GPT. What a stage before them learnt
later would leave them speaking a language that nobody understands any more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.config.model import ModelConfig
from myxtts.config.training import Stage
from myxtts.errors import CheckpointError, DamagedError
from myxtts.models.weights import read_manifest
from myxtts.synthesis.manifest import VoiceManifest
from myxtts.synthesis.voice import VOICE_FOLDER, load_parts, voice_manifest
from myxtts.training.checkpoint import list_checkpoints
from myxtts.training.run_folder import RunFolder
from myxtts.training.stages import STAGES, stage_names, stages_after, stages_before
from myxtts.training.stages.spec import StageSpec

if TYPE_CHECKING:
    from myxtts.models.xtts import XTTS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Trained:
    """How far weights have come; later stages are further."""

    place: int
    step: float

    @classmethod
    def to(cls, stage: Stage, step: float) -> Trained:
        if stage not in stage_names():
            raise CheckpointError(
                f"the voice was trained to stage {stage!r}, which this version does not know", hint="update myxtts"
            )
        return cls(stage_names().index(stage), step)


def published(manifest: VoiceManifest, *, inherited: Iterable[str] = ()) -> Trained:
    """How far the weights of a voice are trained, by its manifest.

    Where the manifest does not say, the voice is one whose parts the run `inherited`, of which nothing was trained
    here, or one of an earlier version, whose parts tell which stage it is of.
    """
    if manifest.trained_to is not None:
        return Trained.to(*manifest.trained_to)
    parts = () if inherited else manifest.parts
    learnt = [spec.name for spec in STAGES if spec.purpose in parts]
    return Trained.to(learnt[-1], math.inf) if learnt else Trained(-1, 0)


def refuse_without_checkpoints(folder: RunFolder) -> None:
    """A voice that was trained here has checkpoints, unless they are elsewhere: its stage would begin anew over it."""
    manifest = voice_manifest(folder.voice)
    if manifest.trained_to is None:
        return
    stage, step = manifest.trained_to
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


def refuse_without_earlier_stages(spec: StageSpec, model: ModelConfig, folder: RunFolder, *, fresh: bool) -> None:
    """The stages of the model before it were trained here, to their ends, and the voice has what they learnt."""
    stage, before = spec.name, [earlier.name for earlier in stages_before(spec, model)]
    reached = {earlier: None if fresh else _newest(folder.checkpoints(earlier)) for earlier in before}
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
        if earlier == before[-1] and not begun:
            _refuse_older_voice(stage, earlier, step, folder)


def _refuse_older_voice(stage: Stage, earlier: Stage, step: int, folder: RunFolder) -> None:
    if published(voice_manifest(folder.voice)) < Trained.to(earlier, step):
        raise CheckpointError(
            f"stage {stage} needs what stage {earlier} learnt to step {step}, and {folder.voice} does not have it",
            hint=f"run --stage {earlier} first, which writes it, or leave --stage out to run all in order",
        )


def _newest(folder: Path) -> tuple[int, int] | None:
    """Step and last step of the newest checkpoint whose manifest can be read."""
    for path in reversed(list_checkpoints(folder)):
        try:
            metadata = read_manifest(path).metadata
            return metadata["step"], metadata["state"].get("total_steps", metadata["step"])
        except (DamagedError, KeyError):
            continue
    return None


def refuse_if_later_stage_learnt(
    spec: StageSpec, model: ModelConfig, step: int, total_steps: int, folder: RunFolder
) -> None:
    """For a stage that has steps left: it may not take them once a later one has learnt from it."""
    stage, after = spec.name, [other.name for other in stages_after(spec, model)]
    later = [other for other in after if list_checkpoints(folder.checkpoints(other))]
    if later:
        raise CheckpointError(
            f"stage {stage} is at step {step} of {total_steps}, and stage {later[0]} has learnt from it as it is: what "
            f"{stage} learnt now would undo that",
            hint=f"--stage {later[0]} trains that one on; to train {stage} on, choose another --run-dir or start over "
            "with --fresh",
        )


def load_required_parts(spec: StageSpec, model: XTTS, checkpoint: Path, run_dir: Path) -> None:
    """Fill the parts that a stage requires from the voice folder of its checkpoint's run: a checkpoint has them not."""
    if not spec.requires:
        return
    around = checkpoint.absolute().parents[2:3]  # RUN/checkpoints/STAGE/step-N, unless --checkpoint-dir was given
    for voice in (folder / VOICE_FOLDER for folder in (*around, run_dir)):
        if set(spec.requires) <= set(voice_manifest(voice).parts):
            load_parts(voice, model)
            return
    raise CheckpointError(
        f"stage {spec.name} needs {', '.join(spec.requires)}, found neither in {checkpoint} nor in a {VOICE_FOLDER}/ "
        "of its run",
        hint=f"pass model= with a trained {spec.requires[0]}, or leave the checkpoint in its run, beside "
        f"{VOICE_FOLDER}/",
    )
