"""Plans the batches of an epoch from the index of lengths: which clips, in which order, padded to which shape.

Pure: a plan is a function of (lengths, settings, seed, epoch), so a position in it is an integer that can be saved,
and every process that makes it gets the same one. All epochs of a corpus have the same number of batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError

WAVE_MULTIPLE = 1024
"""Padded waves are whole codes long, but for the longest: 256 samples a frame, 4 frames a code."""
TEXT_MULTIPLE = 8
_BUCKET_COUNTS = (4, 6, 8, 10, 12, 16)
_TEXT_BOUNDS = 3
"""Text lengths for each wave length: with K buckets there are about 3 K shapes, and XLA compiles each for seconds."""
_PADDING_WANTED = 0.09
"""Buckets are added until no more than this is padding: the limit is 0.10, and wide buckets shuffle better."""
_TEXT_WINDOW_BATCHES = 8
_HISTOGRAM_BINS = 256
"""Most distinct lengths that bounds are chosen among: exact enough, and independent of the corpus's size."""


class BatchPlace(NamedTuple):
    """Where a batch is in the plan of all readers; its augmentation is drawn from this."""

    epoch: int
    position: int
    batches_before: int
    """Batches of all epochs before this one."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Most that goes into a batch: samples with their padding, clips, or both; a batch has one clip at least."""

    samples: int | None = None
    rows: int | None = None

    def rows_at(self, padded_samples: int) -> int:
        fitting = [] if self.samples is None else [self.samples // padded_samples]
        return max(1, min([*fitting, *([] if self.rows is None else [self.rows])]))


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, in order: batch `b` is `clips[starts[b]:starts[b + 1]]`."""

    clips: NDArray[np.int64]
    starts: NDArray[np.int64]
    wave_samples: NDArray[np.int64]
    """Padded wave length of each batch."""
    text_tokens: NDArray[np.int64]
    """Padded text length of each batch."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def batch(self, position: int) -> tuple[NDArray[np.int64], int, int]:
        """The clips of a batch and its padded wave and text lengths."""
        rows = self.clips[self.starts[position] : self.starts[position + 1]]
        return rows, int(self.wave_samples[position]), int(self.text_tokens[position])


class BatchPlanner:
    """Plans epochs over some clips of a corpus. Shapes of batches are chosen once and are the same in every epoch."""

    def __init__(
        self,
        wave_samples: NDArray[np.integer],
        text_tokens: NDArray[np.integer],
        limits: BatchLimits,
        *,
        clips: NDArray[np.integer] | None = None,
        readers: int = 1,
        seed: int = 0,
    ) -> None:
        chosen = np.arange(len(wave_samples)) if clips is None else np.asarray(clips)
        if len(chosen) < readers:
            raise DataError(
                f"{len(chosen)} clips cannot feed {readers} readers",
                hint="use fewer readers or a larger corpus; a reader without a clip would hang the others",
            )
        self._clips = chosen.astype(np.int64)
        self._wave = np.asarray(wave_samples)[self._clips].astype(np.int64)
        self._text = np.asarray(text_tokens)[self._clips].astype(np.int64)
        self._seed = seed
        self._choose_shapes(limits, readers)

    def _choose_shapes(self, limits: BatchLimits, readers: int) -> None:
        """Take the fewest buckets that pad little enough, then smaller batches until every reader has one."""
        lengths = histogram_of(self._wave, WAVE_MULTIPLE)
        least = None
        for count in _BUCKET_COUNTS:
            bounds = choose_bounds(lengths, count)
            rows, padded = _cut(lengths.per_bucket(bounds), bounds, limits)
            total = int((rows * padded).sum())
            if least is None or total < least:
                least, self._bounds, self._rows, self._padded = total, bounds, rows, padded
            if 1 - self._wave.sum() / least <= _PADDING_WANTED:
                break
        while len(self._rows) < readers:
            limits = replace(limits, rows=max(1, int(self._rows.max()) // 2))
            self._rows, self._padded = _cut(lengths.per_bucket(self._bounds), self._bounds, limits)
        # What fits the model by itself must fit it when padded: nothing is longer than the longest clip.
        longest = int(self._wave.max())
        self._bounds, self._padded = np.minimum(self._bounds, longest), np.minimum(self._padded, longest)

    @property
    def batches_per_epoch(self) -> int:
        return len(self._rows)

    @property
    def wave_padding_share(self) -> float:
        """Share of the padded samples that are padding; the same in every epoch."""
        return float(1 - self._wave.sum() / (self._rows * self._padded).sum())

    @cached_property
    def _buckets(self) -> NDArray[np.int8]:
        """Each clip's bucket; small integers, which sort in one pass."""
        return bucket_of(self._wave, self._bounds).astype(np.int8)

    @cached_property
    def _text_bounds(self) -> list[NDArray[np.int64]]:
        """For each wave bucket the text lengths that its batches are padded to."""
        bounds = []
        longest = 0
        for bucket in range(len(self._bounds)):
            own = self._text[self._buckets == bucket]
            # Shorter clips fill up a bucket's last batch, and a short clip can have a long text.
            longest = max(longest, int(own.max()))
            chosen = choose_bounds(histogram_of(np.append(own, longest), TEXT_MULTIPLE), _TEXT_BOUNDS)
            bounds.append(np.minimum(chosen, longest))
        return bounds

    def plan(self, epoch: int) -> EpochPlan:
        """The epoch's batches: shuffled within each length bucket, then among each other."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._clips))
        # Longest bucket first; the sort is stable, so the permutation is kept within a bucket.
        order = order[np.argsort(-self._buckets[order], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(self._rows)])
        order = _gather_like_texts(order, self._text, starts, self._padded)
        longest_text = np.maximum.reduceat(self._text[order], starts[:-1])
        text = np.empty_like(longest_text)
        for bucket, bound in enumerate(self._bounds):
            here = self._padded == bound
            text[here] = self._text_bounds[bucket][bucket_of(longest_text[here], self._text_bounds[bucket])]
        turn = rng.permutation(len(self._rows))
        turned = np.concatenate([[0], np.cumsum(self._rows[turn])])
        from_row = np.repeat(starts[:-1][turn] - turned[:-1], self._rows[turn]) + np.arange(len(order))
        return EpochPlan(
            clips=self._clips[order[from_row]],
            starts=turned,
            wave_samples=self._padded[turn],
            text_tokens=text[turn],
        )


def _cut(
    clips_per_bucket: NDArray[np.int64], bounds: NDArray[np.int64], limits: BatchLimits
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and padded length of each batch, longest first.

    A bucket's last batch is filled up from the next shorter bucket, so that only the very last one is not full
    and the shapes are the same in every epoch.
    """
    left = clips_per_bucket.tolist()
    rows: list[int] = []
    padded: list[int] = []
    bucket = len(bounds) - 1
    while bucket >= 0:
        if left[bucket] == 0:
            bucket -= 1
            continue
        wanted = limits.rows_at(int(bounds[bucket]))
        rows.append(0)
        padded.append(int(bounds[bucket]))
        source = bucket
        while wanted > rows[-1] and source >= 0:
            taken = min(wanted - rows[-1], left[source])
            left[source] -= taken
            rows[-1] += taken
            source -= 1
    return np.array(rows, np.int64), np.array(padded, np.int64)


def _gather_like_texts(
    order: NDArray[np.int64], text: NDArray[np.int64], starts: NDArray[np.int64], padded: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Within windows of some batches of one shape, put texts of like length together: less text padding."""
    gathered: NDArray[np.int64] = order.copy()
    edges = [0, *(np.flatnonzero(np.diff(padded)) + 1).tolist(), len(padded)]
    for first, last in pairwise(edges):
        for begin in range(first, last, _TEXT_WINDOW_BATCHES):
            window = slice(int(starts[begin]), int(starts[min(begin + _TEXT_WINDOW_BATCHES, last)]))
            gathered[window] = order[window][np.argsort(text[order[window]], kind="stable")]
    return gathered


@dataclass(frozen=True, slots=True)
class LengthHistogram:
    """Distinct rounded lengths, ascending, and how many clips have each."""

    values: NDArray[np.int64]
    counts: NDArray[np.int64]

    def per_bucket(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many clips each bound takes; exact, because bounds are among the values."""
        weights = np.bincount(bucket_of(self.values, bounds), self.counts, minlength=len(bounds))
        return weights.astype(np.int64)


def histogram_of(lengths: NDArray[np.integer], multiple: int) -> LengthHistogram:
    """Lengths rounded up to multiples of `multiple`, or of more where there would be too many steps."""
    step = multiple * max(1, -(-int(lengths.max()) // (multiple * _HISTOGRAM_BINS)))
    counts = np.bincount(-(-lengths.astype(np.int64) // step))
    steps = np.flatnonzero(counts)
    return LengthHistogram(steps * step, counts[steps])


def choose_bounds(histogram: LengthHistogram, count: int) -> NDArray[np.int64]:
    """At most `count` ascending bounds among the rounded lengths that pad them least.

    Exact dynamic programme; the last bound holds the longest clip.
    """
    values, counts = histogram.values, histogram.counts
    below = np.concatenate([[0], np.cumsum(counts)])
    bins = len(values)
    count = min(count, bins)
    # cost[j] = least padded total of the first j values; one pass for each further bound.
    cost = np.where(np.arange(bins + 1) == 0, 0.0, np.inf)
    choices = np.zeros((count, bins + 1), np.int64)
    for level in range(count):
        totals = cost[:, None] + (below[None, 1:] - below[:, None]) * values[None, :].astype(np.float64)
        totals[np.arange(bins + 1)[:, None] > np.arange(bins)[None, :]] = np.inf
        choices[level, 1:] = np.argmin(totals, axis=0)
        cost = np.concatenate([[np.inf], np.min(totals, axis=0)])
    bounds = []
    end = bins
    for level in reversed(range(count)):
        bounds.append(int(values[end - 1]))
        end = int(choices[level, end])
    return np.array(sorted(bounds), np.int64)


def bucket_of(lengths: NDArray[np.integer], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each length, the index of the smallest bound that holds it."""
    return np.searchsorted(bounds, lengths, side="left")
