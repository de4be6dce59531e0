"""Memory of simulated devices: what the process holds, not what the page cache lends it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.runtime.inventory import Inventory
from myxtts.runtime.memory import PROCESS, watched_memory_mb
from myxtts.runtime.plan import DeviceRequest, plan_devices

CPU = plan_devices(DeviceRequest(), Inventory())


def test_pages_of_a_mapped_file_are_not_counted_and_own_memory_is(tmp_path: Path) -> None:
    mapped = tmp_path / "shard"
    mapped.write_bytes(bytes(64 << 20))
    before = watched_memory_mb(CPU)[PROCESS]
    assert np.memmap(mapped, np.uint8, mode="r").sum() == 0
    after_reading = watched_memory_mb(CPU)[PROCESS]
    own = np.ones(64 << 17)
    after_allocating = watched_memory_mb(CPU)[PROCESS]
    assert own.nbytes == 64 << 20
    assert after_reading - before < 16
    assert after_allocating - after_reading > 48
