"""A Ray cluster of several nodes on this machine's loopback, and training runs over it that a test kills parts of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.processes import ONLY_CPU, ROOT
from tests.training_processes import ONE_THREAD, arguments, events, log_of, losses

LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
PATIENT = {"RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "600"}
"""For a core that many tests share."""


class NodeDidNotStartError(Exception):
    """Four times. Ray gives its agents 15 seconds, which no setting changes."""


class RayNodes:
    """Nodes of so many CPUs; the first one is the head and is not to be killed."""

    def __init__(self, *cpus: int, **options: Any) -> None:
        os.environ.update(LOOPBACK_ONLY, **PATIENT, PYTHONPATH=str(ROOT), **ONLY_CPU)  # for what Ray starts
        from ray.cluster_utils import Cluster

        # Without what a test does not need: each is a Python process that has to start.
        few = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        self._common = {**few, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20, **options}
        self._cluster = Cluster()
        self.add(cpus[0])
        self.others = [self.add(count) for count in cpus[1:]]
        self.address: str = self._cluster.address

    def add(self, cpus: int) -> Any:
        """Ray gives a node 30 seconds to start, which is not enough where many tests share a core."""
        for _ in range(4):
            try:
                return self._cluster.add_node(num_cpus=cpus, **self._common)
            except Exception as error:  # Ray has no class of its own for it
                if "timed out during startup" not in str(error):
                    raise
        raise NodeDidNotStartError

    def kill(self, node: Any) -> None:
        """The node's raylet, and with it all of its workers, at once."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """The process that knows the cluster's nodes and actors; the nodes follow it after a minute."""
        self._cluster.head_node.all_processes["gcs_server"][0].process.kill()

    def close(self) -> None:
        self._cluster.shutdown()


def workers(kind: str) -> list[psutil.Process]:
    """The processes of workers ("DataWorkerActor", "ModelWorkerActor") that belong to this one's nodes."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.cmdline()[:1] and child.cmdline()[0].startswith(f"ray::{kind}"):
                found.append(child)
        except psutil.Error:
            continue
    return found


def command(corpus: Path, run_dir: Path, address: str, *more: str) -> list[str]:
    return [*arguments(corpus, run_dir, *more), "--cluster", address]


@contextmanager
def started(
    command: Sequence[str], run_dir: Path, *, inside: Sequence[str] = (), **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The driver, in an interpreter of its own; what it says is in a file beside the run's folder."""
    with log_of(run_dir).open("ab") as log:
        driver = subprocess.Popen(
            [*inside, sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **LOOPBACK_ONLY, **ONLY_CPU, **ONE_THREAD, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield driver
        finally:
            if driver.poll() is None:
                driver.send_signal(signal.SIGKILL)
            driver.wait()


def wait_for_step(driver: subprocess.Popen[bytes], run_dir: Path, step: int, timeout_s: float = 600) -> None:
    ends_at = time.monotonic() + timeout_s
    while max(losses(run_dir), default=0) < step:
        assert driver.poll() is None, log_of(run_dir).read_text()
        assert time.monotonic() < ends_at, f"step {step} was not reached: {log_of(run_dir).read_text()}"
        time.sleep(0.2)  # reading all events costs more the longer the run


def wait_for_words(driver: subprocess.Popen[bytes], run_dir: Path, words: str, timeout_s: float = 120) -> None:
    ends_at = time.monotonic() + timeout_s
    while words not in log_of(run_dir).read_text():
        assert driver.poll() is None
        assert time.monotonic() < ends_at, log_of(run_dir).read_text()
        time.sleep(0.2)


def ended_well(driver: subprocess.Popen[bytes], run_dir: Path, timeout_s: float = 600) -> None:
    assert driver.wait(timeout_s) == 0, log_of(run_dir).read_text()
    assert events(run_dir)[-1]["reason"] == "finished"


def nothing_is_left(timeout_s: float = 30) -> None:
    ends_at = time.monotonic() + timeout_s
    while left := [*workers("DataWorkerActor"), *workers("ModelWorkerActor")]:
        assert time.monotonic() < ends_at, f"still there: {left}"
        time.sleep(0.2)
