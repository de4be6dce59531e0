"""One seed for everything that draws numbers in this process."""

from __future__ import annotations

import random

import numpy as np

from myxtts.runtime.backend import import_tensorflow


def seed_everything(seed: int) -> None:
    """Python, NumPy and TensorFlow. Initialises no device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    import_tensorflow().random.set_seed(seed)
