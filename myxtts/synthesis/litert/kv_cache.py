"""Keys and values of several sequences that grow at their own pace, and the attention of one new position of each.

Sequences that begin alike share one prompt. One product takes the queries of all rows to all prompts, which reads the
keys of a shared one once, and one to the rows' own positions. In NumPy: as an input and an output of a network, the
cache would be copied for every code, which takes ten times as long as all the rest. Sizes in names: R rows, S prompts,
G rows of the prompt that most rows share, H heads, P positions of the longest prompt, C positions behind the prompt,
T both, d head width.
"""

from __future__ import annotations

from weakref import ref

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

GROWTH = 128
PROMPT_GROWTH = 32
MASKED = np.float32(-1e9)
"""Added to a score that must not count: its exponential is 0 beside any other."""


class Prompt:
    """What sequences begin with. The cache that made it keeps its keys and values as long as somebody holds it."""

    def __init__(self, length: int) -> None:
        self.length = length


class KVCache:
    """Rows are numbered without gaps: `drop` moves the last one into the place of the one that goes."""

    def __init__(self, layers: int, heads: int, head_width: int) -> None:
        self._heads, self._width = heads, head_width
        self._nothing = np.empty((0, 2, heads, 0, head_width), np.float32)
        self._prompts_S: list[ref[Prompt]] = []
        self._layers_S2HPd = [self._nothing] * layers
        self._prompts_R: list[Prompt] = []
        self._layers_R2HCd = [self._nothing] * layers
        self._lengths_R = np.zeros(0, np.int64)
        # How rows and prompts stand since they last changed:
        self._arranged = False
        self._longest, self._prompt_lengths_R = 0, np.zeros(0, np.int64)
        self._members_SG: Integers | None = None
        """Rows of each prompt, filled up with row 0; None where every row has a prompt of its own, of its number."""
        self._place_R: tuple[Integers, Integers] | None = None
        """Where each row stands among them."""
        # Of the step that has begun:
        self._reach, self._every_row = 0, np.arange(0)
        self._scores_RH1T = np.zeros((0, heads, 1, 0), np.float32)
        self._bias_RT: Floats | None = None

    @property
    def rows(self) -> int:
        return len(self._prompts_R)

    def new_prompt(self, length: int) -> Prompt:
        """A prompt whose keys and values are to be written next, those of every layer."""
        self._forget_prompts()
        self._arranged = False
        prompt = Prompt(length)
        self._prompts_S.append(ref(prompt))
        _make_room(self._layers_S2HPd, len(self._prompts_S), length, PROMPT_GROWTH)
        return prompt

    def write(self, prompt: Prompt, layer: int, key_HPd: Floats, value_HPd: Floats) -> None:
        """A layer's keys and values of a prompt."""
        room_2HPd = self._layers_S2HPd[layer][self._prompts_S.index(ref(prompt)), :, :, : prompt.length]
        room_2HPd[0], room_2HPd[1] = key_HPd, value_HPd

    def add(self, prompt: Prompt) -> int:
        """A row that begins with the prompt; returns its number."""
        self._arranged = False
        self._prompts_R.append(prompt)
        self._lengths_R = np.append(self._lengths_R, 0)
        return self.rows - 1

    def drop(self, row: int) -> int:
        """Forget a row. Returns the number of the row that has its number from now on: the last one."""
        self._arranged = False
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
        if not self._arranged:
            self._arrange()
        self._reach = int(self._lengths_R.max()) + 1
        _make_room(self._layers_R2HCd, self.rows, self._reach, GROWTH)
        longest, size = self._longest, self._longest + self._reach
        self._scores_RH1T = np.empty((self.rows, self._heads, 1, size), np.float32)
        self._bias_RT = None
        if self._prompt_lengths_R.min() < longest or self._lengths_R.min() + 1 < self._reach:
            place_T = np.arange(size)
            beyond_RT = (place_T >= self._prompt_lengths_R[:, None]) & (place_T < longest)
            beyond_RT |= place_T - longest > self._lengths_R[:, None]
            self._bias_RT = np.where(beyond_RT, MASKED, np.float32(0))

    def attend(self, layer: int, qkv_RD: Floats) -> tuple[Floats, Floats]:
        """What each row's query finds, [R, H * d], and how much it looked where, [R, H, T], not yet divided by its sum
        and overwritten by the next call; queries come scaled."""
        rows, heads, width, longest = self.rows, self._heads, self._width, self._longest
        cache_R2HCd, scores_RH1T = self._layers_R2HCd[layer], self._scores_RH1T
        qkv_R3Hd = qkv_RD.reshape(rows, 3, heads, width)
        query_RH1d = qkv_R3Hd[:, 0, :, None]
        cache_R2HCd[self._every_row, :, :, self._lengths_R] = qkv_R3Hd[:, 1:]
        keys_RHCd, values_RHCd = cache_R2HCd[:rows, 0, :, : self._reach], cache_R2HCd[:rows, 1, :, : self._reach]
        np.matmul(query_RH1d, keys_RHCd.swapaxes(2, 3), out=scores_RH1T[..., longest:])
        prompts_S2HPd = self._layers_S2HPd[layer][: len(self._prompts_S), :, :, :longest]
        keys_SHdP, values_SHPd = prompts_S2HPd[:, 0].swapaxes(2, 3), prompts_S2HPd[:, 1]
        self._for_prompts(query_RH1d, keys_SHdP, scores_RH1T[..., :longest])
        if self._bias_RT is not None:
            scores_RH1T += self._bias_RT[:, None, None]
        # The reductions by their ufuncs: the methods of the same name take as long again to find those.
        scores_RH1T -= np.maximum.reduce(scores_RH1T, axis=-1, keepdims=True)
        np.exp(scores_RH1T, scores_RH1T)
        found_RH1d = scores_RH1T[..., longest:] @ values_RHCd
        in_prompt_RH1d = np.empty_like(found_RH1d)
        self._for_prompts(scores_RH1T[..., :longest], values_SHPd, in_prompt_RH1d)
        found_RH1d += in_prompt_RH1d
        found_RH1d /= np.add.reduce(scores_RH1T, axis=-1, keepdims=True)
        return found_RH1d.reshape(rows, heads * width), scores_RH1T[:, :, 0]

    def end_step(self) -> None:
        """The new positions count from now on."""
        self._lengths_R += 1

    def _for_prompts(self, of_rows_RH1X: Floats, of_prompts_SHXY: Floats, out_RH1Y: Floats) -> None:
        """The product of what every row has with what its prompt has."""
        if self._members_SG is None or self._place_R is None:
            np.matmul(of_rows_RH1X, of_prompts_SHXY, out=out_RH1Y)
            return
        together_SHGX = of_rows_RH1X[:, :, 0][self._members_SG].swapaxes(1, 2)
        out_RH1Y[:, :, 0] = (together_SHGX @ of_prompts_SHXY).swapaxes(1, 2)[self._place_R]

    def _arrange(self) -> None:
        """Find who shares which prompt."""
        self._forget_prompts()
        self._arranged = True
        self._every_row = np.arange(self.rows)
        self._prompt_lengths_R = np.array([prompt.length for prompt in self._prompts_R])
        self._longest = int(self._prompt_lengths_R.max())
        number_of = {id(held()): number for number, held in enumerate(self._prompts_S)}
        members_S: list[list[int]] = [[] for _ in self._prompts_S]
        number_R, among_R = np.zeros((2, self.rows), np.int64)
        for row, prompt in enumerate(self._prompts_R):
            number_R[row] = number = number_of[id(prompt)]
            among_R[row] = len(members_S[number])
            members_S[number].append(row)
        if members_S == [[row] for row in range(self.rows)]:
            self._members_SG = self._place_R = None
            return
        most = max(map(len, members_S))
        self._members_SG = np.array([members + [0] * (most - len(members)) for members in members_S])
        self._place_R = number_R, among_R

    def _forget_prompts(self) -> None:
        """Move the last prompt into the place of one that nobody holds any more."""
        for number in reversed(range(len(self._prompts_S))):
            if self._prompts_S[number]() is None:
                last = self._prompts_S.pop()
                if number < len(self._prompts_S):
                    self._prompts_S[number] = last
                    for layer in self._layers_S2HPd:
                        layer[number] = layer[len(self._prompts_S)]
        if not self._prompts_S:
            self._layers_S2HPd = [self._nothing] * len(self._layers_S2HPd)


def _make_room(layers: list[Floats], count: int, positions: int, growth: int) -> None:
    """For so many sequences of so many positions, with more to come; what was there stays."""
    had_count, _, heads, had, width = layers[0].shape
    if count <= had_count and positions <= had:
        return
    capacity = had if positions <= had else -(-positions // growth) * growth
    room = had_count if count <= had_count else max(count, 2 * had_count)
    for number, old in enumerate(layers):
        # Zeros: what nothing has written yet is multiplied by a probability of 0, and must be a number. They take no
        # memory before they are written, so that at most one layer is there twice.
        layers[number] = np.zeros((room, 2, heads, capacity, width), np.float32)
        layers[number][:had_count, :, :, :had] = old
