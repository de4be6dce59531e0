"""The LJSpeech-form data set: the documented entry over prepare, shards and batches.

    dataset = LJSpeechDataset("LJSpeech-1.1", DataConfig(batch_seconds=60))
    for batch in dataset.batches(seed=1, epochs=1):
        ...

It never touches device configuration, and it does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.config.data import DataConfig
from myxtts.data.batching import BatchSource, batches
from myxtts.data.prepare import Progress, prepare
from myxtts.data.prepared import PreparedCorpus
from myxtts.data.records import ClipRecord
from myxtts.text.tokenizer import Tokenizer

__all__ = ["LJSpeechDataset"]


class LJSpeechDataset:
    """Clips and batches of a corpus folder, prepared on first use and read from the cache after that."""

    def __init__(
        self,
        data_path: str | Path,
        config: DataConfig | None = None,
        *,
        subset: Literal["train", "val", "all"] = "all",
        tokenizer: Tokenizer | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config = config if config is not None else DataConfig()
        self.prepared: PreparedCorpus = prepare(data_path, self.config, progress, tokenizer)
        train, held_out = self.prepared.split()
        everything = np.arange(len(self.prepared), dtype=np.int64)
        self.clips: NDArray[np.int64] = {"train": train, "val": held_out, "all": everything}[subset]

    @property
    def tokenizer(self) -> Tokenizer:
        return self.prepared.tokenizer

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, position: int) -> ClipRecord:
        return self.prepared.read(int(self.clips[position]))

    def __iter__(self) -> Iterator[ClipRecord]:
        return (self[position] for position in range(len(self)))

    def batches(
        self, *, seed: int = 0, epoch: int = 0, epochs: int | None = None, shard: tuple[int, int] = (0, 1)
    ) -> BatchSource:
        """Padded batches (see `myxtts.data.batching.batches`), endless unless `epochs` is given."""
        return batches(
            self.prepared, clips=self.clips, config=self.config, seed=seed, epoch=epoch, epochs=epochs, shard=shard
        )
