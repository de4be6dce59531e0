"""Keeps more in the object store of the Ray cluster at the given address than it holds, until its input ends."""

from __future__ import annotations

import sys

import numpy as np
import ray


def main(address: str) -> None:
    ray.init(address, log_to_driver=False)
    kept = [ray.put(np.random.bytes(8 << 20)) for _ in range(24)]
    print("full", flush=True)
    sys.stdin.read()
    del kept
