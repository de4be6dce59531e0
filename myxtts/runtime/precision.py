"""How numbers are computed: 16 bits where a GPU can (and a clear no where it cannot), TensorFloat-32, determinism."""

from __future__ import annotations

import logging
from typing import Literal

from myxtts.errors import DeviceError
from myxtts.runtime.backend import import_tensorflow
from myxtts.runtime.plan import DevicePlan, RoleName

logger = logging.getLogger(__name__)

Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]
OFF_HINT = "leave --mixed-precision out (and --optimization-level experimental, which sets it)"


def choose_precision(mixed: bool, plan: DevicePlan, role: RoleName = "model") -> Precision:
    """float32 unless mixed is asked for; then what all GPUs of the role can do: bfloat16 from Ampere on, float16 on
    Volta and Turing. An older GPU cannot train so, and does data work in float32.
    """
    if not mixed:
        return "float32"
    if plan.mode == "cpu" or plan.simulated:
        # bfloat16 kills the process on CPUs without it (SIGILL in oneDNN), float16 is slower than float32 there.
        where = "simulated GPUs" if plan.simulated else "a CPU"
        raise DeviceError(f"mixed precision is not possible on {where}", hint=OFF_HINT)
    devices = plan.producers if role == "data" and plan.producers else plan.models
    capability, index = min((plan.gpus[one.visible].compute_capability or (0, 0), one.physical or 0) for one in devices)
    if capability < (7, 0) and devices is plan.producers:
        return "float32"
    if capability < (7, 0):
        raise DeviceError(
            f"GPU {index} has compute capability {capability[0]}.{capability[1]}, mixed precision needs 7.0",
            hint=OFF_HINT,
        )
    return "mixed_bfloat16" if capability >= (8, 0) else "mixed_float16"


def set_arithmetic(*, tf32: bool, deterministic: bool) -> None:
    """Of the whole process. Deterministic operations stay on: TensorFlow can turn them on only."""
    experimental = import_tensorflow().config.experimental
    experimental.enable_tensor_float_32_execution(tf32)
    if deterministic:
        experimental.enable_op_determinism()
        logger.info("Deterministic operations: the same numbers in every run on the same GPUs; some are slower")
