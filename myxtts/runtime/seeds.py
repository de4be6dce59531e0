"""One seed for everything that draws numbers in this process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from myxtts.runtime.backend import import_tensorflow


def seed_everything(seed: int) -> None:
    """Python, NumPy and TensorFlow. Initialises no device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    import_tensorflow().random.set_seed(seed)


@contextmanager
def keep_drawing_order() -> Iterator[None]:
    """For copies of layers: Keras draws a seed for each weight that is made, and what is drawn after a copy must not
    depend on how many devices have one."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
