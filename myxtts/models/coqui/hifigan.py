"""Coqui's `HifiganGenerator` as weights of `myxtts.models.hifigan.HiFiGAN`; weight norm is folded in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from myxtts.models.coqui.mapping import Rule, Weights, pointwise, translate, with_bias
from myxtts.models.hifigan_sizes import DILATIONS, RESIDUAL_KERNELS, UPSAMPLING

PREFIX = "hifigan_decoder.waveform_decoder."
# Magnitude and direction of a normalised weight: PyTorch's names since 2.1, and the older ones of published files.
_NORMALISED = (("parametrizations.weight.original0", "parametrizations.weight.original1"), ("weight_g", "weight_v"))


def hifigan_weights(state: Weights) -> dict[str, np.ndarray]:
    """Our weights by path, from a state dict whose names begin as in the generator itself (no prefix)."""
    return translate(_rules(), _folded(state))


def fold_weight_norm(magnitude: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The weight that weight norm stands for: each first-axis slice of `direction` with the length `magnitude`."""
    direction = np.asarray(direction, np.float32)
    length = np.sqrt(np.sum(direction**2, axis=tuple(range(1, direction.ndim)), keepdims=True))
    return np.asarray(magnitude * direction / length)


def _folded(state: Weights) -> dict[str, np.ndarray]:
    folded = dict(state)
    for magnitude_name, direction_name in _NORMALISED:
        for name in [name for name in folded if name.endswith(f".{magnitude_name}")]:
            layer = name.removesuffix(f".{magnitude_name}")
            direction = f"{layer}.{direction_name}"
            if direction in folded:
                folded[f"{layer}.weight"] = fold_weight_norm(folded.pop(name), folded.pop(direction))
    return folded


def _rules() -> list[Rule]:
    rules = [
        *with_bias("hifigan/into", "conv_pre", _conv),
        *with_bias("hifigan/speaker", "cond_layer", pointwise),
        Rule("hifigan/out/kernel", ("conv_post.weight",), _conv),
    ]
    for index, rate in enumerate(UPSAMPLING):
        stage = f"hifigan/stage_{index + 1}"
        rules += with_bias(f"{stage}/up", f"ups.{index}", _transposed(rate))
        rules += with_bias(f"{stage}/speaker", f"conds.{index}", pointwise)
        for block, kernel in enumerate(RESIDUAL_KERNELS):
            theirs = f"resblocks.{index * len(RESIDUAL_KERNELS) + block}"
            for position, dilation in enumerate(DILATIONS):
                rules += with_bias(f"{stage}/block_{kernel}/dilated_{dilation}", f"{theirs}.convs1.{position}", _conv)
                rules += with_bias(f"{stage}/block_{kernel}/plain_{dilation}", f"{theirs}.convs2.{position}", _conv)
    return rules


def _conv(weight: np.ndarray) -> np.ndarray:
    """[out, in, taps] to [1, taps, in, out]."""
    return np.transpose(weight, (2, 1, 0))[None]


def _transposed(rate: int) -> Callable[[np.ndarray], np.ndarray]:
    def convert(weight: np.ndarray) -> np.ndarray:
        """[in, out, 2 x rate] to [1, 2, in, rate x out]; the later half of the taps meets the earlier sample."""
        channels_in, channels, _ = weight.shape
        taps = np.transpose(weight.reshape(channels_in, channels, 2, rate), (2, 0, 3, 1))
        return np.reshape(taps[::-1], (1, 2, channels_in, rate * channels))

    return convert
