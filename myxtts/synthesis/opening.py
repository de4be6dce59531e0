"""`open_voice`: the one way to open a voice, for the command line, Python programs and servers.

An exported voice is spoken by LiteRT. So is one with weights, where LiteRT is installed: it is exported the first time
it speaks and kept in its folder, to be used until the weights change. TensorFlow speaks otherwise, and on request.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from myxtts.errors import CheckpointError, MissingDependencyError, SynthesisError
from myxtts.monitoring.events import stands_at
from myxtts.synthesis.litert.folder import Weights, check_files, read_manifest
from myxtts.synthesis.litert.layout import can_export
from myxtts.synthesis.voice import BASE, Voice, find_voice, is_exported, missing_to_speak, read_voice

if TYPE_CHECKING:
    from myxtts.synthesis.synthesizer import Synthesizer

logger = logging.getLogger(__name__)

Runtime = Literal["litert", "tensorflow"]

KEPT_EXPORT = "litert"
"""Folder in a voice folder that holds its own export."""
KEPT_WEIGHTS: Weights = "f32"
"""Of that export: it speaks as the weights do. `myxtts export --weights int8` makes a smaller and faster one."""


def open_voice(
    name: str | Path = BASE, *, runtime: Runtime | None = None, device: str | None = None, simulate_gpus: int = 0
) -> Synthesizer:
    """Open a run's voice, a voice folder or a built-in voice, ready to speak; without a name, the built-in one.

    Without a `runtime`, LiteRT speaks where it can. With TensorFlow the first call of a process configures its devices
    and chooses one; `device` ("/CPU:0") leaves that to the caller, `simulate_gpus` lets CPU devices stand for GPUs, and
    either asks for TensorFlow. Raises `CheckpointError` where there is no such voice, `SynthesisError` where it cannot
    speak yet.
    """
    folder = find_voice(name)
    if runtime is None and (device is not None or simulate_gpus) and not is_exported(folder):
        runtime = "tensorflow"
    voice = read_voice(folder)
    step = stands_at(Path(name) / "events.jsonl")
    stands = f"step {step.step} of stage {step.stage}" if step else ""
    if missing := missing_to_speak(voice.manifest.parts):
        raise SynthesisError(
            f"the voice in {folder} cannot speak yet: it has {', '.join(voice.manifest.parts)} and no {missing[0]}"
            + (f"; its training stands at {stands}" if stands else ""),
            hint="train its gpt stage too: run its train command again, without --stage",
        )
    if stands:
        logger.warning(
            "the training of %s has not come to its end: this is how it speaks at %s. Run its train command again "
            "to go on",
            name,
            stands,
        )
    from myxtts.synthesis.synthesizer import Synthesizer

    if is_exported(folder) and runtime == "tensorflow":
        raise SynthesisError(
            f"{folder} was exported for LiteRT and has no weights for TensorFlow",
            hint="leave --runtime out, or name the folder that it was exported from",
        )
    exported = folder if is_exported(folder) else _kept_export(folder, voice, runtime)
    if exported is not None:
        from myxtts.synthesis.litert.model import LiteRTModel

        return Synthesizer(voice, LiteRTModel.load(exported, voice, checked=exported != folder))
    device = device or configure_device(simulate_gpus)
    from myxtts.synthesis.tensorflow_model import TensorFlowModel

    return Synthesizer(voice, TensorFlowModel.load(folder, voice, device=device))


def configure_device(simulate_gpus: int = 0) -> str:
    """The name of the one device that speaks: that of the plan which configured this process, or of a new plan."""
    from myxtts.runtime.apply import applied_plan, apply_plan
    from myxtts.runtime.inventory import find_inventory
    from myxtts.runtime.plan import DeviceRequest, plan_devices

    plan = applied_plan()
    if plan is None:
        plan = plan_devices(DeviceRequest(), find_inventory(simulate_gpus))
        apply_plan(plan)
    return plan.model.name


def _kept_export(folder: Path, voice: Voice, runtime: Runtime | None) -> Path | None:
    """The folder's own export, made now if need be; None where TensorFlow is to speak."""
    if runtime == "tensorflow" or (runtime is None and find_spec("ai_edge_litert") is None):
        return None
    if runtime is None and not can_export(voice.manifest.parts):
        return None
    kept = folder / KEPT_EXPORT
    if _is_of(kept, voice):
        return kept
    if find_spec("tensorflow") is None:
        raise MissingDependencyError(
            f"the voice in {folder} has to be exported once, and TensorFlow, which does that, is not installed",
            hint="export it where it was trained: myxtts export VOICE OUT --format litert",
        )
    logger.info("%s speaks for the first time: it is made ready for that, once, in about half a minute", folder)
    problem = _export(folder, kept)
    if _is_of(kept, voice):
        return kept
    if runtime == "litert":
        raise SynthesisError(
            f"the voice in {folder} could not be exported for LiteRT: {problem}",
            hint="speak with --runtime tensorflow, or export it to another folder: myxtts export --format litert",
        )
    logger.warning("spoken with TensorFlow: the voice could not be exported for LiteRT: %s", problem)
    return None


def _is_of(kept: Path, voice: Voice) -> bool:
    """Whether the export is whole and of this voice as it is now."""
    try:
        found = read_manifest(kept)
        if (found.voice_sha256, found.voice.alignment_heads) != (voice.sha256, voice.manifest.alignment_heads):
            return False
        check_files(kept, found)
    except CheckpointError:
        return False
    return True


def _export(folder: Path, kept: Path) -> str:
    """Export in a process of its own, so that this one stays without TensorFlow; returns what it said last."""
    command = [sys.executable, "-m", "myxtts", "export", str(folder), str(kept)]
    options = ["--format", "litert", "--weights", KEPT_WEIGHTS, "--replace"]
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}  # its GPU may be training
    done = subprocess.run(
        [*command, *options], env={**os.environ, **hidden}, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")] or done.stderr.splitlines()
    return lines[-1].removeprefix("error: ") if lines else f"exit code {done.returncode}"
