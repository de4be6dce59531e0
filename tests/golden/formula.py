"""Weights and inputs from a formula, so that golden files hold shapes and outputs instead of megabytes of noise.

`RandomState` is NumPy's frozen generator: the same seed gives the same numbers in every version, here and in the
environment where `tools/make_golden.py` runs the original.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A value for a weight of this name that keeps activations within bounds through a deep network."""
    uniform = np.random.RandomState(zlib.crc32(name.encode())).random_sample(shape)
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    positive = name.endswith(("running_var", "original0", "weight_g", "cluster_size")) or (
        len(shape) == 1 and name.endswith("weight")
    )
    if positive:
        return (0.5 + uniform).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 100
    return ((2.0 * uniform - 1.0) * np.sqrt(3.0 / max(fan_in, 1))).astype(np.float32)


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: weight(name, tuple(shape)) for name, shape in shapes.items()}


def noise(name: str, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    """An input, from the normal distribution."""
    return (np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape) * scale).astype(np.float32)


def save(part: str, shapes: Mapping[str, tuple[int, ...]], outputs: Mapping[str, np.ndarray]) -> Path:
    path = FOLDER / f"{part}.npz"
    np.savez_compressed(path, shapes=json.dumps({name: list(shape) for name, shape in shapes.items()}), **outputs)
    return path


def load(part: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The original's weights by its own names, and its outputs."""
    with np.load(FOLDER / f"{part}.npz") as stored:
        shapes = {name: tuple(shape) for name, shape in json.loads(str(stored["shapes"])).items()}
        return weights(shapes), {name: stored[name] for name in stored.files if name != "shapes"}
