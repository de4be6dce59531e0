"""Where the tasks of a Slurm step find each other, by the variables that Slurm gives each of them.

TensorFlow's own `SlurmClusterResolver` is of no use here: it asks nvidia-smi, divides a node's GPUs among its tasks
though Slurm has done so, and sorts nodes by name, so that node10 gets the tasks of node2.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from myxtts.errors import ConfigError

FIRST_PORT, PORTS, PORTS_A_JOB = 10_000, 16_000, 16
"""Jobs that share a node have ports of their own, below those that a system gives to clients."""


def tasks_of_step(environment: Mapping[str, str]) -> int:
    return int(environment.get("SLURM_STEP_NUM_TASKS", "1"))


def addresses_of_step(environment: Mapping[str, str]) -> list[str]:
    """HOST:PORT of every task, in the order of their numbers."""
    hosts = list(hosts_in(environment["SLURM_STEP_NODELIST"]))
    tasks = list(_tasks_of_nodes(environment["SLURM_STEP_TASKS_PER_NODE"]))
    node, local = int(environment["SLURM_NODEID"]), int(environment["SLURM_LOCALID"])
    if sum(tasks[:node]) + local != int(environment["SLURM_PROCID"]):
        raise ConfigError(
            f"task {environment['SLURM_PROCID']} of the Slurm step is number {local} on node {node}: tasks are not "
            "numbered node by node",
            hint="srun --distribution=block numbers them so; or set TF_CONFIG for each task",
        )
    first = FIRST_PORT + int(environment["SLURM_JOB_ID"]) * PORTS_A_JOB % PORTS
    return [f"{host}:{first + port}" for host, count in zip(hosts, tasks, strict=True) for port in range(count)]


def hosts_in(nodelist: str) -> Iterator[str]:
    """`rack[1-2]n[08-10],login` is seven hosts."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodelist):
        # Every second piece was between brackets.
        pieces = [[piece] for piece in re.split(r"\[([^\]]*)\]", part)]
        pieces[1::2] = [list(_numbers_in(ranges)) for (ranges,) in pieces[1::2]]
        yield from map("".join, itertools.product(*pieces))


def _numbers_in(ranges: str) -> Iterator[str]:
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def _tasks_of_nodes(text: str) -> Iterator[int]:
    """`3(x2),1` is 3, 3, 1."""
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        yield from [int(count)] * int(times or 1)
