"""Print the table of docs/dual-gpu.md: what each size takes of a model GPU, and the largest batch for usual cards.

python -m tools.memory_table
"""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.cli.memory import largest_clips, limited_by_seconds
from myxtts.config.config import XTTSConfig
from myxtts.config.presets import MODEL_SIZES
from myxtts.runtime.inventory import Gpu, Inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices, usable_mb
from myxtts.training.memory_estimate import MOST_CLIPS, data_device, largest_batch, model_device
from myxtts.training.recipes import stages_to_run
from myxtts.training.stages.spec import StageSpec

CARDS_GB = (8, 12, 16, 24)


@dataclass(frozen=True)
class Row:
    config: XTTSConfig
    spec: StageSpec
    plan: DevicePlan

    def cells(self) -> list[str]:
        batch = largest_batch(self.config, self.spec)
        cells = [
            f"{self.config.model.model_size} `{self.spec.name}`",
            self.batch_of(batch.clips),
            f"{model_device(self.config, self.spec, batch).total / 1024:.1f}",
            f"{data_device(self.config, self.spec, batch).total / 1024:.1f}",
        ]
        for card in CARDS_GB:
            limits = {role.label: usable_mb(_card(0, card)) for role in self.plan.roles}
            clips = largest_clips(self.config, self.spec, self.plan, limits, "float32")
            cells.append(self.batch_of(clips))
        return cells

    def batch_of(self, clips: float) -> str:
        if not clips:
            return "none"
        if limited_by_seconds(self.config, self.spec):
            return f"{clips * self.config.data.max_clip_seconds:,.0f} s"
        return f"{clips:,.0f}" + (" or more" if clips == MOST_CLIPS else "")


def table() -> str:
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), Inventory((_card(0, 24), _card(1, 24))))
    head = ["stage", "its batches", "model GPU, GB", "data GPU, GB", *(f"most on {card} GB" for card in CARDS_GB)]
    rows = [head, ["---"] * len(head)]
    for size in MODEL_SIZES:
        config = XTTSConfig(model_size=size)
        rows += [Row(config, spec, plan).cells() for spec in stages_to_run(config)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _card(index: int, memory_gb: int) -> Gpu:
    return Gpu(index=index, name=f"{memory_gb} GB", memory_mb=memory_gb * 1024, compute_capability=(8, 6))


if __name__ == "__main__":
    print(table())
