"""What the log says about a plan, in the order in which it happens (the users' documents show these steps)."""

from __future__ import annotations

from myxtts.runtime.plan import DevicePlan, DeviceRole


def configuration_lines(plan: DevicePlan) -> list[str]:
    """Configuring: roles, visible devices, memory of each; completed."""
    lines = [_simulation_line(plan)] if plan.simulated else []
    if not plan.two_roles:
        return [*lines, *_one_role_lines(plan)]
    return [
        *lines,
        "Configuring Multi-GPU Mode...",
        f"   Data Processing GPU: {_physical(plan.producers)}",
        f"   Model Training GPU: {_physical(plan.models)}",
        f"   Set visible devices: {' and '.join(f'GPU {index}' for index in plan.visible)}",
        *([f"   Hidden: {', '.join(f'GPU {index}' for index in plan.hidden)}"] if plan.hidden else []),
        *(f"   GPU {role.physical} is now {role.label} ({role.role})" for role in _by_visible_number(plan)),
        *(f"   {_memory_line(plan, role)}" for role in plan.roles),
        "Multi-GPU configuration completed successfully",
    ]


def pipeline_lines(plan: DevicePlan, buffer_size: int) -> list[str]:
    """Which pipeline runs, and where it prefetches to."""
    if not plan.two_roles:
        return [f"Single pipeline: data and model on {plan.model.label}, buffer_size={buffer_size}"]
    return [
        "Intelligent GPU Pipeline: Multi-GPU Mode",
        f"   - Data Processing GPU: {_physical(plan.producers)}",
        f"   - Model Training GPU: {_physical(plan.models)}",
        f"   - Prefetching to {', '.join(role.label for role in plan.producers)} with buffer_size={buffer_size}",
    ]


def placement_lines(plan: DevicePlan) -> list[str]:
    """Where the model goes, and which original GPU that is."""
    if not plan.two_roles:
        where = ", ".join(role.label for role in plan.models)
        return [f"Model will be {'mirrored over' if plan.mode == 'mirrored' else 'placed on'} {where}"]
    lines = [f"Multi-GPU Mode: Model will be placed on {', '.join(role.label for role in plan.models)}"]
    lines += [f"   (Original GPU {role.physical} is now mapped to GPU:{role.visible})" for role in plan.models]
    return lines


def creation_line(plan: DevicePlan, device: str | None = None) -> str:
    """`device` is the one that was given in the place of the plan's."""
    return f"Creating model on device: {device or ', '.join(role.label for role in plan.models)}"


def warmup_line(start_delay_s: float) -> str:
    return f"Waiting up to {start_delay_s:.1f}s for data pipeline to warm up..."


TRAINING_STARTS = "Model training starting now"


def _one_role_lines(plan: DevicePlan) -> list[str]:
    if plan.mode == "cpu":
        return ["No GPU found: training on the CPU (/CPU:0)"]
    return [
        f"Configuring {'mirrored' if plan.mode == 'mirrored' else 'single-GPU'} mode...",
        f"   Set visible devices: {' and '.join(f'GPU {index}' for index in plan.visible)}",
        *([f"   Hidden: {', '.join(f'GPU {index}' for index in plan.hidden)}"] if plan.hidden else []),
        f"   Using {' and '.join(f'GPU {role.physical} as {role.label}' for role in plan.models)}",
        *(["   Configured memory growth for every visible GPU"] if not plan.simulated else []),
        "GPU configuration completed successfully",
    ]


def _simulation_line(plan: DevicePlan) -> str:
    count = len(plan.visible) + len(plan.hidden)
    return f"SIMULATED: {count} CPU devices stand for GPUs; memory limits and growth are planned but cannot be enforced"


def _memory_line(plan: DevicePlan, role: DeviceRole) -> str:
    gpu = f"{role.role} GPU" + (f" {role.physical}" if len(plan.roles) > 2 else "")
    if role.memory_limit_mb is not None:
        return f"Configured memory limit {role.memory_limit_mb} MB for {gpu}"
    return f"Configured memory growth for {gpu}"


def _by_visible_number(plan: DevicePlan) -> list[DeviceRole]:
    return sorted(plan.roles, key=lambda role: role.visible)


def _physical(roles: tuple[DeviceRole, ...]) -> str:
    return ", ".join(str(role.physical) for role in roles)
