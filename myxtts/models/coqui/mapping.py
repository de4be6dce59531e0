"""Rules that rename and reshape one framework's weights into ours, applied strictly.

A rule makes one of our weights from one or more of theirs. `translate` raises `CheckpointError` for a source that
lacks a weight, and for one that has a weight which no rule takes: a model that ignored it would load and speak noise.

Our names are the paths of Keras variables ("dvae/encoder/down_1/kernel"); theirs are the keys of a PyTorch state dict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from myxtts.errors import CheckpointError

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rule:
    """Our weight `ours` is `convert` of their weights `theirs`."""

    ours: str
    theirs: tuple[str, ...]
    convert: Callable[..., np.ndarray]


def translate(rules: Iterable[Rule], state: Weights, *, ignored: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Our weights from theirs; names that match one of the `ignored` patterns may be left over."""
    made: dict[str, np.ndarray] = {}
    used: set[str] = set()
    missing: list[str] = []
    for rule in rules:
        absent = [name for name in rule.theirs if name not in state]
        if absent:
            missing += absent
            continue
        used.update(rule.theirs)
        made[rule.ours] = np.ascontiguousarray(rule.convert(*(state[name] for name in rule.theirs)), np.float32)
    if missing:
        raise CheckpointError(
            f"{len(missing)} weights are missing, among them {_some(missing)}",
            hint="is this an XTTS v2 checkpoint of the sizes in its config.json?",
        )
    extra = [name for name in state if name not in used and not any(re.search(pattern, name) for pattern in ignored)]
    if extra:
        raise CheckpointError(
            f"{len(extra)} weights have no place in our model, among them {_some(extra)}",
            hint="XTTS v2 with the sizes of its config.json is supported, other architectures are not",
        )
    return made


def under(prefix: str, state: Weights) -> dict[str, np.ndarray]:
    """The weights whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def same(value: np.ndarray) -> np.ndarray:
    return value


def linear(weight: np.ndarray) -> np.ndarray:
    """[out, in] to [in, out]."""
    return np.transpose(weight)


def pointwise(weight: np.ndarray) -> np.ndarray:
    """A convolution with one tap, as a dense layer: [out, in, 1] to [in, out]."""
    return np.transpose(weight[:, :, 0])


def conv1d(weight: np.ndarray) -> np.ndarray:
    """[out, in, taps] to [taps, in, out]."""
    return np.transpose(weight, (2, 1, 0))


def conv2d(weight: np.ndarray) -> np.ndarray:
    """[out, in, height, width] to [height, width, in, out]."""
    return np.transpose(weight, (2, 3, 1, 0))


def with_bias(ours: str, theirs: str, convert: Callable[[np.ndarray], np.ndarray]) -> list[Rule]:
    """Kernel and bias of a layer."""
    return [Rule(f"{ours}/kernel", (f"{theirs}.weight",), convert), Rule(f"{ours}/bias", (f"{theirs}.bias",), same)]


def batch_norm(ours: str, theirs: str) -> list[Rule]:
    """All four vectors of a batch norm."""
    names = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    return [Rule(f"{ours}/{mine}", (f"{theirs}.{yours}",), same) for mine, yours in names.items()]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4])
