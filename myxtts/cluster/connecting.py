"""To a Ray cluster and away from it: one that is started here, one that is found, or one at an address."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from myxtts.cluster.plan import Node
from myxtts.errors import ConfigError, DeviceError, MissingDependencyError, how_to_install

LOCAL = "local"
AUTO = "auto"
LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 5.0
OBJECT_STORE_MB = 512
"""Of a cluster that is started here; what does not fit is spilled to disk by Ray."""
_CURRENT_CLUSTER = Path("/tmp/ray/ray_current_cluster")
"""Where `ray start` leaves the address that "auto" finds."""


def import_ray() -> Any:
    """Ray, or a clear error where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a worker without a GPU keeps what it was given
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            f"--cluster needs Ray, which cannot be imported: {error}", hint=how_to_install("cpu,cluster")
        ) from error
    return ray


@contextmanager
def connected(cluster: str, *, devices: int) -> Iterator[Any]:
    """Ray, connected; a cluster that is started here has so many devices, and ends with the context."""
    if cluster == LOCAL:
        # Ray replaces a loopback address by the machine's own and listens on all of them, unless it is told, by this
        # variable and before it is imported, that there is one node.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ.setdefault("RAY_worker_register_timeout_seconds", "300")  # 60 are few on a busy machine
        os.environ.setdefault("RAY_worker_niceness", "0")  # the workers are the work; Ray gives 15
    ray = import_ray()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster == LOCAL:
        _start_here(ray, devices, quiet)
    else:
        _refuse_unreachable(cluster)
        try:
            ray.init(address=cluster, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise DeviceError(
                f"--cluster {cluster} cannot be joined: {str(error).splitlines()[0]}",
                hint="this machine must be one of its nodes: `ray start --address HOST:PORT` here, then "
                "--cluster auto; versions of Ray and Python must be the same on all",
            ) from error
    try:
        yield ray
    finally:
        with suppress(Exception):  # what it ends with must not hide what the run ended with
            ray.shutdown()


def _start_here(ray: Any, devices: int, quiet: dict[str, Any]) -> None:
    options = {**quiet, "include_dashboard": False, "_node_ip_address": LOOPBACK}
    try:
        ray.init(num_cpus=devices, object_store_memory=OBJECT_STORE_MB << 20, **options)
    except Exception as error:  # Ray has no class for a node that does not start within its 30 seconds
        ray.shutdown()
        raise DeviceError(
            f"Ray could not be started on this machine: {str(error).splitlines()[0]}",
            hint="a busy machine is too slow for it: try again; its logs are in /tmp/ray/session_latest/logs",
        ) from error


def _refuse_unreachable(cluster: str) -> None:
    """Ray itself tries for minutes."""
    address = cluster
    if cluster == AUTO:
        found = os.environ.get("RAY_ADDRESS", "")
        if not found:
            with suppress(OSError):
                found = _CURRENT_CLUSTER.read_text().strip()
        if not found:
            raise DeviceError(
                "--cluster auto found no Ray on this machine",
                hint="`ray start --head` on one machine, `ray start --address HOST:PORT` on the others; or name the "
                "head with --cluster HOST:PORT, or start one here: --cluster local",
            )
        address = found
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            f"--cluster is {cluster!r}, must be local, auto or HOST:PORT",
            hint="the head prints its address when `ray start --head` has started it; its port is mostly 6379",
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise DeviceError(
            f"no Ray answers at {address}: {error.strerror or error}",
            hint="is its head running (`ray status` there), and is the port open from here?",
        ) from error


def nodes_of(ray: Any) -> list[Node]:
    """The nodes that are alive."""
    found = []
    for one in ray.nodes():
        resources = one.get("Resources", {})
        if one["Alive"] and resources.get("CPU", 0) + resources.get("GPU", 0) > 0:
            found.append(
                Node(
                    identity=one["NodeID"],
                    address=one["NodeManagerAddress"],
                    cpus=int(resources.get("CPU", 0)),
                    gpus=int(resources.get("GPU", 0)),
                    memory_mb=int(resources.get("memory", 0)) >> 20 or None,
                )
            )
    return found
