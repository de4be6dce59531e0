"""The memory estimate as text: a row for each stage and device, whether it fits, and the largest batch that does."""

from __future__ import annotations

import math
from collections.abc import Mapping

from myxtts.config.config import XTTSConfig
from myxtts.runtime.inventory import Inventory
from myxtts.runtime.plan import DevicePlan, DeviceRole, usable_mb
from myxtts.runtime.precision import Precision
from myxtts.training.memory_estimate import (
    Batch,
    Estimate,
    can_estimate,
    data_device,
    largest_batch,
    model_device,
    most_clips,
)
from myxtts.training.recipes import recipe_for, stages_to_run, with_batches_of
from myxtts.training.stages.spec import StageSpec

NOTHING_FITS = "no batch fits: choose a smaller --model-size, a lower --max-clip-seconds, or other devices"
NOT_DECLARED = "what its step keeps, or how many numbers a part has, is not declared"
COLUMNS = ("weights", "gradients", "optimiser", "averages", "activations", "total")


def memory_lines(config: XTTSConfig, plan: DevicePlan, inventory: Inventory, precision: Precision) -> list[str]:
    """For the largest batches that the settings allow; limits are what was asked for or what a GPU has to give."""
    limits = {role.label: _limit_mb(role, plan, inventory) for role in plan.roles}
    seconds = config.data.max_clip_seconds
    lines = [
        f"Memory, estimated in MB for batches of clips of {seconds:g} s (--max-clip-seconds), {precision}:",
        f"   {'stage':8}{'device':34}" + "".join(f"{column:>12}" for column in COLUMNS),
    ]
    for spec in stages_to_run(config):
        if not can_estimate(config, spec):
            lines.append(f"   {spec.name:8}not estimated: {NOT_DECLARED}")
            continue
        found = estimates(config, spec, plan, largest_batch(config, spec), precision)
        for label, estimate in found.items():
            figures = "".join(f"{getattr(estimate, column):12,.0f}" for column in COLUMNS)
            lines.append(f"   {spec.name:8}{label:34}{figures}{_verdict(estimate, limits[label])}")
        if any(limit is not None for limit in limits.values()):
            clips = largest_clips(config, spec, plan, limits, precision)
            largest = f"the largest batch that fits: {batch_in_flag(config, spec, clips)}" if clips else NOTHING_FITS
            lines.append(f"   {spec.name:8}{largest}")
    return lines


def estimates(
    config: XTTSConfig, spec: StageSpec, plan: DevicePlan, batch: Batch, precision: Precision
) -> dict[str, Estimate]:
    """By the label of the device; one that has both roles has the memory of both. None of a stage without estimate."""
    found: dict[str, Estimate] = {}
    if not can_estimate(config, spec):
        return found
    for role in plan.roles:
        if role.role == "data":
            found[role.label] = data_device(config, spec, batch)
            continue
        own = model_device(config, spec, batch.share(len(plan.models)), sixteen_bits=precision != "float32")
        if role.name == plan.producer_device:
            own += data_device(config, spec, batch, copies=len(plan.roles) > 1)
        found[role.label] = own
    return found


def largest_clips(
    config: XTTSConfig,
    spec: StageSpec,
    plan: DevicePlan,
    limits: Mapping[str, float | None],
    precision: Precision,
) -> int:
    """Clips of the largest batch with which every device stays within its limit; 0 where none does."""

    def fits(clips: int) -> bool:
        found = estimates(config, spec, plan, largest_batch(config, spec, clips=clips), precision)
        return all(found[label].total <= limit for label, limit in limits.items() if limit is not None)

    return most_clips(fits)


def limited_by_seconds(config: XTTSConfig, spec: StageSpec) -> bool:
    """Whether `--batch-seconds` says how large this stage's batches are, or `--batch-size`."""
    return with_batches_of(recipe_for(config, spec), config.data).batch_seconds is not None


def batch_in_flag(config: XTTSConfig, spec: StageSpec, clips: float) -> str:
    """So many clips, as the flag says it that limits this stage's batches."""
    if limited_by_seconds(config, spec):
        return f"--batch-seconds {math.floor(clips * config.data.max_clip_seconds)}"
    return f"--batch-size {math.floor(clips)}"


def _limit_mb(role: DeviceRole, plan: DevicePlan, inventory: Inventory) -> float | None:
    if role.memory_limit_mb is not None:
        return role.memory_limit_mb
    if role.physical is None or inventory.gpus[role.physical].memory_mb is None:
        return None
    return usable_mb(inventory.gpus[role.physical], replicas=len(plan.models) if role.role == "model" else 1)


def _verdict(estimate: Estimate, limit_mb: float | None) -> str:
    if limit_mb is None:
        return ""
    return f"  {'fits' if estimate.total <= limit_mb else 'DOES NOT FIT'} in {limit_mb:,.0f}"
