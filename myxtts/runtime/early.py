"""The documented calls for programs of the user's own: configure first, answer yes or no, log why not."""

from __future__ import annotations

import logging

from myxtts.config.gpus import GpuIndices
from myxtts.errors import DeviceError
from myxtts.runtime.apply import apply_plan
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices

logger = logging.getLogger(__name__)


def setup_gpu_memory_isolation(
    data_gpu_id: int = 0,
    model_gpu_id: int = 1,
    data_gpu_memory_limit: int = 8192,
    model_gpu_memory_limit: int = 16384,
) -> bool:
    """Give each role's GPU its hard limit. `False` and a logged reason where that cannot be done."""
    request = DeviceRequest(
        data_gpu=data_gpu_id,
        model_gpu=model_gpu_id,
        data_memory_mb=data_gpu_memory_limit,
        model_memory_mb=model_gpu_memory_limit,
    )
    return _configure_or_log(request)


def early_gpu_configuration(data_gpu: GpuIndices = None, model_gpu: GpuIndices = None) -> bool:
    """Configure devices before TensorFlow starts. `True` only if both roles have their GPU.

    Without arguments all GPUs are made visible with memory growth and the answer is `False`: one device trains.
    A dual request that cannot be met is logged with its cause and its cure, and the answer is `False`.
    """
    return _configure_or_log(DeviceRequest(data_gpu=data_gpu, model_gpu=model_gpu))


def _configure_or_log(request: DeviceRequest) -> bool:
    try:
        plan = plan_devices(request, find_inventory())
        apply_plan(plan)
    except DeviceError as error:
        logger.error("%s", error.problem)
        logger.error("   %s", error.hint)
        return False
    return plan.two_roles
