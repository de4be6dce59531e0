"""`myxtts.models.aligner`'s network in NumPy, for one clip: what a voice's `aligner.npz` hears, without TensorFlow.

Same results but for rounding. Sizes in names as there: T mel frames, F frames of the network, M mel bins, K labels with
the blank behind them, D width.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.audio.mel import N_MELS
from myxtts.errors import DataError
from myxtts.files import DAMAGED_ARRAYS

Floats = NDArray[np.float32]

FRAMES_PER_STEP = 2
"""43 steps a second: at the codes' own 21.5, fast speech has more tokens than steps, and CTC no path."""
KERNEL_WIDTH = 5
MEL_STD = 2.0
"""About the standard deviation of a log mel around its clip's mean."""
_EPSILON = np.float32(1e-5)
_MOST_BYTES = 64 << 20


class NumpyAligner:
    """The weights of a network as `Aligner.save` numbers them: first layer, blocks of four, norm, head."""

    def __init__(self, weights: Sequence[Floats]) -> None:
        """Raises `ValueError` for weights whose shapes are not those of such a network."""
        _check_shapes([np.shape(weight) for weight in weights])
        self._into, self._norm, self._head = weights[:2], weights[-4:-2], weights[-2:]
        self._blocks = [weights[first : first + 4] for first in range(2, len(weights) - 4, 4)]

    @classmethod
    def load(cls, path: Path) -> NumpyAligner:
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                    raise ValueError("it is larger than any aligner")
            with np.load(path) as stored:
                return cls([stored[name] for name in sorted(stored.files)])
        except (OSError, *DAMAGED_ARRAYS) as error:
            raise DataError(f"the aligner {path} cannot be read: {error}", hint="copy the voice again") from error

    @property
    def labels(self) -> int:
        """Without the blank."""
        return len(self._head[1]) - 1

    def log_posteriors(self, mel_TM: Floats) -> Floats:
        """The logarithm of each label's probability in every frame, [F, K]."""
        centred_TM = (mel_TM - mel_TM.mean(0)) / np.float32(MEL_STD)
        x_FD = np.maximum(_convolve(centred_TM, *self._into, stride=FRAMES_PER_STEP), 0)
        for gamma, beta, kernel, bias in self._blocks:
            x_FD = x_FD + np.maximum(_convolve(_normalised(x_FD, gamma, beta), kernel, bias, stride=1), 0)
        logits_FK = _normalised(x_FD, *self._norm) @ self._head[0] + self._head[1]
        peak_F1 = logits_FK.max(-1, keepdims=True)
        return np.asarray(logits_FK - peak_F1 - np.log(np.exp(logits_FK - peak_F1).sum(-1, keepdims=True)), np.float32)


def _check_shapes(shapes: Sequence[tuple[int, ...]]) -> None:
    blocks, rest = divmod(len(shapes) - 6, 4)
    if blocks < 0 or rest or len(shapes[0]) != 2 or len(shapes[-1]) != 1:
        raise ValueError(f"{len(shapes)} arrays are no aligner")
    width, outputs = shapes[0][1], shapes[-1][0]
    norm = [(width,), (width,)]
    block = [*norm, (KERNEL_WIDTH * width, width), (width,)]
    wanted = [(KERNEL_WIDTH * N_MELS, width), (width,), *block * blocks, *norm, (width, outputs), (outputs,)]
    for place, (shape, right) in enumerate(zip(shapes, wanted, strict=True)):
        if shape != right:
            raise ValueError(f"array {place} has the shape {shape} instead of {right}")


def _convolve(x_TD: Floats, kernel: Floats, bias: Floats, *, stride: int) -> Floats:
    half, outputs = KERNEL_WIDTH // 2, -(-len(x_TD) // stride)
    padded = np.pad(x_TD, ((half, half + stride), (0, 0)))
    taps = [padded[tap : tap + outputs * stride : stride][:outputs] for tap in range(KERNEL_WIDTH)]
    return np.asarray(np.concatenate(taps, -1) @ kernel + bias, np.float32)


def _normalised(x_FD: Floats, gamma: Floats, beta: Floats) -> Floats:
    centred = x_FD - x_FD.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + _EPSILON) * gamma + beta)
