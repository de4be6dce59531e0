"""Device roles: decide who produces and who consumes, before TensorFlow starts.

`plan_devices` is pure: what was asked and what is there go in, a complete plan or a `DeviceError` comes out.
`myxtts.runtime.apply` carries the plan out. TensorFlow numbers the visible GPUs in ascending physical order
whatever the order of the list, so roles are found by physical number and never by position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from myxtts.config.config import XTTSConfig
from myxtts.config.gpus import GpuIndices, as_tuple
from myxtts.config.training import MIN_MEMORY_MB, TrainingConfig
from myxtts.errors import ConfigError, DeviceError
from myxtts.runtime.inventory import Gpu, Inventory

Mode = Literal["cpu", "single", "mirrored", "dual", "hybrid"]
RoleName = Literal["data", "model"]

SINGLE_COMMAND = "python train_main.py --train-data DIR"
SIMULATE_HINT = "to try the pipeline without GPUs, add --simulate-gpus 2"

DRIVER_RESERVE_MB = 600
"""CUDA's context and the display take this much of a GPU before TensorFlow gets any."""
LIBRARY_RESERVE_MB = {6: 500, 7: 1050, 8: 1536, 9: 1800}
"""What cuDNN and cuBLAS take beside TensorFlow's own memory, by the GPU's compute capability up to that number; the
figures are those that TensorFlow itself leaves free for them where no limit is set."""
NCCL_RESERVE_MB = 400
"""What NCCL's buffers take of a GPU that shares the model with others; an allowance, not a measurement."""
LIMITLESS_ALLOCATOR = "cuda_malloc_async"


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """What the user asked for, and nothing of what the machine has."""

    data_gpu: GpuIndices = None
    model_gpu: GpuIndices = None
    multi_gpu: bool = False
    visible_gpus: str | None = None
    data_memory_mb: int | None = None
    model_memory_mb: int | None = None
    cpu_threads: int | None = None

    @classmethod
    def from_config(cls, config: XTTSConfig) -> DeviceRequest:
        isolated = config.training.enable_memory_isolation
        if not isolated:
            _refuse_limits_without_isolation(config.training)
        return cls(
            data_gpu=config.data.data_gpu,
            model_gpu=config.data.model_gpu,
            multi_gpu=config.training.multi_gpu,
            visible_gpus=config.training.visible_gpus,
            data_memory_mb=config.training.data_gpu_memory if isolated else None,
            model_memory_mb=config.training.model_gpu_memory if isolated else None,
            cpu_threads=config.training.cpu_threads,
        )


def _refuse_limits_without_isolation(training: TrainingConfig) -> None:
    # Not where the settings are made: a file may have the limits and a flag the isolation.
    for name in ("data_gpu_memory", "model_gpu_memory"):
        limit_mb, flag = getattr(training, name), f"--{name.replace('_', '-')}"
        if limit_mb != TrainingConfig.__dataclass_fields__[name].default:
            raise ConfigError(
                f"{flag} is {limit_mb}, and without --enable-memory-isolation no GPU has a limit",
                hint=f"add --enable-memory-isolation (with --data-gpu and --model-gpu), or leave {flag} out",
            )


@dataclass(frozen=True, kw_only=True)
class DeviceRole:
    """One device with its task."""

    role: RoleName
    physical: int | None
    """The GPU's number among those that CUDA_VISIBLE_DEVICES leaves, in nvidia-smi's order; `None` is the CPU."""

    visible: int
    """Its number among the visible GPUs, in ascending physical order."""

    name: str
    """What TensorFlow calls it here."""

    memory_limit_mb: int | None = None

    @property
    def label(self) -> str:
        """The name for people: a simulated GPU shows both what it stands for and what it is."""
        if self.physical is None or self.name.startswith("/GPU"):
            return self.name
        return f"/GPU:{self.visible} (simulated by {self.name})"


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """Everything that `apply` needs, and everything that the log says about it."""

    mode: Mode
    models: tuple[DeviceRole, ...]
    producers: tuple[DeviceRole, ...] = ()
    """The data devices, in the order in which they were named: batch p is the work of number p modulo their count."""
    visible: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    """The visible GPUs, as the driver describes them."""
    hidden: tuple[int, ...] = ()
    simulated: bool = False
    model_workers: int = 1
    """Processes that have this plan, each with one model device, and learn together."""
    cpu_threads: int | None = None
    """Threads of one operation on a CPU; `None` leaves it to the backend."""

    @property
    def model(self) -> DeviceRole:
        return self.models[0]

    @property
    def replicated(self) -> bool:
        """Whether each of several model devices of this process has the whole model and a share of every batch."""
        return len(self.models) > 1

    @property
    def data(self) -> DeviceRole | None:
        """The first data device; `None` where the model's does the data work too."""
        return self.producers[0] if self.producers else None

    @property
    def producer_devices(self) -> tuple[str, ...]:
        """Where the data work runs: the data devices, or beside the model where there is none."""
        return tuple(role.name for role in self.producers) or (self.model.name,)

    @property
    def producer_device(self) -> str:
        """Where data work runs that is not shared out."""
        return self.producer_devices[0]

    @property
    def two_roles(self) -> bool:
        return bool(self.producers)

    @property
    def roles(self) -> tuple[DeviceRole, ...]:
        return (*self.producers, *self.models)

    @property
    def memory_growth(self) -> bool:
        """Growth and a limit exclude each other on a GPU, and growth must be the same on all of a process."""
        return bool(self.visible) and all(role.memory_limit_mb is None for role in self.roles)

    def describe(self) -> str:
        """Mode, devices and their limits, in one line."""
        limits = {
            role: f" ({role.memory_limit_mb} MB)" if role.memory_limit_mb is not None else "" for role in self.roles
        }
        return f"{self.mode} mode on {', '.join(role.label + limit for role, limit in limits.items())}"


def plan_devices(request: DeviceRequest, inventory: Inventory) -> DevicePlan:
    """Roles, names and limits for what was asked on what is there, or a `DeviceError` that says why not."""
    plan = _plan(request, inventory)
    gpus = tuple(inventory.gpus[index] for index in plan.visible)
    return replace(plan, gpus=gpus, cpu_threads=request.cpu_threads)


def _plan(request: DeviceRequest, inventory: Inventory) -> DevicePlan:
    allowed = _allowed(request, inventory)
    data, models = as_tuple(request.data_gpu), as_tuple(request.model_gpu)
    if bool(data) != bool(models):
        given, missing = ("--data-gpu", "--model-gpu") if data else ("--model-gpu", "--data-gpu")
        raise DeviceError(
            f"{given} {_listed(data or models)} was given without {missing}",
            hint=f"give both --data-gpu and --model-gpu, or neither: {SINGLE_COMMAND}",
        )
    if data:
        return _plan_roles(request, inventory, allowed, data, models)
    if not allowed:
        if request.multi_gpu:
            raise DeviceError("--multi-gpu was given and no GPU was found", hint=f"leave it out, or {SIMULATE_HINT}")
        return DevicePlan(mode="cpu", models=(DeviceRole(role="model", physical=None, visible=0, name="/CPU:0"),))
    mirrored = request.multi_gpu and len(allowed) > 1
    return DevicePlan(
        mode="mirrored" if mirrored else "single",
        models=tuple(
            _role("model", gpu, allowed, inventory.simulated) for gpu in (allowed if mirrored else allowed[:1])
        ),
        visible=allowed,
        hidden=_hidden(allowed, inventory),
        simulated=inventory.simulated,
    )


def for_model_workers(plan: DevicePlan, workers: int) -> DevicePlan:
    """The plan of each of several processes that learn together: one device, which does the data work too."""
    if workers > 1 and (plan.simulated or len(plan.visible) > 1 or len(plan.roles) > 1):
        raise DeviceError(
            f"TF_CONFIG or Slurm makes this one of {workers} model workers, and it was given {plan.describe()}",
            hint="each has one GPU or the CPU: srun --gpus-per-task=1, or one number in CUDA_VISIBLE_DEVICES; without "
            "--data-gpu, --model-gpu, --multi-gpu and --simulate-gpus",
        )
    return replace(plan, model_workers=workers)


def plan_in_force(plan: DevicePlan, request: DeviceRequest) -> DevicePlan:
    """The plan that configured the process as it serves a later request, or a `DeviceError` that says what it lacks.

    What was not asked for may be anything. The model can be mirrored over GPUs that one-role plans made visible.
    """
    serving = plan
    if request.multi_gpu and plan.mode == "single" and len(plan.visible) > 1:
        models = tuple(_role("model", gpu, plan.visible, plan.simulated) for gpu in plan.visible)
        serving = replace(plan, mode="mirrored", models=models)
    if lacking := _lacking(serving, request):
        raise DeviceError(
            f"the configuration asks for {', '.join(lacking)}, and this process was configured for {plan.describe()}",
            hint="configure what is asked for: early_gpu_configuration(data_gpu, model_gpu), with memory limits "
            "setup_gpu_memory_isolation(...); or call neither, and the trainer does it",
        )
    return serving


def _lacking(plan: DevicePlan, request: DeviceRequest) -> list[str]:
    """What was asked for and the plan has not, in words."""
    data, models = as_tuple(request.data_gpu), as_tuple(request.model_gpu)
    lacking = []
    if data and tuple(role.physical for role in plan.producers) != data:
        lacking.append(f"data GPU {', '.join(map(str, data))}")
    if models and tuple(role.physical for role in plan.models) != models:
        lacking.append(f"model GPU {', '.join(map(str, models))}")
    if request.data_memory_mb not in (None, plan.data and plan.data.memory_limit_mb):
        lacking.append(f"a limit of {request.data_memory_mb} MB on the data GPU")
    if any(request.model_memory_mb not in (None, role.memory_limit_mb) for role in plan.models):
        lacking.append(f"a limit of {request.model_memory_mb} MB on the model GPU")
    if request.multi_gpu and (plan.two_roles or len(plan.models) != len(plan.visible)):
        lacking.append("the model mirrored over all visible GPUs")
    visible, asked = set(plan.visible), set(as_tuple(request.visible_gpus))
    if request.visible_gpus is not None and not (visible <= asked if plan.two_roles else visible == asked):
        lacking.append(f"GPUs {request.visible_gpus} and no others")
    return lacking


def _allowed(request: DeviceRequest, inventory: Inventory) -> tuple[int, ...]:
    if request.visible_gpus is None:
        return tuple(gpu.index for gpu in inventory.gpus)
    asked = as_tuple(request.visible_gpus)
    missing = [index for index in asked if index >= len(inventory)]
    if missing:
        raise DeviceError(
            f"--visible-gpus names GPU {missing[0]}, {_found(inventory)}",
            hint=f"valid numbers: {_valid(inventory)}",
        )
    return tuple(sorted(asked))


def _plan_roles(
    request: DeviceRequest,
    inventory: Inventory,
    allowed: tuple[int, ...],
    data: tuple[int, ...],
    models: tuple[int, ...],
) -> DevicePlan:
    if len(inventory) < 2:
        hint = f"with one GPU: {SINGLE_COMMAND}; {SIMULATE_HINT}" if len(inventory) else SIMULATE_HINT
        raise DeviceError(f"the dual pipeline needs at least 2 GPUs, {_found(inventory)}", hint=hint)
    for flag, index in (*(("--data-gpu", one) for one in data), *(("--model-gpu", model) for model in models)):
        if not 0 <= index < len(inventory):
            raise DeviceError(
                f"{flag} is {index}, must be 0-{len(inventory) - 1}: {_found(inventory)}",
                hint=f"valid numbers: {_valid(inventory)}",
            )
        if index not in allowed:
            raise DeviceError(
                f"{flag} is {index}, but --visible-gpus {request.visible_gpus} hides that GPU",
                hint=f"add {index} to --visible-gpus, or choose from {', '.join(map(str, allowed))}",
            )
    if both := [index for index in data if index in models]:
        raise DeviceError(
            f"--data-gpu and --model-gpu are both {both[0]}",
            hint=f"the two roles need GPUs of their own; to use one for everything: {SINGLE_COMMAND}",
        )
    visible = tuple(sorted({*data, *models}))
    _check_limits(request, inventory, data, models)
    return DevicePlan(
        mode="dual" if len(visible) == 2 else "hybrid",
        producers=tuple(_role("data", gpu, visible, inventory.simulated, request.data_memory_mb) for gpu in data),
        models=tuple(_role("model", gpu, visible, inventory.simulated, request.model_memory_mb) for gpu in models),
        visible=visible,
        hidden=_hidden(visible, inventory),
        simulated=inventory.simulated,
    )


def _role(
    role: RoleName, physical: int, visible: tuple[int, ...], simulated: bool, limit_mb: int | None = None
) -> DeviceRole:
    position = visible.index(physical)
    # /CPU:0 stays the host, so that a tensor which nobody placed is not mistaken for one on a simulated GPU.
    name = f"/CPU:{position + 1}" if simulated else f"/GPU:{position}"
    return DeviceRole(role=role, physical=physical, visible=position, name=name, memory_limit_mb=limit_mb)


def _check_limits(request: DeviceRequest, inventory: Inventory, data: tuple[int, ...], models: tuple[int, ...]) -> None:
    limits = [("--data-gpu-memory", one, request.data_memory_mb) for one in data]
    limits += [("--model-gpu-memory", model, request.model_memory_mb) for model in models]
    for flag, index, limit_mb in limits:
        memory_mb = inventory.gpus[index].memory_mb
        if limit_mb is not None and limit_mb < MIN_MEMORY_MB:
            raise DeviceError(
                f"{flag} is {limit_mb} MB, must be at least {MIN_MEMORY_MB}", hint="limits are in MB: 8192 is 8 GB"
            )
        if limit_mb is not None and inventory.allocator == LIMITLESS_ALLOCATOR:
            raise DeviceError(
                f"{flag} is {limit_mb} MB, and with TF_GPU_ALLOCATOR={LIMITLESS_ALLOCATOR} no limit holds: "
                "TensorFlow only gives memory back above it",
                hint="unset TF_GPU_ALLOCATOR, or leave out --enable-memory-isolation",
            )
        if limit_mb is None or memory_mb is None:
            continue
        usable = usable_mb(inventory.gpus[index], replicas=len(models) if index in models else 1)
        if limit_mb > usable:
            raise DeviceError(
                f"{flag} is {limit_mb} MB, of GPU {index}'s {memory_mb} MB {usable} are usable: "
                "CUDA, cuDNN, cuBLAS and NCCL need the others",
                hint=f"{flag} {usable} is the most",
            )


def usable_mb(gpu: Gpu, *, replicas: int = 1) -> int:
    """What TensorFlow can have of a GPU whose memory is known: the libraries beside it allocate their own."""
    if gpu.memory_mb is None:
        raise DeviceError(
            f"the memory of {gpu.name} is not known",
            hint="simulated devices share the machine's memory and cannot be limited; name the limits yourself",
        )
    newest = max(LIBRARY_RESERVE_MB)
    major = gpu.compute_capability[0] if gpu.compute_capability is not None else newest
    libraries = next((size for known, size in LIBRARY_RESERVE_MB.items() if major <= known), LIBRARY_RESERVE_MB[newest])
    nccl = NCCL_RESERVE_MB if replicas > 1 else 0
    return max(MIN_MEMORY_MB, gpu.memory_mb - DRIVER_RESERVE_MB - libraries - nccl)


def propose_memory_limits(
    inventory: Inventory, data_gpu: int, model_gpu: int, *, data_fraction: float = 0.33, model_fraction: float = 0.67
) -> tuple[int, int]:
    """Limits in MB as shares of what each role's own GPU has, never more than TensorFlow can have of it."""
    for name, fraction in (("data_fraction", data_fraction), ("model_fraction", model_fraction)):
        if not 0.0 < fraction <= 1.0:
            raise DeviceError(
                f"{name} is {fraction}, must be above 0 and at most 1", hint="the defaults are 0.33 and 0.67"
            )
    limits = []
    for index, fraction in ((data_gpu, data_fraction), (model_gpu, model_fraction)):
        if not 0 <= index < len(inventory):
            raise DeviceError(f"GPU {index} is not there, {_found(inventory)}", hint=f"valid: {_valid(inventory)}")
        gpu = inventory.gpus[index]
        limits.append(max(MIN_MEMORY_MB, min(usable_mb(gpu), int((gpu.memory_mb or 0) * fraction))))
    return limits[0], limits[1]


def _hidden(visible: tuple[int, ...], inventory: Inventory) -> tuple[int, ...]:
    return tuple(gpu.index for gpu in inventory.gpus if gpu.index not in visible)


def _listed(indices: tuple[int, ...]) -> str:
    return ",".join(map(str, indices))


def _found(inventory: Inventory) -> str:
    kind = "simulated " if inventory.simulated else ""
    return f"found {len(inventory)} {kind}GPU{'' if len(inventory) == 1 else 's'}"


def _valid(inventory: Inventory) -> str:
    return f"0-{len(inventory) - 1}" if len(inventory) else "none"
