"""What suits this machine: the commands to begin with, by the GPUs that it has."""

from __future__ import annotations

from myxtts.runtime.inventory import Inventory

_TRAIN = "myxtts train --train-data MY_FOLDER"


def suited_commands(inventory: Inventory) -> list[tuple[str, str]]:
    """Commands and why, the most fitting first."""
    gpus = len(inventory.gpus)
    fine_tuning = (f"{_TRAIN} --init-from base", "from the built-in voice")
    if gpus == 0:
        return [
            (fine_tuning[0], "no GPU: from the built-in voice, in minutes to hours"),
            ('myxtts synth "Hello there." --out hello.wav', "the built-in voice speaks on any CPU"),
        ]
    if gpus == 1:
        return [(_TRAIN, "one GPU: from nothing"), fine_tuning]
    return [
        ("myxtts validate --data-gpu 0 --model-gpu 1", f"{gpus} GPUs: whether two of them work together"),
        (f"{_TRAIN} --data-gpu 0 --model-gpu 1", "data work on one, the model on the other"),
        ("myxtts bench placement --train-data MY_FOLDER", "which placement is fastest on your data"),
    ]
