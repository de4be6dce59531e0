"""What Ray runs on the nodes: data workers and model workers."""

from __future__ import annotations

import collections
import logging
import math
import os
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from myxtts.cluster.connecting import import_ray
from myxtts.config.config import XTTSConfig
from myxtts.errors import MyXTTSError, PipelineError
from myxtts.monitoring.log import setup_logging
from myxtts.pipeline import split_rows
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.backend import import_tensorflow
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, for_model_workers, plan_devices
from myxtts.runtime.workers import tf_config

if TYPE_CHECKING:
    from myxtts.cluster.producers import BatchCall
    from myxtts.training.data_worker import DataWorker, ProducedBatch

logger = logging.getLogger(__name__)

LEASE_S = 60.0
"""A model worker that its driver has not asked for so long ends itself: a node that was cut off must not write beside
the workers that took its place."""
KEPT_BATCHES = 8
"""Batches whose other parts a data worker keeps for the model workers that are behind."""


@dataclass(frozen=True)
class Pong:
    """A worker's sign of life, with the lines of its log since the last one."""

    process: int
    lines: tuple[tuple[int, str], ...] = ()


class DataWorkerActor:
    """Answers calls for batches, one after the other, and keeps nothing that it cannot make again."""

    def __init__(self, config: XTTSConfig, cpu_threads: int | None) -> None:
        self._plan = _own_plan(config, cpu_threads)
        self._stage = ""
        self._worker: DataWorker | None = None
        self._parts: dict[int, dict[int, ProducedBatch]] = {}

    def batch(self, call: BatchCall) -> ProducedBatch:
        """The model worker's part of the batch; the other parts wait for their model workers."""
        if call.stage != self._stage:
            self._begin(call)
        parts = self._parts.pop(call.number, {})
        if call.part not in parts:  # asked for the first time, or again after an answer was lost
            assert self._worker is not None
            parts = split(self._worker.batch(call.number), call.parts)
        own = parts.pop(call.part)
        if parts:
            self._parts[call.number] = parts
        while len(self._parts) > KEPT_BATCHES:
            del self._parts[min(self._parts)]
        return own

    def ping(self) -> Pong:
        return Pong(os.getpid())

    def _begin(self, call: BatchCall) -> None:
        from myxtts.training.data_worker import DataWorker

        apply_plan(self._plan)
        if self._worker is not None:
            self._worker.close()
        self._parts.clear()
        self._worker = DataWorker(import_ray().get(call.setup[0]), self._plan, stride=call.stride)
        self._stage = call.stage


def split(produced: ProducedBatch, parts: int) -> dict[int, ProducedBatch]:
    """A batch's rows for each model worker."""
    if parts == 1:
        return {0: produced}
    return {part: replace(produced, arrays=dict(own)) for part, own in enumerate(split_rows(produced.arrays, parts))}


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended for a model worker that is still there."""

    finished: bool = False
    error: MyXTTSError | None = None
    """For the user: trying again would end the same way."""
    lost: str | None = None
    """A worker that this one needed was lost."""
    itself: bool = False
    """Whether it was this one itself that was lost."""
    fault: str | None = None
    """Anything else, with its traceback."""

    @property
    def failed(self) -> bool:
        return self.error is not None or self.lost is not None or self.fault is not None


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """What the model workers' outcomes mean for the run. Who was lost itself says more than who noticed, and what a
    user must change more than either."""
    failures = [outcome for outcome in outcomes if outcome.failed]
    failures.sort(key=lambda outcome: (outcome.error is None, not outcome.itself, outcome.fault is None))
    return failures[0] if failures else Outcome(finished=all(outcome.finished for outcome in outcomes))


class ModelWorkerActor:
    """Runs the trainer on a thread; others answer the driver meanwhile."""

    def __init__(self, config: XTTSConfig, cpu_threads: int | None, number: int, size: int) -> None:
        self._config, self._number, self._size = config, number, size
        self._plan = for_model_workers(_own_plan(config, cpu_threads), size)
        self._lines: collections.deque[tuple[int, str]] = collections.deque(maxlen=1000)
        self._stop = threading.Event()
        self._asked_at = math.inf  # its lease begins when it is asked for the first time
        setup_logging().addHandler(_Lines(self._lines))
        threading.Thread(target=self._end_without_driver, daemon=True).start()

    def address(self) -> str:
        """Where the others find this one's TensorFlow: a port that is free now."""
        host = import_ray().util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"{host}:{probe.getsockname()[1]}"

    def train(self, addresses: list[str], actors: Sequence[Any], names: Sequence[str], command: str) -> Outcome:
        """One attempt at the run."""
        if self._size > 1:
            os.environ["TF_CONFIG"] = tf_config(addresses, self._number)
        tf, ray = import_tensorflow(), import_ray()
        from myxtts.cluster.producers import ClusterDataWorkers
        from myxtts.training.run import run_here
        from myxtts.training.team import Team

        workers = ClusterDataWorkers(actors, names, self._number, self._size)
        team = Team(self._number, self._size)
        try:
            finished = run_here(
                self._config, self._plan, self._stop.is_set, team=team, data_workers=workers, command=command
            )
            return Outcome(finished=finished)
        except PipelineError as error:
            return Outcome(lost=error.problem)
        except MyXTTSError as error:
            return Outcome(error=error)
        except ray.exceptions.RayError as error:
            return Outcome(lost=f"a data worker was lost ({type(error).__name__})")
        except tf.errors.OpError as error:
            if self._size == 1:
                return Outcome(fault=traceback.format_exc())
            return Outcome(lost=f"another model worker was lost ({type(error).__name__})")
        except Exception:  # noqa: BLE001 - the process's edge: the driver shows it
            return Outcome(fault=traceback.format_exc())

    def ping(self) -> Pong:
        """Also renews the lease."""
        self._asked_at = time.monotonic()
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        return Pong(os.getpid(), tuple(lines))

    def stop(self) -> None:
        """After the step at hand."""
        self._stop.set()

    def _end_without_driver(self) -> None:
        while time.monotonic() - self._asked_at < LEASE_S:
            time.sleep(1.0)
        logger.error("the driver has not asked for %g s: model worker %d ends", LEASE_S, self._number)
        os._exit(1)


class _Lines(logging.Handler):
    """Keeps log lines for the driver, which prints those of the chief."""

    def __init__(self, lines: collections.deque[tuple[int, str]]) -> None:
        super().__init__()
        self._kept = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append((record.levelno, record.getMessage()))


def _own_plan(config: XTTSConfig, cpu_threads: int | None) -> DevicePlan:
    """The one device that Ray gave this process."""
    request = DeviceRequest(cpu_threads=config.training.cpu_threads or cpu_threads)
    return plan_devices(request, find_inventory())
