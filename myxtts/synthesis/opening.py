"""`open_voice`: the one way to open a voice, for the command line, Python programs and servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.errors import SynthesisError
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.synthesis.voice import find_voice, missing_to_speak, read_voice

if TYPE_CHECKING:
    from myxtts.synthesis.synthesizer import Synthesizer


def open_voice(name: str | Path, *, device: str | None = None, simulate_gpus: int = 0) -> Synthesizer:
    """Open a run's voice or a voice folder, ready to speak.

    The first call of a process configures TensorFlow's devices and chooses one; `device` ("/CPU:0") leaves that to the
    caller. `simulate_gpus` lets CPU devices stand for GPUs. Raises `CheckpointError` where there is no such voice,
    `SynthesisError` where it cannot speak yet.
    """
    folder = find_voice(name)
    voice = read_voice(folder)
    if missing := missing_to_speak(voice.manifest.parts):
        raise SynthesisError(
            f"the voice in {folder} cannot speak yet: it has {', '.join(voice.manifest.parts)} and no {missing[0]}",
            hint="train its gpt stage too: run the same train command again, without --stage",
        )
    device = device or configure_device(simulate_gpus)
    from myxtts.synthesis.synthesizer import Synthesizer
    from myxtts.synthesis.tensorflow_model import TensorFlowModel

    return Synthesizer(voice, TensorFlowModel.load(folder, voice, device=device))


def configure_device(simulate_gpus: int = 0) -> str:
    """The name of the one device that speaks: that of the plan which configured this process, or of a new plan."""
    from myxtts.runtime.apply import applied_plan, apply_plan

    plan = applied_plan()
    if plan is None:
        plan = plan_devices(DeviceRequest(), find_inventory(simulate_gpus))
        apply_plan(plan)
    return plan.model.name
