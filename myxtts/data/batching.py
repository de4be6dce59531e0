"""Reads planned batches from shards with Grain and augments them: on threads of this process, or in worker processes.

Order and content are functions of (seed, epoch, position): see `planning` and `augmentation`. Grain's own iterator
state depends on the number of workers; ours is the number of the next batch, so a run may go on with more or fewer.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import SAMPLE_RATE
from myxtts.config.data import DataConfig
from myxtts.data.augmentation import Augmentation, BatchAugmenter
from myxtts.data.planning import BatchLimits, BatchPlace, BatchPlanner, EpochPlan
from myxtts.data.prepared import PreparedCorpus
from myxtts.data.state import ReaderState
from myxtts.errors import DataError

logger = logging.getLogger(__name__)

Batch = dict[str, NDArray[Any]]

DEFAULT_BATCH_SECONDS = 120.0
"""A batch's budget where neither --batch-size nor --batch-seconds is given and no recipe has set one."""
_READ_THREADS = 2
_READ_AHEAD_BATCHES = 4
"""Enough to hide a read; the pipeline's own buffer (--buffer-size) comes after this one."""
_ENDLESS = 1 << 40
_PARENT_CHECK_SECONDS = 1.0
_WORKER_DIED = "Worker process was terminated"
"""The beginning of Grain's RuntimeError for a worker process that has ended; there is no exception class for it."""


class PlannedBatches:
    """The batches of a reader, endless, by number: Grain's data source, here or in a worker process."""

    def __init__(
        self,
        prepared: PreparedCorpus,
        clips: NDArray[np.int64],
        limits: BatchLimits,
        seed: int,
        shard: tuple[int, int],
    ) -> None:
        self._prepared, self._clips, self._limits, self._seed = prepared, clips, limits, seed
        self._reader, self._readers = shard

    def __getstate__(self) -> dict[str, Any]:
        names = ("_prepared", "_clips", "_limits", "_seed", "_reader", "_readers")
        return {name: self.__dict__[name] for name in names}

    @cached_property
    def planner(self) -> BatchPlanner:
        index = self._prepared.index
        return BatchPlanner(
            index.wave_samples,
            index.text_tokens,
            self._limits,
            clips=self._clips,
            readers=self._readers,
            seed=self._seed,
        )

    @cached_property
    def _plan(self) -> Any:
        # Two epochs: the one that is read and the one that reading ahead has entered.
        return lru_cache(maxsize=2)(self.planner.plan)

    @property
    def batches_per_epoch(self) -> int:
        """This reader's share of an epoch: batches reader, reader + readers, and so on of the plan."""
        return len(range(self._reader, self.planner.batches_per_epoch, self._readers))

    def __len__(self) -> int:
        return _ENDLESS

    def place_of(self, number: int) -> BatchPlace:
        """Where in the plan of all readers this reader's batch `number` is."""
        epoch, own_position = divmod(int(number), self.batches_per_epoch)
        position = self._reader + own_position * self._readers
        return BatchPlace(epoch, position, epoch * self.planner.batches_per_epoch + position)

    def __getitem__(self, number: int) -> Batch:
        place = self.place_of(number)
        plan: EpochPlan = self._plan(place.epoch)
        return self._read(*plan.batch(place.position))

    def _read(self, clips: NDArray[np.int64], wave_samples: int, text_tokens: int) -> Batch:
        index, rows = self._prepared.index, len(clips)
        wave = np.zeros((rows, wave_samples), np.int16)
        text = np.zeros((rows, text_tokens), np.int32)
        for row, clip in enumerate(clips):
            clip_wave, clip_tokens = self._prepared.read_arrays(int(clip))
            wave[row, : len(clip_wave)] = clip_wave
            text[row, : len(clip_tokens)] = clip_tokens
        return {
            "wave": wave,
            "wave_lengths": index.wave_samples[clips].astype(np.int32),
            "text": text,
            "text_lengths": index.text_tokens[clips].astype(np.int32),
            "speaker": index.speaker[clips].astype(np.int32),
            "language": index.language[clips].astype(np.int32),
            "clip": clips.astype(np.int64),
        }


class BatchSource:
    """An iterator over batches whose position can be saved and restored exactly."""

    def __init__(
        self,
        source: PlannedBatches,
        augment: BatchAugmenter | None,
        *,
        seed: int,
        epoch: int,
        shard: tuple[int, int],
        num_workers: int,
        epochs: int | None,
        stride: int = 1,
    ) -> None:
        self._source, self._augment, self._num_workers = source, augment, num_workers
        self._stride = stride
        self._seed, self._shard = seed, shard
        self._next = epoch * source.batches_per_epoch
        self._end = None if epochs is None else (epoch + epochs) * source.batches_per_epoch
        self._reading: Iterator[Any] | None = None

    @property
    def batches_per_epoch(self) -> int:
        return self._source.batches_per_epoch

    @property
    def wave_padding_share(self) -> float:
        """Share of padding over an epoch of all readers, from the plan."""
        return self._source.planner.wave_padding_share

    def __iter__(self) -> BatchSource:
        return self

    def __next__(self) -> Batch:
        if self._end is not None and self._next >= self._end:
            self.close()
            raise StopIteration
        if self._reading is None:
            self._reading = self._read_ahead()
        try:
            batch = next(self._reading)
        except RuntimeError as error:
            if _WORKER_DIED not in str(error):
                raise
            raise _worker_died(error) from error
        self._next += self._stride
        if self._num_workers:
            # Worker processes send views of shared memory, which Grain frees with the view.
            batch = {name: np.array(value) for name, value in batch.items()}
        return batch  # type: ignore[no-any-return]

    def _read_ahead(self) -> Iterator[Any]:
        grain = _import_grain()
        dataset = grain.MapDataset.source(self._source)
        if self._augment is not None:
            dataset = dataset.map_with_index(self._augment)
        # Sliced last: a map is given the number in the dataset that it maps.
        reading = dataset[self._next : self._end : self._stride].to_iter_dataset(
            grain.ReadOptions(num_threads=_READ_THREADS, prefetch_buffer_size=_READ_AHEAD_BATCHES)
        )
        if self._num_workers:
            reading = reading.mp_prefetch(
                grain.MultiprocessingOptions(num_workers=self._num_workers, per_worker_buffer_size=_READ_AHEAD_BATCHES),
                worker_init_fn=_end_with_parent,
            )
        iterator: Iterator[Any] = iter(reading)
        return iterator

    def get_state(self) -> dict[str, int]:
        return self._state().to_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called; the next batch is the one that followed then."""
        wanted = ReaderState.from_dict(state)
        wanted.check_against(self._state())
        self.close()
        self._next = wanted.epoch * wanted.batches_per_epoch + wanted.position

    def skip(self) -> int:
        """Pass over the next batch without reading it; its number, counted over all epochs."""
        number = self._next
        self._next += self._stride
        return number

    def go_to(self, number: int) -> None:
        """Let the batch of this number be the next one; nothing is read again where it is."""
        if number != self._next:
            self.close()
            self._next = number

    def close(self) -> None:
        """Stop reading ahead and end the worker processes; the next `next` starts them again."""
        if self._reading is not None:
            close = getattr(self._reading, "close", None)
            if close is not None:
                close()
            self._reading = None

    def __enter__(self) -> BatchSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _state(self) -> ReaderState:
        epoch, position = divmod(self._next, self.batches_per_epoch)
        reader, readers = self._shard
        return ReaderState(epoch, position, self._seed, self.batches_per_epoch, reader, readers)


def batches(
    prepared: PreparedCorpus,
    *,
    config: DataConfig,
    seed: int,
    clips: NDArray[np.integer] | None = None,
    epoch: int = 0,
    epochs: int | None = None,
    shard: tuple[int, int] = (0, 1),
    augmentation: Augmentation | None = None,
    stride: int = 1,
) -> BatchSource:
    """Batches of a prepared corpus, endless unless `epochs` is given; as recorded unless an augmentation is given.

    `clips` limits them to some clips (see `PreparedCorpus.split`), references and concatenated ends included. `shard`
    is (this reader, number of readers): readers share every epoch's plan, each batch goes to exactly one of them, and
    shares differ by one batch at most. `stride` reads only every so-manieth batch, from the one that `go_to` names on.
    """
    reader, readers = shard
    if not 0 <= reader < readers:
        raise DataError(f"reader {reader} of {readers} was asked for", hint=f"readers are 0 to {readers - 1}")
    seconds = config.batch_seconds
    if seconds is None and config.batch_size is None:
        seconds = DEFAULT_BATCH_SECONDS
    samples = None if seconds is None else int(seconds * SAMPLE_RATE)
    limits = BatchLimits(samples=samples, rows=config.batch_size)
    chosen = np.arange(len(prepared)) if clips is None else np.asarray(clips, np.int64)
    source = PlannedBatches(prepared, chosen, limits, seed, shard)
    augment = None
    if augmentation is not None:
        augment = BatchAugmenter(augmentation, prepared, chosen, seed, source.place_of)
    return BatchSource(
        source,
        augment,
        seed=seed,
        epoch=epoch,
        shard=shard,
        num_workers=config.num_workers,
        epochs=epochs,
        stride=stride,
    )


def _import_grain() -> Any:
    """Imported late: Grain takes a second, which callers that only prepare need not wait for."""
    absl = logging.getLogger("absl")
    level = absl.level
    absl.setLevel(logging.ERROR)  # it warns that JAX's profiler is missing, which is not used here
    try:
        import grain
    finally:
        absl.setLevel(level)
    return grain


def _worker_died(error: RuntimeError) -> DataError:
    code = re.search(r"exit code -?\d+", str(error))
    return DataError(
        f"a process that reads the corpus has ended ({code[0] if code else error})",
        hint="-9 mostly means that the machine ran out of memory: lower --num-workers or --buffer-size, or read on "
        "threads of the training process (--num-workers 0); the same command continues from the last checkpoint",
    )


def _end_with_parent(_worker: int, _workers: int) -> None:
    """Initialise a worker process so that it ends with the training process, and only with it.

    Grain's workers outlive a kill -9 of it. Ctrl-C, a service's SIGTERM and a closed terminal reach the whole group,
    and the training process wants batches until its step is done; it ends its workers itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
