"""Chooses few padded lengths for many real ones, so that little of a batch is padding.

Pure functions of an array of lengths: nothing here knows of files, seeds or epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BINS = 256
"""Lengths are sorted into at most this many steps first: exact enough, and independent of the corpus's size."""


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
    step = multiple * max(1, -(-int(lengths.max()) // (multiple * _BINS)))
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
