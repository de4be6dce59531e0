"""What suits this machine: the commands to begin with, by the GPUs and the extras that it has."""

from __future__ import annotations

from myxtts.runtime.inventory import Inventory

_TRAIN = "myxtts train --train-data MY_FOLDER"


_SPEAK = ('myxtts synth "Hello there." --out hello.wav', "the built-in voice speaks on any CPU")


def suited_commands(inventory: Inventory, *, trains: bool) -> list[tuple[str, str]]:
    """Commands and why, the most fitting first; `trains` says whether what training needs is installed."""
    if not trains:
        return [
            _SPEAK,
            ("myxtts voices", "its speakers"),
            ('myxtts synth "Hello there." --reference CLIP.wav --out me.wav', "the colour of the clip's voice"),
        ]
    gpus = len(inventory.gpus)
    simulated = simulating(inventory)
    fine_tuning = (f"{_TRAIN} --init-from base{simulated}", "from the built-in voice")
    if gpus == 0:
        return [
            (fine_tuning[0], "no GPU: from the built-in voice, in minutes to hours"),
            _SPEAK,
        ]
    if gpus == 1:
        return [(f"{_TRAIN}{simulated}", "one GPU: from nothing"), fine_tuning]
    return [
        (f"myxtts validate --data-gpu 0 --model-gpu 1{simulated}", f"{gpus} GPUs: whether two of them work together"),
        (f"{_TRAIN} --data-gpu 0 --model-gpu 1{simulated}", "data work on one, the model on the other"),
        (f"myxtts bench placement --train-data MY_FOLDER{simulated}", "which placement is fastest on your data"),
    ]


def simulating(inventory: Inventory) -> str:
    """The flag that makes these GPUs of CPU devices, with a space before it; empty where they are real."""
    return f" --simulate-gpus {len(inventory.gpus)}" if inventory.simulated else ""
