"""What `bench simulate` predicts beyond one machine: network, object store, failures, and what an epoch costs.

    python -m bench simulate --process-ms 35 --train-ms 180 --batch-mb 3 --gradient-mb 430 --network-gb-s 1.25

Model workers of one node sum gradients over the node's link, those of several over the network. A batch goes through
the object store and, to another node, over the network. A lost data worker costs nothing but its batch; a lost model
worker costs a restart and the steps since the last checkpoint, for all of them. Pure: figures in, figures out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.simulate import Phases, Prediction, simulate

MODEL_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_DATA_WORKERS = 64
WORTH = 0.5
"""Twice the model workers pay while they bring at least this part of twice the speed."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes that are all alike."""

    node_devices: int = 8
    network_gb_s: float = 1.25
    """Between nodes, each way: 1.25 is 10 Gbit/s Ethernet, 12 to 50 are InfiniBand's."""
    network_latency_ms: float = 0.1
    store_ms_per_mb: float = 1.0
    """Into the object store and out of it, once each. An assumption, as are the next three: give your own."""
    call_ms: float = 2.0
    """Of asking for a batch and getting its reference."""
    days_between_failures: float = 30.0
    """Of one device with its share of its node."""
    restart_s: float = 90.0
    """From a loss to the first step of the next attempt."""
    checkpoint_steps: int = 500

    def phases(self, phases: Phases, data_workers: int, model_workers: int) -> Phases:
        """The same work with what it costs to be spread out."""
        travels = data_workers + model_workers > self.node_devices
        spread = model_workers > self.node_devices
        ring = replace(
            phases,
            link_gb_s=min(phases.link_gb_s, self.network_gb_s) if spread else phases.link_gb_s,
            link_latency_ms=self.network_latency_ms if spread else phases.link_latency_ms,
        )
        # Each model worker fetches its own part, at the same time as the others do.
        part_mb = phases.batch_mb / model_workers
        fetch_ms = self.call_ms + part_mb * (self.store_ms_per_mb + (1 / self.network_gb_s if travels else 0.0))
        return replace(ring, batch_mb=0.0, transfer_fixed_ms=fetch_ms)

    def running_share(self, model_workers: int, step_s: float) -> float:
        """The share of the time that is not lost to failures and what they undo."""
        failures_per_s = model_workers / (self.days_between_failures * 86_400)
        lost_s = self.restart_s + 0.5 * self.checkpoint_steps * step_s
        return 1 / (1 + failures_per_s * lost_s)


@dataclass(frozen=True)
class ClusterPrediction:
    """The steady state of D data workers and M model workers, failures included."""

    steady: Prediction
    batches_per_s: float
    running_share: float
    gpu_hours_per_epoch: float

    @property
    def workers(self) -> tuple[int, int]:
        return self.steady.data_devices, self.steady.model_devices


def predict(
    phases: Phases, cluster: Cluster, data_workers: int, model_workers: int, *, epoch_batches: int, batches: int = 300
) -> ClusterPrediction:
    spread = cluster.phases(phases, data_workers, model_workers)
    steady = simulate(spread, data_workers, model_workers, batches=batches)
    running = cluster.running_share(model_workers, 1 / steady.steps_per_s)
    speed = steady.steps_per_s * running
    hours = (data_workers + model_workers) * epoch_batches / speed / 3600
    return ClusterPrediction(steady, speed, running, hours)


def enough_data_workers(phases: Phases, cluster: Cluster, model_workers: int) -> int:
    """The fewest that keep the model workers fed, or all."""
    for count in range(1, MOST_DATA_WORKERS + 1):
        if phases.process_ms / count <= cluster.phases(phases, count, model_workers).step_ms(model_workers):
            return count
    return MOST_DATA_WORKERS


def table(
    phases: Phases, cluster: Cluster, *, epoch_batches: int, model_workers: Sequence[int] = MODEL_WORKERS
) -> list[ClusterPrediction]:
    """For each number of model workers, with as many data workers as those need. The batch grows with them."""
    found = []
    for count in model_workers:
        grown = phases.with_rows_of(count)
        data_workers = enough_data_workers(grown, cluster, count)
        found.append(predict(grown, cluster, data_workers, count, epoch_batches=max(1, epoch_batches // count)))
    return found


def pays_up_to(predictions: Sequence[ClusterPrediction]) -> int:
    """The model workers beyond which doubling them brings less than `WORTH` of what it should."""
    paying = predictions[0]
    for one, more in itertools.pairwise(predictions):
        models, twice = one.steady.model_devices, more.steady.model_devices
        gain = more.batches_per_s * twice / (one.batches_per_s * models) - 1
        if gain < WORTH * (twice / models - 1):
            return paying.steady.model_devices
        paying = more
    return paying.steady.model_devices


def lines(predictions: Sequence[ClusterPrediction]) -> list[str]:
    """The table in words; work counts batches of the size that one model worker takes."""
    shown = [
        f"{'data':>5} {'model':>6} {'work/s':>9} {'times 1':>8} {'running':>8} {'GPU-h/epoch':>12}  limit",
    ]
    first = predictions[0].batches_per_s * predictions[0].steady.model_devices
    for one in predictions:
        data, model = one.workers
        work = one.batches_per_s * model
        shown.append(
            f"{data:5} {model:6} {work:9.2f} {work / first:8.2f} {one.running_share:8.1%} "
            f"{one.gpu_hours_per_epoch:12.2f}  {one.steady.bottleneck}"
        )
    shown.append(f"doubling the model workers stops paying at {pays_up_to(predictions)}")
    return shown
