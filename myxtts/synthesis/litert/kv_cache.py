"""Keys and values of several sequences that grow at their own pace, and the attention of one new position of each.

In NumPy: as an input and an output of a network, the cache would be copied for every code, which takes ten times as
long as all the rest. Sizes in names: R rows, H heads, C positions, d head width, E both keys and values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

GROWTH = 128
MASKED = np.float32(-1e9)
"""Added to a score that must not count: its exponential is 0 beside any other."""


class KVCache:
    """Rows are numbered without gaps: `drop` moves the last one into the place of the one that goes."""

    def __init__(self, layers: int, heads: int, head_width: int) -> None:
        self._heads, self._width = heads, head_width
        self._layers_R2HCd = [np.empty((0, 2, heads, 0, head_width), np.float32) for _ in range(layers)]
        self.lengths_R = np.zeros(0, np.int64)
        self._bias_RC = np.empty((0, 0), np.float32)

    @property
    def rows(self) -> int:
        return len(self.lengths_R)

    def add(self, keys_values: list[tuple[Floats, Floats]]) -> int:
        """A row with each layer's keys and values [H, C, d] of its prompt; returns its number."""
        row, length = self.rows, keys_values[0][0].shape[1]
        self.lengths_R = np.append(self.lengths_R, length)
        self._make_room(1)
        for layer, (keys_HCd, values_HCd) in zip(self._layers_R2HCd, keys_values, strict=True):
            layer[row, 0, :, :length], layer[row, 1, :, :length] = keys_HCd, values_HCd
        return row

    def drop(self, row: int) -> int:
        """Forget a row. Returns the number of the row that has its number from now on: the last one."""
        last = self.rows - 1
        if row != last:
            length = self.lengths_R[last]
            for layer in self._layers_R2HCd:
                layer[row, :, :, :length] = layer[last, :, :, :length]
            self.lengths_R[row] = length
        self.lengths_R = self.lengths_R[:last].copy()
        return last

    def begin_step(self) -> None:
        """Room for one more position of every row, before `attend` is called for each layer."""
        self._make_room(1)
        capacity = int(self.lengths_R.max()) + 1
        if np.all(self.lengths_R == capacity - 1):
            self._bias_RC = np.empty((0, 0), np.float32)
        else:
            behind_RC = np.arange(capacity) > self.lengths_R[:, None]
            self._bias_RC = np.where(behind_RC, MASKED, np.float32(0))

    def attend(self, layer: int, qkv_RD: Floats) -> tuple[Floats, Floats]:
        """What each row's query finds, [R, H * d], and where it looked, [R, H, C]; queries come scaled."""
        rows, heads, width = self.rows, self._heads, self._width
        cache_R2HCd = self._layers_R2HCd[layer]
        query_RH1d = qkv_RD[:, : heads * width].reshape(rows, heads, 1, width)
        new_R2Hd = qkv_RD[:, heads * width :].reshape(rows, 2, heads, width)
        capacity = int(self.lengths_R.max()) + 1
        cache_R2HCd[np.arange(rows), :, :, self.lengths_R] = new_R2Hd
        keys_RHCd, values_RHCd = cache_R2HCd[:rows, 0, :, :capacity], cache_R2HCd[:rows, 1, :, :capacity]
        scores_RH1C = query_RH1d @ keys_RHCd.swapaxes(2, 3)
        if len(self._bias_RC):
            scores_RH1C += self._bias_RC[:, None, None]
        scores_RH1C -= scores_RH1C.max(-1, keepdims=True)
        np.exp(scores_RH1C, scores_RH1C)
        scores_RH1C /= scores_RH1C.sum(-1, keepdims=True)
        found_RH1d = scores_RH1C @ values_RHCd
        return found_RH1d.reshape(rows, heads * width), scores_RH1C[:, :, 0]

    def end_step(self) -> None:
        """The new positions count from now on."""
        self.lengths_R += 1

    def _make_room(self, positions: int) -> None:
        """Grow to all rows and `positions` more than the longest of them has."""
        rows, wanted = self.rows, int(self.lengths_R.max()) + positions
        had_rows, _, _, had, _ = self._layers_R2HCd[0].shape
        if rows <= had_rows and wanted <= had:
            return
        capacity = had if wanted <= had else -(-wanted // GROWTH) * GROWTH
        for number, old in enumerate(self._layers_R2HCd):
            # Zeros: what no row has written yet is multiplied by a probability of 0, and must be a number.
            new = np.zeros((max(rows, had_rows), 2, self._heads, capacity, self._width), np.float32)
            new[:had_rows, :, :, :had] = old
            self._layers_R2HCd[number] = new
