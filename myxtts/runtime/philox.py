"""The numbers of `tf.random.stateless_uniform`, to the bit, without TensorFlow: Philox 4x32 in ten rounds.

Every runtime samples codes with these, so that a seed means the same speech everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_SCRAMBLING_KEY = np.array([0x3EC8F720, 0x02461E29], np.uint32)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


def stateless_uniform(count: int, seed: int) -> NDArray[np.float32]:
    """`count` float32 in [0, 1), as TensorFlow draws them for the seed pair [seed, 0]; fewer are a prefix of more."""
    blocks = -(-count // 4)
    key, counter = _scrambled(seed)
    counters_N4 = np.empty((blocks, 4), np.uint32)
    counters_N4[:, 0], counters_N4[:, 1] = np.arange(blocks), 0
    counters_N4[:, 2:] = counter
    bits = _philox(counters_N4, key).reshape(-1)[:count]
    # The lower 23 bits are the fraction of a number in [1, 2).
    between = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32)
    return np.asarray(between - np.float32(1.0), np.float32)


def _scrambled(seed: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Key and upper half of the counter: what a block of a fixed key makes of the seed."""
    wide = seed & 0xFFFFFFFFFFFFFFFF  # a negative seed as TensorFlow reads it
    counter_14 = np.array([[wide & 0xFFFFFFFF, wide >> 32, 0, 0]], np.uint32)
    mixed = _philox(counter_14, _SCRAMBLING_KEY)[0]
    return mixed[:2], mixed[2:]


def _philox(counters_N4: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words: NDArray[np.uint32] = counters_N4.copy()
    key = key.copy()
    for _ in range(_ROUNDS):
        products_N2 = words[:, ::2].astype(np.uint64) * _MULTIPLIERS
        low_N2, high_N2 = (products_N2 & _LOW).astype(np.uint32), (products_N2 >> _HIGH).astype(np.uint32)
        words[:, 0] = high_N2[:, 1] ^ words[:, 1] ^ key[0]
        words[:, 2] = high_N2[:, 0] ^ words[:, 3] ^ key[1]
        words[:, 1], words[:, 3] = low_N2[:, 1], low_N2[:, 0]
        key += _KEY_STEPS
    return words
