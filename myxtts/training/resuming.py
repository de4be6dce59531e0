"""Continuing from a named checkpoint, in a program of the user's own: `XTTSTrainer(..., resume_checkpoint=PATH)`.

A checkpoint holds the layers that its stage trains. Those that the stage only stands on are in the run's voice folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.config.training import Stage
from myxtts.errors import CheckpointError
from myxtts.models.weights import MANIFEST_FILE, read_manifest
from myxtts.models.xtts import XTTS
from myxtts.synthesis.voice import VOICE_FOLDER, load_parts, voice_parts
from myxtts.training.checkpoint import load_checkpoint
from myxtts.training.recipes import STANDS_ON, recipe_for, with_steps
from myxtts.training.run_folder import refuse_other_configuration

if TYPE_CHECKING:
    from myxtts.training.trainer import XTTSTrainer


def resume(trainer: XTTSTrainer, path: Path, *, untrained: bool) -> None:
    """Start the checkpoint's stage where it stood; an `untrained` model first gets what the stage stands on."""
    if not path.is_dir():
        raise CheckpointError(f"checkpoint {path} does not exist", hint="find_latest_checkpoint(RUN) names the newest")
    checkpoint, config = load_checkpoint(path), trainer.config
    refuse_other_configuration(checkpoint.state.get("config", {}), config, path)
    stage: Stage = checkpoint.state["stage"]
    if untrained and STANDS_ON[stage]:
        _load_parts_before(stage, trainer.model, path, Path(config.training.run_dir))
    trainer.pretrained_parts = frozenset(config.training.init_parts)
    recipe = recipe_for(config, stage)
    trainer.start_stage(stage, with_steps(recipe, checkpoint.state.get("total_steps", recipe.steps)))
    trainer.restore(checkpoint)


def _load_parts_before(stage: Stage, model: XTTS, path: Path, run_dir: Path) -> None:
    needed = STANDS_ON[stage]
    around = path.absolute().parents[2:3]  # RUN/checkpoints/STAGE/step-N, unless --checkpoint-dir was given
    for voice in (folder / VOICE_FOLDER for folder in (*around, run_dir)):
        if (voice / MANIFEST_FILE).is_file() and set(needed) <= set(voice_parts(read_manifest(voice))):
            load_parts(voice, model)
            return
    raise CheckpointError(
        f"stage {stage} needs {', '.join(needed)}, found neither in {path} nor in a {VOICE_FOLDER}/ of its run",
        hint=f"pass model= with a trained {needed[0]}, or leave the checkpoint in its run, beside {VOICE_FOLDER}/",
    )
