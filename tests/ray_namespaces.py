"""A Ray cluster of two nodes in network namespaces of their own, with a cable between them that can be pulled.

Needs root. Nothing of it is reachable from outside: the namespaces have no other interface.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.processes import ONLY_CPU, ROOT
from tests.ray_nodes import PATIENT

HEAD, OTHER = "10.77.0.1", "10.77.0.2"
PORT = 6379
ACROSS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Nodes have addresses of their own here, where those of `tests.ray_nodes` share the loopback."""


class TwoNamespaces:
    """The head, which the driver joins, with one CPU; and a node with as many as are asked for."""

    address = f"{HEAD}:{PORT}"

    def __init__(self, logs: Path, cpus: int) -> None:
        self._logs, self._cpus = logs, cpus
        # Named by this process, so that two of these do not meet.
        self._spaces = {HEAD: f"xtts{os.getpid()}a", OTHER: f"xtts{os.getpid()}b"}
        self._nodes: list[subprocess.Popen[bytes]] = []
        try:
            self._wire()
            self._start(HEAD, 1, "--head", "--port", str(PORT), "--include-dashboard", "false")
            self.start_other()
        except BaseException:
            self.close()
            raise

    def inside(self) -> list[str]:
        """What a command begins with to run on the head."""
        return ["ip", "netns", "exec", self._spaces[HEAD]]

    def start_other(self) -> None:
        self._start(OTHER, self._cpus, "--address", self.address)

    def cut(self) -> None:
        _ip("-n", self._spaces[OTHER], "link", "set", "cable", "down")

    def mend(self) -> None:
        _ip("-n", self._spaces[OTHER], "link", "set", "cable", "up")

    def close(self) -> None:
        for node in self._nodes:
            if node.poll() is None:
                tree = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
                for process in tree:
                    if process.is_running():
                        process.kill()
            node.wait()
        for name in self._spaces.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _wire(self) -> None:
        for name in self._spaces.values():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        head, other = self._spaces[HEAD], self._spaces[OTHER]
        _ip("-n", head, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", other)
        for address, name in self._spaces.items():
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")

    def _start(self, address: str, cpus: int, *flags: str) -> None:
        log = self._logs / f"ray-{address}-{len(self._nodes)}.log"
        ray = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats", *flags]
        sizes = ["--node-ip-address", address, "--num-cpus", str(cpus), "--object-store-memory", str(100 << 20)]
        with log.open("wb") as out:
            node = subprocess.Popen(
                ["ip", "netns", "exec", self._spaces[address], *ray, *sizes],
                env={**os.environ, **ACROSS, **PATIENT, **ONLY_CPU, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._nodes.append(node)
        ends_at = time.monotonic() + 120
        while "Ray runtime started" not in log.read_text():
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < ends_at, log.read_text()
            time.sleep(0.2)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
