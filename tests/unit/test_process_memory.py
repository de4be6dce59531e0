"""Memory of simulated devices: what the process holds, not what the page cache lends it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.runtime.memory import current_memory_mb
from myxtts.runtime.plan import DeviceRole

HOST = DeviceRole(role="model", physical=None, visible=0, name="/CPU:0")


def test_pages_of_a_mapped_file_are_not_counted_and_own_memory_is(tmp_path: Path) -> None:
    mapped = tmp_path / "shard"
    mapped.write_bytes(bytes(64 << 20))
    before = current_memory_mb(HOST)
    assert np.memmap(mapped, np.uint8, mode="r").sum() == 0
    after_reading = current_memory_mb(HOST)
    own = np.ones(64 << 17)
    after_allocating = current_memory_mb(HOST)
    assert own.nbytes == 64 << 20
    assert after_reading - before < 16
    assert after_allocating - after_reading > 48
