"""Model workers: processes that learn together, each with a device, under TensorFlow's MultiWorkerMirroredStrategy.

Who they are is said by `TF_CONFIG`, which our own driver sets and others may, or by Slurm's variables of a job step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from myxtts.errors import ConfigError
from myxtts.runtime.backend import import_tensorflow
from myxtts.runtime.slurm import addresses_of_step, tasks_of_step


@dataclass(frozen=True)
class WorkerPlace:
    """Which of how many model workers this process is."""

    number: int = 0
    size: int = 1


def place_in(environment: Mapping[str, str]) -> WorkerPlace:
    """By `TF_CONFIG`, else by the variables of a Slurm step with several tasks, else alone."""
    text = tf_config_in(environment)
    return WorkerPlace() if text is None else _place_in_tf_config(text)


def tf_config_in(environment: Mapping[str, str]) -> str | None:
    """`TF_CONFIG`, or what it would be in this Slurm step; None for a process that is alone."""
    if text := environment.get("TF_CONFIG"):
        return text
    if tasks_of_step(environment) == 1:
        return None
    return tf_config(addresses_of_step(environment), int(environment["SLURM_PROCID"]))


def _place_in_tf_config(text: str) -> WorkerPlace:
    try:
        parsed = json.loads(text)
        workers, task = parsed["cluster"]["worker"], parsed["task"]
        number, kind = int(task["index"]), task["type"]
        others = set(parsed["cluster"]) - {"worker"}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"TF_CONFIG cannot be read ({type(error).__name__}: {error})",
            hint='it is {"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}',
        ) from None
    if kind != "worker" or others or not 0 <= number < len(workers):
        raise ConfigError(
            f"TF_CONFIG has task {kind} {number} of {len(workers)} workers"
            + (f" and jobs {', '.join(sorted(others))}" if others else ""),
            hint="all processes are workers, numbered from 0; worker 0 is the chief and writes the run",
        )
    return WorkerPlace(number, len(workers))


def tf_config(addresses: list[str], number: int) -> str:
    """The variable's value for one of the workers at these addresses."""
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}})


@cache
def multi_worker_strategy() -> Any:
    """The strategy of this process's place: made once, before TensorFlow has made a tensor. Waits for all workers.

    A ring over the network on CPUs, NCCL on GPUs.
    """
    tf = import_tensorflow()
    kind = tf.distribute.experimental.CommunicationImplementation
    gpus = bool(tf.config.get_visible_devices("GPU"))
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind.NCCL if gpus else kind.RING)
    text = tf_config_in(os.environ)
    assert text is not None, "a process that is alone has no such strategy"
    os.environ["TF_CONFIG"] = text
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
