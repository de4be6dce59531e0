"""What GPUs the machine has, found without TensorFlow.

TensorFlow must not be imported before the devices are decided, so the driver is asked through NVML. Numbers are
nvidia-smi's (PCI order): importing the package makes CUDA count the same way, whatever `CUDA_DEVICE_ORDER` was, and the
backend checks that TensorFlow does. `CUDA_VISIBLE_DEVICES` is honoured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from myxtts.errors import DeviceError

SIMULATE_VARIABLE = "MYXTTS_SIMULATE_GPUS"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the driver describes it; `None` is what the driver does not tell."""

    index: int
    name: str
    memory_mb: int | None = None
    compute_capability: tuple[int, int] | None = None
    bus_id: str | None = None
    """Its place on the PCI bus, which the driver and CUDA both know."""


@dataclass(frozen=True)
class Inventory:
    """The GPUs that may be used, real or simulated, numbered from 0."""

    gpus: tuple[Gpu, ...] = ()
    simulated: bool = False
    driver_version: str | None = None
    allocator: str | None = None
    """What `TF_GPU_ALLOCATOR` asks TensorFlow to allocate with; `None` is its own."""

    def __len__(self) -> int:
        return len(self.gpus)


def simulated_inventory(count: int) -> Inventory:
    return Inventory(
        gpus=tuple(Gpu(index=i, name=f"simulated GPU {i} (a CPU device)") for i in range(count)), simulated=True
    )


def find_inventory(simulate_gpus: int = 0, environment: Mapping[str, str] = os.environ) -> Inventory:
    """The simulated GPUs if any were asked for, by argument or variable; otherwise the real ones."""
    count = simulate_gpus or _simulated_by_variable(environment)
    found = simulated_inventory(count) if count else real_inventory(environment)
    return replace(found, allocator=environment.get("TF_GPU_ALLOCATOR"))


def _simulated_by_variable(environment: Mapping[str, str]) -> int:
    value = environment.get(SIMULATE_VARIABLE, "").strip()
    if not value:
        return 0
    if not value.isdigit():
        raise DeviceError(f"{SIMULATE_VARIABLE} is {value!r}, must be a whole number", hint="2 is enough for two roles")
    return int(value)


def real_inventory(environment: Mapping[str, str] = os.environ) -> Inventory:
    """What NVML lists, less what `CUDA_VISIBLE_DEVICES` hides; empty where there is no driver."""
    with nvml() as library:
        if library is None:
            return Inventory()
        try:
            handles = handles_of_visible(library, environment)
            gpus = tuple(describe(library, index, handle) for index, handle in enumerate(handles))
            return Inventory(gpus=gpus, driver_version=_text(library.nvmlSystemGetDriverVersion()))
        except library.NVMLError as error:
            raise DeviceError(
                f"the driver does not describe the machine's GPUs: {error}",
                hint="nvidia-smi shows which; hide a GPU that fails with CUDA_VISIBLE_DEVICES, or use the CPU with -1",
            ) from error


def handles_of_visible(library: Any, environment: Mapping[str, str] = os.environ) -> list[Any]:
    """NVML's handles of the GPUs that CUDA sees, by their numbers here: NVML itself hides none."""
    handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
    uuids = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    return [handles[i] for i in chosen_by_cuda_variable(environment.get("CUDA_VISIBLE_DEVICES"), uuids)]


def chosen_by_cuda_variable(value: str | None, uuids: list[str]) -> list[int]:
    """CUDA's own rule: entries are numbers or unique UUID prefixes, and the first bad one hides all after it.

    Where a GPU is named twice, CUDA sees none at all: refused.
    """
    if value is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for entry in (part.strip() for part in value.split(",")):
        if entry.isdigit() and int(entry) < len(uuids):
            chosen.append(int(entry))
            continue
        matches = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    if len(set(chosen)) != len(chosen):
        raise DeviceError(
            f"CUDA_VISIBLE_DEVICES is {value!r}, it names a GPU twice",
            hint="name each GPU once, for example CUDA_VISIBLE_DEVICES=0,1; two roles need two GPUs",
        )
    return chosen


@contextmanager
def nvml() -> Iterator[Any]:
    """NVML, initialised and shut down; `None` where the library or a driver is missing."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def memory_info(library: Any, handle: Any) -> Any:
    """NVML's memory of a GPU; `None` where it has none to tell, as for chips that share the host's."""
    try:
        return library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError:
        return None


def describe(library: Any, index: int, handle: Any) -> Gpu:
    """A GPU by its NVML handle."""
    memory = memory_info(library, handle)
    return Gpu(
        index=index,
        name=_text(library.nvmlDeviceGetName(handle)),
        memory_mb=None if memory is None else int(memory.total) // 2**20,
        compute_capability=tuple(library.nvmlDeviceGetCudaComputeCapability(handle)),
        bus_id=_bus_id(library, handle),
    )


def _bus_id(library: Any, handle: Any) -> str | None:
    try:
        return _text(library.nvmlDeviceGetPciInfo(handle).busId)
    except library.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
