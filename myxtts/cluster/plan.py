"""Who works where: data workers and model workers over the devices of a cluster's nodes.

`plan_cluster` is pure, as `myxtts.runtime.plan` is for one machine: what was asked and what is there go in, a complete
plan or a `DeviceError` comes out. Every worker has a device of its own: a GPU where the cluster has any, else a CPU.
Model workers are packed on as few nodes as they fit on, for their gradients travel most; data workers come next to
them, and on other nodes only where those are full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from myxtts.config.config import XTTSConfig
from myxtts.errors import ConfigError, DeviceError

Role = Literal["model", "data"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster."""

    identity: str
    address: str
    cpus: int
    gpus: int = 0
    memory_mb: int | None = None

    def devices(self, kind: str) -> int:
        return self.gpus if kind == "GPU" else self.cpus


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """How many workers were asked for."""

    data_workers: int = 1
    model_workers: int = 1
    elastic: bool = False
    """Fewer will do, one of each at least."""

    @classmethod
    def from_config(cls, config: XTTSConfig) -> ClusterRequest:
        training, data = config.training, config.data
        for given, flag in (
            (data.data_gpu is not None or data.model_gpu is not None, "--data-gpu and --model-gpu"),
            (training.multi_gpu, "--multi-gpu"),
            (training.visible_gpus is not None, "--visible-gpus"),
            (training.enable_memory_isolation, "--enable-memory-isolation"),
        ):
            if given:
                raise ConfigError(
                    f"{flag} was given beside --cluster, where each worker has one device that Ray gives it",
                    hint=f"leave {flag} out; --data-workers and --model-workers say how many devices work",
                )
        return cls(data_workers=training.data_workers, model_workers=training.model_workers, elastic=training.elastic)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One worker with its node."""

    role: Role
    number: int
    """Counted within its role."""
    node: Node
    cpu_threads: int | None = None
    """Its share of its node's CPUs, where it computes on those."""

    @property
    def name(self) -> str:
        kind = "data worker" if self.role == "data" else "model worker"
        return f"{kind} {self.number} on {self.node.address}"


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """All workers, and on which kind of device."""

    kind: Literal["GPU", "CPU"]
    models: tuple[Placement, ...]
    producers: tuple[Placement, ...]
    nodes: tuple[Node, ...]

    @property
    def placements(self) -> tuple[Placement, ...]:
        return (*self.models, *self.producers)

    def lines(self) -> list[str]:
        """The plan in words."""
        lines = [f"Cluster: {len(self.nodes)} node(s), {sum(n.devices(self.kind) for n in self.nodes)} {self.kind}(s)"]
        for node in self.nodes:
            own = [f"{one.role} worker {one.number}" for one in self.placements if one.node == node]
            memory = "" if node.memory_mb is None else f", {node.memory_mb / 1024:.0f} GB"
            there = f"{node.devices(self.kind)} {self.kind}(s){memory}"
            lines.append(f"   {node.address} ({there}): {', '.join(own) or 'unused'}")
        parts = len(self.models)
        shared = "is learnt whole by the model worker" if parts == 1 else f"is shared out among {parts} model workers"
        lines.append(f"   batch p is made by data worker p mod {len(self.producers)} and {shared}")
        return lines


def plan_cluster(request: ClusterRequest, nodes: Sequence[Node]) -> ClusterPlan:
    """A device for every worker, or a `DeviceError` that says how many there are."""
    gpus = sum(node.gpus for node in nodes)
    kind: Literal["GPU", "CPU"] = "GPU" if gpus else "CPU"
    there = gpus or sum(node.cpus for node in nodes)
    wanted = request.data_workers + request.model_workers
    if there < wanted and request.elastic and there >= 2:
        request = fewer_workers(request, there)
    elif there < wanted:
        raise DeviceError(
            f"{request.data_workers} data workers and {request.model_workers} model workers need {wanted} devices, "
            f"and the cluster has {there} {kind}(s) on {len(nodes)} node(s)",
            hint="lower --data-workers or --model-workers, add nodes with `ray start --address`, or let --elastic use "
            "what is there; to try it on one machine: --cluster local --simulate-gpus N",
        )
    # Larger nodes first, then as Ray names them: the same inventory always gives the same plan.
    ordered = sorted(nodes, key=lambda node: (-node.devices(kind), node.address, node.identity))
    seats = [node for node in ordered for _ in range(node.devices(kind))]
    models = _placed("model", seats[: request.model_workers])
    # Behind the last model worker its own node goes on, if it has devices left.
    producers = _placed("data", seats[request.model_workers :][: request.data_workers])
    plan = ClusterPlan(kind=kind, models=models, producers=producers, nodes=tuple(ordered))
    return plan if kind == "GPU" else _with_threads(plan)


def fewer_workers(request: ClusterRequest, devices: int) -> ClusterRequest:
    """What is left is shared in the proportion that was asked for, one of each role at least."""
    share = request.model_workers / (request.model_workers + request.data_workers)
    models = min(request.model_workers, max(1, round(devices * share)), devices - 1)
    return replace(request, model_workers=models, data_workers=min(request.data_workers, devices - models))


def _placed(role: Role, seats: Sequence[Node]) -> tuple[Placement, ...]:
    return tuple(Placement(role=role, number=number, node=node) for number, node in enumerate(seats))


def _with_threads(plan: ClusterPlan) -> ClusterPlan:
    """An even share of a node's CPUs for each worker on it."""

    def shared(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
        return tuple(
            replace(one, cpu_threads=max(1, one.node.cpus // sum(other.node == one.node for other in plan.placements)))
            for one in placements
        )

    return replace(plan, models=shared(plan.models), producers=shared(plan.producers))
