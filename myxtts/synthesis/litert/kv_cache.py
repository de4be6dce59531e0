"""Keys and values of several sequences that grow at their own pace, and the attention of one new position of each.

Sequences that begin alike share one prompt: the queries of all of them meet its keys in one product, which reads the
keys once. In NumPy: as an input and an output of a network, the cache would be copied for every code, which takes ten
times as long as all the rest. Sizes in names: R rows, G rows of one prompt, H heads, P positions of the longest prompt,
C positions behind the prompt, T both, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

GROWTH = 128
MASKED = np.float32(-1e9)
"""Added to a score that must not count: its exponential is 0 beside any other."""


class Prompt:
    """Each layer's keys and values [H, P, d] of what a sequence begins with."""

    def __init__(self, keys_values: Sequence[tuple[Floats, Floats]]) -> None:
        self.keys_values = keys_values
        self.length = keys_values[0][0].shape[1]


class KVCache:
    """Rows are numbered without gaps: `drop` moves the last one into the place of the one that goes."""

    def __init__(self, layers: int, heads: int, head_width: int) -> None:
        self._heads, self._width = heads, head_width
        self._prompts_R: list[Prompt] = []
        self._layers_R2HCd = [np.empty((0, 2, heads, 0, head_width), np.float32) for _ in range(layers)]
        self._lengths_R = np.zeros(0, np.int64)
        # Of the step that has begun:
        self._groups: list[tuple[Prompt, NDArray[np.int64]]] = []
        self._reach, self._every_row = 0, np.arange(0)
        self._scores_RH1T = np.zeros((0, heads, 1, 0), np.float32)
        self._bias_RT: Floats | None = None

    @property
    def rows(self) -> int:
        return len(self._prompts_R)

    def add(self, prompt: Prompt) -> int:
        """A row that begins with the prompt; returns its number."""
        self._prompts_R.append(prompt)
        self._lengths_R = np.append(self._lengths_R, 0)
        return self.rows - 1

    def drop(self, row: int) -> int:
        """Forget a row. Returns the number of the row that has its number from now on: the last one."""
        last = self.rows - 1
        moved = self._prompts_R.pop()
        if row != last:
            length = self._lengths_R[last]
            # A row that no step has seen yet has nothing of its own, and perhaps no room either.
            for layer in self._layers_R2HCd if length else ():
                layer[row, :, :, :length] = layer[last, :, :, :length]
            self._lengths_R[row], self._prompts_R[row] = length, moved
        self._lengths_R = self._lengths_R[:last].copy()
        return last

    def begin_step(self) -> None:
        """Room for one more position of every row, before `attend` is called for each layer."""
        self._reach, self._every_row = int(self._lengths_R.max()) + 1, np.arange(self.rows)
        self._reserve()
        together: dict[int, list[int]] = {}
        for row, prompt in enumerate(self._prompts_R):
            together.setdefault(id(prompt), []).append(row)
        self._groups = [(self._prompts_R[rows[0]], np.array(rows)) for rows in together.values()]
        longest = max(prompt.length for prompt in self._prompts_R)
        # What no product writes into is masked, and stays 0 from layer to layer.
        self._scores_RH1T = np.zeros((self.rows, self._heads, 1, longest + self._reach), np.float32)
        self._bias_RT = None
        prompts_R = np.array([prompt.length for prompt in self._prompts_R])
        if prompts_R.min() < longest or self._lengths_R.min() + 1 < self._reach:
            place_T = np.arange(longest + self._reach)
            beyond_RT = (place_T >= prompts_R[:, None]) & (place_T < longest)
            beyond_RT |= place_T - longest > self._lengths_R[:, None]
            self._bias_RT = np.where(beyond_RT, MASKED, np.float32(0))

    def attend(self, layer: int, qkv_RD: Floats) -> tuple[Floats, Floats]:
        """What each row's query finds, [R, H * d], and how much it looked where, [R, H, T], not yet divided by its sum
        and overwritten by the next call; queries come scaled."""
        rows, heads, width = self.rows, self._heads, self._width
        cache_R2HCd, scores_RH1T = self._layers_R2HCd[layer], self._scores_RH1T
        longest = scores_RH1T.shape[-1] - self._reach
        query_RHd = qkv_RD[:, : heads * width].reshape(rows, heads, width)
        new_R2Hd = qkv_RD[:, heads * width :].reshape(rows, 2, heads, width)
        cache_R2HCd[self._every_row, :, :, self._lengths_R] = new_R2Hd
        keys_RHCd, values_RHCd = cache_R2HCd[:rows, 0, :, : self._reach], cache_R2HCd[:rows, 1, :, : self._reach]
        scores_RH1T[..., longest:] = query_RHd[:, :, None] @ keys_RHCd.swapaxes(2, 3)
        for prompt, of_prompt_G in self._groups:
            query_HGd = query_RHd[of_prompt_G].transpose(1, 0, 2)
            scores_HGP = query_HGd @ prompt.keys_values[layer][0].swapaxes(1, 2)
            scores_RH1T[of_prompt_G, :, 0, : prompt.length] = scores_HGP.transpose(1, 0, 2)
        if self._bias_RT is not None:
            scores_RH1T += self._bias_RT[:, None, None]
        # The reductions by their ufuncs: the methods of the same name take as long again to find those.
        scores_RH1T -= np.maximum.reduce(scores_RH1T, axis=-1, keepdims=True)
        np.exp(scores_RH1T, scores_RH1T)
        found_RHd = (scores_RH1T[..., longest:] @ values_RHCd)[:, :, 0]
        for prompt, of_prompt_G in self._groups:
            seen_HGP = scores_RH1T[of_prompt_G, :, 0, : prompt.length].transpose(1, 0, 2)
            found_RHd[of_prompt_G] += (seen_HGP @ prompt.keys_values[layer][1]).transpose(1, 0, 2)
        found_RHd /= np.add.reduce(scores_RH1T, axis=-1)
        return found_RHd.reshape(rows, heads * width), scores_RH1T[:, :, 0]

    def end_step(self) -> None:
        """The new positions count from now on."""
        self._lengths_R += 1

    def _reserve(self) -> None:
        """Grow to all rows, and to the positions that the longest of them has in this step."""
        had_rows, _, _, had, _ = self._layers_R2HCd[0].shape
        if self.rows <= had_rows and self._reach <= had:
            return
        capacity = had if self._reach <= had else -(-self._reach // GROWTH) * GROWTH
        room = had_rows if self.rows <= had_rows else max(self.rows, 2 * had_rows)
        for number, old in enumerate(self._layers_R2HCd):
            # Zeros: what no row has written yet is multiplied by a probability of 0, and must be a number.
            new = np.zeros((room, 2, self._heads, capacity, self._width), np.float32)
            new[:had_rows, :, :, :had] = old
            self._layers_R2HCd[number] = new
