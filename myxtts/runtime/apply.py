"""Carry a device plan out, once, before anything else, and check the result against the plan."""

from __future__ import annotations

import logging
from typing import Any

from myxtts.config.config import XTTSConfig
from myxtts.errors import DeviceError
from myxtts.runtime.backend import Backend, SimulatedBackend, TensorFlowBackend, import_tensorflow
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices, plan_in_force
from myxtts.runtime.plan_log import configuration_lines
from myxtts.runtime.workers import multi_worker_strategy

logger = logging.getLogger(__name__)


class _Applied:
    """TensorFlow's devices are configured once per process, so the plan that did it is process-wide too."""

    plan: DevicePlan | None = None
    backend: Backend | None = None


def apply_plan(plan: DevicePlan) -> None:
    """Configure TensorFlow as planned. A second call with the same plan does nothing, with another one raises."""
    if _Applied.plan is not None:
        if _Applied.plan == plan:
            return
        raise DeviceError(
            f"devices are already configured for {_Applied.plan.describe()}, not for {plan.describe()}",
            hint="devices are configured once per process: start a new one",
        )
    tf = import_tensorflow()
    backend: Backend = SimulatedBackend(tf.config) if plan.simulated else TensorFlowBackend(tf.config)
    carry_out(plan, backend, tf.config)
    _Applied.plan, _Applied.backend = plan, backend


def carry_out(plan: DevicePlan, backend: Backend, tf_config: Any) -> None:
    """Configure through a backend, log each step, and check what TensorFlow made of it."""
    lines = configuration_lines(plan)
    backend.configure(plan)
    if plan.model_workers > 1:
        multi_worker_strategy()  # its server must be there before anything else is
    # A wrong device name must fail, not run elsewhere. One-role plans keep TensorFlow's fallback to the CPU for
    # operations that have no GPU kernel.
    tf_config.set_soft_device_placement(not plan.two_roles)
    if plan.two_roles:
        tf_config.experimental.set_device_policy("silent")
    for line in lines:
        logger.info(line)
    missing = [
        role.name for role in plan.roles if role.physical is not None and role.name not in backend.logical_devices()
    ]
    if missing:
        raise DeviceError(
            f"planned {', '.join(missing)}, but TensorFlow made {', '.join(backend.logical_devices()) or 'none'}",
            hint="run myxtts doctor; if it finds nothing wrong, this is a fault of ours: please report it",
        )


def plan_of_process(config: XTTSConfig) -> DevicePlan:
    """The plan that configured this process, if it gives what the configuration asks for (else a `DeviceError`).

    In a process that nobody has configured yet, the configuration's own plan is made and applied.
    """
    request = DeviceRequest.from_config(config)
    if _Applied.plan is None:
        apply_plan(plan_devices(request, find_inventory(config.training.simulate_gpus)))
    assert _Applied.plan is not None
    _Applied.plan = plan_in_force(_Applied.plan, request)
    return _Applied.plan


def applied_plan() -> DevicePlan | None:
    """The plan that configured this process, if one did."""
    return _Applied.plan


def applied_backend() -> Backend | None:
    return _Applied.backend
