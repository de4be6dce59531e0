"""Which `tf.distribute` strategy a plan trains under, and the scope that puts a tensor on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from myxtts.runtime.apply import applied_plan
from myxtts.runtime.backend import import_tensorflow, short_names
from myxtts.runtime.plan import DevicePlan
from myxtts.runtime.workers import multi_worker_strategy


def make_strategy(plan: DevicePlan) -> Any:
    """No GPU: TensorFlow's default. One model device: that one. Several: mirrored over them, here or over processes."""
    tf = import_tensorflow()
    if plan.model_workers > 1:
        return multi_worker_strategy()
    if plan.mode == "cpu":
        return tf.distribute.get_strategy()
    if plan.replicated:
        return _mirrored(tuple(role.name for role in plan.models))
    return tf.distribute.OneDeviceStrategy(plan.model.name)


def setup_gpu_strategy(enable_multi_gpu: bool = False) -> Any:
    """The strategy for the GPUs that this process sees: mirrored over several only if that is asked for."""
    plan = applied_plan()
    tf = import_tensorflow()
    if plan is not None and plan.two_roles:
        return make_strategy(plan)
    gpus = _visible_gpus(tf, plan)
    if not gpus:
        return tf.distribute.get_strategy()
    if enable_multi_gpu and len(gpus) > 1:
        return _mirrored(gpus)
    return tf.distribute.OneDeviceStrategy(gpus[0])


@cache
def _mirrored(devices: tuple[str, ...]) -> Any:
    # One for each set of devices: the collectives of two mirrored strategies over the same devices get in each other's
    # way ("shape mismatch in the collective instance").
    return import_tensorflow().distribute.MirroredStrategy(list(devices))


def get_device_context(device: str | None = None) -> Any:
    """`tf.device` for the named device, or for the model's device of this process."""
    tf = import_tensorflow()
    if device is not None:
        return tf.device(device)
    plan = applied_plan()
    if plan is not None:
        return tf.device(plan.model.name)
    gpus = _visible_gpus(tf, None)
    return tf.device(gpus[0] if gpus else "/CPU:0")


def ensure_gpu_placement(tensor: Any) -> Any:
    """The same tensor on the model's device of this process; where there is no GPU it stays on the CPU."""
    tf = import_tensorflow()
    with get_device_context():
        return tf.identity(tensor)


def _visible_gpus(tf: Any, plan: DevicePlan | None) -> tuple[str, ...]:
    if plan is not None and plan.simulated:
        return tuple(f"/CPU:{position + 1}" for position in range(len(plan.visible)))
    return short_names(tf.config, "GPU")


def specs_of_any_length(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What to trace a function for, so that it takes batches like this one of any rows and lengths (axes 0 and 1)."""
    tf = import_tensorflow()

    def free(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec):
            return tf.TensorSpec([None, None][: spec.shape.rank] + spec.shape[2:].as_list(), spec.dtype)
        # A strategy's value: one tensor a replica.
        return type(spec)(*map(free, tf.nest.flatten(spec, expand_composites=True)))

    return {name: free(tf.type_spec_from_value(value)) for name, value in batch.items()}
