"""Use and memory of the physical GPUs, as the driver sees them (NVML).

TensorFlow knows only what it allocated itself. Where there is no driver the answer is None, which readers show
as unavailable: a GPU that cannot be asked is not a GPU that is 0 % busy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One physical GPU, numbered as nvidia-smi does. None where the driver does not tell."""

    index: int
    name: str
    busy: float | None
    """Share of the last sampling period in which a kernel ran."""

    used_mb: int | None
    total_mb: int | None


def read_gpus() -> list[GpuReading] | None:
    """Every GPU of the machine; None without an NVIDIA driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        logger.debug("NVML is not available: %s", error)
        return None
    try:
        return [_read(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        logger.debug("NVML stopped answering: %s", error)
        return None
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any, index: int) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(handle)
    busy = used_mb = total_mb = None
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except nvml.NVMLError as error:
        logger.debug("GPU %d does not tell its use: %s", index, error)
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        used_mb, total_mb = int(memory.used) // MB, int(memory.total) // MB
    except nvml.NVMLError as error:
        logger.debug("GPU %d does not tell its memory: %s", index, error)
    return GpuReading(index, name.decode() if isinstance(name, bytes) else name, busy, used_mb, total_mb)
