"""16-bit computing: which kind a GPU can do, and a clear no where it cannot."""

from __future__ import annotations

from typing import Literal

from myxtts.errors import DeviceError
from myxtts.runtime.plan import DevicePlan

Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]
OFF_HINT = "leave --mixed-precision out (and --optimization-level experimental, which sets it)"


def choose_precision(mixed: bool, plan: DevicePlan) -> Precision:
    """float32 unless mixed is asked for; then bfloat16 from Ampere on, float16 on Volta and Turing."""
    if not mixed:
        return "float32"
    if plan.mode == "cpu" or plan.simulated:
        # bfloat16 kills the process on CPUs without it (SIGILL in oneDNN), float16 is slower than float32 there.
        where = "simulated GPUs" if plan.simulated else "a CPU"
        raise DeviceError(f"mixed precision is not possible on {where}", hint=OFF_HINT)
    capability, index = min((plan.capabilities[role.visible] or (0, 0), role.physical or 0) for role in plan.models)
    if capability < (7, 0):
        raise DeviceError(
            f"GPU {index} has compute capability {capability[0]}.{capability[1]}, mixed precision needs 7.0",
            hint=OFF_HINT,
        )
    return "mixed_bfloat16" if capability >= (8, 0) else "mixed_float16"
