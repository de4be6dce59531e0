"""Memory in use on each role's device, with its source named: a figure that cannot be had is `None`, never 0.

On a GPU, TensorFlow's own counters come first and the driver's (NVML) stand beside them. A simulated GPU or a CPU has
no counter of its own: there the process's resident memory is given, and labelled so.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psutil

from myxtts.errors import DeviceError
from myxtts.runtime.apply import applied_backend, applied_plan
from myxtts.runtime.backend import Backend
from myxtts.runtime.inventory import find_inventory, handles_of_visible, memory_info, nvml
from myxtts.runtime.plan import DevicePlan, DeviceRole, propose_memory_limits

logger = logging.getLogger(__name__)

Source = Literal["tensorflow", "process RSS", "unavailable"]


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """What one role's device uses, in MB."""

    role: str
    device: str
    source: Source
    current_mb: float | None
    peak_mb: float | None
    limit_mb: int | None
    driver_used_mb: float | None = None
    """What the driver says of the whole GPU, other processes included."""

    @property
    def share(self) -> float | None:
        """Use as a share of the limit."""
        if self.current_mb is None or not self.limit_mb:
            return None
        return self.current_mb / self.limit_mb

    def describe(self) -> str:
        if self.current_mb is None:
            return f"{self.role} {self.device}: memory unavailable"
        parts = [f"{self.role} {self.device}: {self.current_mb:.0f} MB"]
        if self.peak_mb is not None:
            parts.append(f"peak {self.peak_mb:.0f} MB")
        if self.share is not None:
            parts.append(f"{self.share:.0%} of {self.limit_mb} MB")
        return ", ".join(parts) + f" ({self.source})"


PROCESS = "this process"
"""The name of the host's memory among those that are watched."""


def watched_memory_mb(plan: DevicePlan, backend: Backend | None = None) -> dict[str, float]:
    """What can leak, by name: each device that counts its memory, and the process. Cheap: the driver is not asked."""
    backend = backend or applied_backend()
    watched = {PROCESS: _process_mb()}
    for role in plan.roles:
        counters = backend.memory_bytes(role.name) if backend is not None else None
        if counters is not None:
            watched[f"{role.role} device {role.label}"] = counters["current"] / 2**20
    return watched


def memory_of(role: DeviceRole, backend: Backend | None) -> DeviceMemory:
    """Never fails: it is asked while a run trains, and a GPU's counters may be lost at any step."""
    counters = backend.memory_bytes(role.name) if backend is not None else None
    if role.name.startswith("/GPU"):
        return DeviceMemory(
            role=role.role,
            device=role.label,
            source="tensorflow" if counters is not None else "unavailable",
            current_mb=counters["current"] / 2**20 if counters is not None else None,
            peak_mb=counters["peak"] / 2**20 if counters is not None else None,
            limit_mb=role.memory_limit_mb,
            driver_used_mb=_driver_used_mb(role.physical),
        )
    # Simulated limits are planned, not enforced, and all devices share the process: no share is given for them.
    return DeviceMemory(
        role=role.role,
        device=role.label,
        source="process RSS",
        current_mb=_process_mb(),
        peak_mb=None,
        limit_mb=None,
    )


def memory_of_plan(plan: DevicePlan | None = None, backend: Backend | None = None) -> dict[str, DeviceMemory]:
    """Memory by role (`data`, `model`, and `model 2` and up for replicas) of the given or the applied plan."""
    plan = plan or applied_plan()
    if plan is None:
        raise DeviceError(
            "no devices are configured in this process", hint="call early_gpu_configuration() or start a trainer first"
        )
    result: dict[str, DeviceMemory] = {}
    for role in plan.roles:
        number = sum(key.startswith(role.role) for key in result)
        result[role.role if not number else f"{role.role} {number + 1}"] = memory_of(role, backend or applied_backend())
    return result


def monitor_gpu_memory() -> dict[str, dict[str, Any]]:
    """Per role: device, source, current, peak, limit and share, as plain values."""
    return {name: {**asdict(memory), "share": memory.share} for name, memory in memory_of_plan().items()}


def log_memory_stats() -> None:
    for memory in memory_of_plan().values():
        logger.info("Memory: %s", memory.describe())


def get_optimal_memory_limits(
    data_gpu_id: int = 0, model_gpu_id: int = 1, data_fraction: float = 0.33, model_fraction: float = 0.67
) -> tuple[int, int]:
    """Proposed limits in MB for the data GPU and the model GPU, from what they have."""
    return propose_memory_limits(
        find_inventory(), data_gpu_id, model_gpu_id, data_fraction=data_fraction, model_fraction=model_fraction
    )


def _process_mb() -> float:
    info = psutil.Process().memory_info()
    # Without file-backed pages: those of the mapped shards grow through the first epoch and cost nothing.
    return float(info.rss - getattr(info, "shared", 0)) / 2**20


def _driver_used_mb(physical: int | None) -> float | None:
    with nvml() as library:
        if library is None or physical is None:
            return None
        try:
            memory = memory_info(library, handles_of_visible(library)[physical])
        except (library.NVMLError, IndexError, DeviceError):
            return None
        return None if memory is None else float(memory.used) / 2**20
