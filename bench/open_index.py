"""Opens an index and plans an epoch, in a fresh process: `python -m bench.open_index FOLDER` prints the figures."""

from __future__ import annotations

import json
import sys
import time

import psutil

from myxtts.config.data import DataConfig
from myxtts.data.batching import batches
from myxtts.data.prepared import open_prepared


def main(folder: str) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    started, cpu = time.perf_counter(), time.process_time()
    prepared = open_prepared(folder)
    opened = time.perf_counter() - started
    source = batches(prepared, config=DataConfig(), seed=0)
    source._source.planner.plan(0)
    planned = time.perf_counter() - started
    figures = {
        "open_seconds": round(opened, 3),
        "open_and_plan_seconds": round(planned, 3),
        "open_and_plan_cpu_seconds": round(time.process_time() - cpu, 3),
        "rss_growth_mb": round((process.memory_info().rss - before) / 1e6, 1),
        "rss_mb": round(process.memory_info().rss / 1e6, 1),
        "padding_share": round(source.wave_padding_share, 4),
        "batches": source.batches_per_epoch,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
