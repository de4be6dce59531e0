"""A command as its script is, whose data is read by a process of its own: `python -m ... CORPUS CACHE`."""

from __future__ import annotations

import sys

from myxtts.cli.main import main  # as every script of ours does

if __name__ == "__main__":
    from myxtts.config.config import DataConfig
    from myxtts.data.batching import batches
    from myxtts.data.prepare import prepare

    assert callable(main)
    config = DataConfig(cache_dir=sys.argv[2], text_frontend="characters", num_workers=1, batch_seconds=5.0)
    with batches(prepare(sys.argv[1], config), config=config, seed=0) as reader:
        print(len(next(reader)["text_lengths"]) > 0)
