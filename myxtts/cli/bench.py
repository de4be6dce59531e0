"""`myxtts bench placement`: compares every placement of data and model work that these devices allow, on own data.

Each mode trains for a few dozen steps in a process and a folder of its own, with the same settings; the figures are
those of the runs' event logs. It recommends flags, or none where a single device is as fast.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from myxtts.cli.flags import parse_options
from myxtts.cli.training_process import our_command
from myxtts.errors import DeviceError, TrainingError
from myxtts.runtime.inventory import Inventory, find_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices

if TYPE_CHECKING:
    from myxtts.monitoring.figures import WindowFigures
    from myxtts.monitoring.schema import MemoryEvent


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Compare single, dual, mirrored and hybrid placement on your own corpus.

    Example:
      myxtts bench placement --train-data DIR --model-size tiny --simulate-gpus 2
    """

    what: Annotated[Literal["placement"], tyro.conf.Positional] = "placement"
    """What to compare; placement is the only comparison."""

    train_data: str
    """Folder of recordings, as for myxtts train."""

    model_size: str = "normal"
    """Preset of the model, as for myxtts train."""

    simulate_gpus: int = 0
    """Simulate this many GPUs with CPU devices."""

    steps: int = 40
    """Steps of the gpt stage that are measured in each mode; the first half is warm-up."""

    batch_size: int | None = None
    """Clips in a batch, as for myxtts train."""

    cache_dir: str | None = None
    """Where prepared shards are kept."""


@dataclass(frozen=True)
class Placement:
    """A placement of data and model work, and its flags."""

    name: str
    flags: tuple[str, ...]
    request: DeviceRequest


PLACEMENTS = (
    Placement("single", (), DeviceRequest()),
    Placement("dual", ("--data-gpu", "0", "--model-gpu", "1"), DeviceRequest(data_gpu=0, model_gpu=1)),
    Placement("mirrored", ("--multi-gpu",), DeviceRequest(multi_gpu=True)),
    Placement("hybrid", ("--data-gpu", "0", "--model-gpu", "1,2"), DeviceRequest(data_gpu=0, model_gpu=(1, 2))),
)


@dataclass(frozen=True)
class Measured:
    """Figures of a placement's run."""

    placement: Placement
    steps_per_s: float
    audio_per_s: float
    busy: str
    stall_share: float
    memory_mb: float | None

    def row(self) -> str:
        memory = f"{self.memory_mb:8.0f}" if self.memory_mb is not None else "     n/a"
        return (
            f"{self.placement.name:<9} {self.steps_per_s:8.2f} {self.audio_per_s:12.1f} {self.stall_share:7.0%} "
            f"{memory}   {self.busy}"
        )


OPTIONS = BenchOptions


def main(argv: list[str]) -> int:
    options = parse_options(BenchOptions, argv, command="bench")
    inventory = find_inventory(options.simulate_gpus)
    possible = [placement for placement in PLACEMENTS if _is_possible(placement, inventory)]
    with tempfile.TemporaryDirectory(prefix="myxtts-bench-") as folder:
        measured = [_measure(placement, options, Path(folder)) for placement in possible]
    print(f"{'mode':<9} {'steps/s':>8} {'audio-s/s':>12} {'stall':>7} {'MB':>8}   busy")
    for result in measured:
        print(result.row())
    print(advice(measured, simulated=inventory.simulated))
    return 0


def _is_possible(placement: Placement, inventory: Inventory) -> bool:
    try:
        plan = plan_devices(placement.request, inventory)
    except DeviceError:
        return False
    return placement.name != "mirrored" or plan.mode == "mirrored"


def _measure(placement: Placement, options: BenchOptions, folder: Path) -> Measured:
    from myxtts.monitoring.events import read_events
    from myxtts.monitoring.schema import MemoryEvent, WindowEvent

    run_dir = folder / placement.name
    print(f"running {placement.name} ...", file=sys.stderr, flush=True)
    shared = ["--train-data", options.train_data, "--model-size", options.model_size, "--run-dir", str(run_dir)]
    shared += ["--simulate-gpus", str(options.simulate_gpus), *placement.flags]
    if options.batch_size is not None:
        shared += ["--batch-size", str(options.batch_size)]
    if options.cache_dir is not None:
        shared += ["--cache-dir", options.cache_dir]
    every = str(max(1, options.steps // 2))
    _train([*shared, "--stage", "codec", "--max-steps", "2"], placement)
    _train([*shared, "--stage", "gpt", "--max-steps", str(options.steps), "--log-every", every], placement)
    events = list(read_events(run_dir / "events.jsonl"))
    windows = [event.figures for event in events if isinstance(event, WindowEvent) and event.stage == "gpt"]
    memory = [event for event in events if isinstance(event, MemoryEvent)]
    return _summary(placement, windows[-1], memory[-1])


def _train(arguments: list[str], placement: Placement) -> None:
    command = [sys.executable, "-m", "myxtts", "train", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ, check=False
    )
    if result.returncode != 0:
        raise failure(placement, result.stderr, command[3:])


def failure(placement: Placement, said: str, arguments: list[str]) -> TrainingError:
    """The training's own error with its hint; of anything else the last line, and how to see all of it."""
    lines = [line for line in said.splitlines() if line.strip()]
    problem, hint = (lines or ["it said nothing"])[-1], ""
    if len(lines) > 1 and lines[-2].startswith("error: "):
        problem, hint = lines[-2].removeprefix("error: "), problem.strip().removeprefix("hint: ")
    by_hand = list(arguments)
    by_hand[by_hand.index("--run-dir") + 1] = f"runs/bench-{placement.name}"
    return TrainingError(
        f"the {placement.name} run failed: {problem}",
        hint=hint or f"run it by hand: {our_command()} {shlex.join(by_hand)}",
    )


def _summary(placement: Placement, window: WindowFigures, memory: MemoryEvent) -> Measured:
    used = [reading.current_mb for reading in memory.devices.values() if reading.current_mb is not None]
    return Measured(
        placement=placement,
        steps_per_s=window.steps / window.seconds,
        audio_per_s=window.audio_seconds_per_s or 0.0,
        busy=", ".join(f"{device} {share:.0%}" for device, share in window.device_busy.items()),
        stall_share=window.stall_share,
        memory_mb=statistics.mean(used) if used else None,
    )


def advice(measured: list[Measured], *, simulated: bool) -> str:
    """The flags to use: those of the fastest by audio a second, none unless it is 5 % faster than single."""
    single = next(result for result in measured if result.placement.name == "single")
    best = max(measured, key=lambda result: result.audio_per_s)
    gain = best.audio_per_s / single.audio_per_s if single.audio_per_s else 1.0
    words = "these devices are simulated by CPU cores that all modes share; measure on the GPUs themselves. "
    prefix = words if simulated else ""
    if best is single or gain < 1.05:
        return f"{prefix}Use no device flags: nothing is more than 5 % faster than a single device here."
    return f"{prefix}Use {' '.join(best.placement.flags)}: {gain:.2f} times a single device."
