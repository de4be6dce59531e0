"""How the next code is sampled, in NumPy: the same rules and random numbers as `myxtts.synthesis.sampling`.

The same seed gives the same codes as TensorFlow, but where rounding puts a random number on the other side of a
border. Sizes: B rows, V vocabulary, K candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from myxtts.config.speaking import Sampling
from myxtts.errors import ConfigError

Floats = NDArray[np.float32]


def per_row(name: str, value: int | Sequence[int], batch: int) -> np.ndarray:
    """One number for each text of the batch; `name` is for the error."""
    rows = np.asarray(value, np.int32)
    if rows.ndim == 0:
        rows = np.full(batch, rows, np.int32)
    if rows.shape != (batch,):
        raise ConfigError(
            f"{name} has the shape {rows.shape} for a batch of {batch}", hint="give one number, or one for each text"
        )
    return rows


def penalise(logits_BV: Floats, penalty_BV: Floats) -> Floats:
    """Make codes with a penalty above 1 less likely, whatever the sign of their logit."""
    return np.minimum(logits_BV * penalty_BV, logits_BV / penalty_BV)


def guided(conditional_BV: Floats, unconditional_BV: Floats, guidance: float) -> Floats:
    """Classifier-free guidance."""
    return unconditional_BV + np.float32(guidance) * (conditional_BV - unconditional_BV)


def sample(logits_BV: Floats, sampling: Sampling, uniform_B: Floats) -> NDArray[np.int64]:
    """One code for each row: the candidate at which the cumulative probability passes the row's random number."""
    vocabulary = logits_BV.shape[1]
    top_k = 1 if sampling.temperature == 0.0 else min(sampling.top_k or vocabulary, vocabulary)
    if top_k == 1:
        return np.asarray(logits_BV.argmax(-1), np.int64)
    codes_BK = _likeliest(logits_BV, top_k)
    values_BK = np.take_along_axis(logits_BV, codes_BK, -1)
    probabilities_BK = np.exp((values_BK - values_BK[:, :1]) / np.float32(sampling.temperature))
    probabilities_BK /= probabilities_BK.sum(-1, keepdims=True)
    until_BK = probabilities_BK.cumsum(-1)
    kept_BK = until_BK - probabilities_BK < np.float32(sampling.top_p)
    # The sum of what is kept, taken from the same sums: a random number below 1 then stays before the last one kept.
    kept_B1 = np.where(kept_BK, until_BK, np.float32(0)).max(-1, keepdims=True)
    index_B = (until_BK <= uniform_B[:, None] * kept_B1).sum(-1)
    return np.asarray(codes_BK[np.arange(len(codes_BK)), index_B], np.int64)


def _likeliest(logits_BV: Floats, count: int) -> NDArray[np.int64]:
    """The likeliest codes of each row, best first; of equals the lower one first, as TensorFlow's top-k has them."""
    vocabulary = logits_BV.shape[1]
    if count < vocabulary:
        codes_BK = np.argpartition(logits_BV, vocabulary - count, -1)[:, vocabulary - count :]
        codes_BK.sort(-1)
    else:
        codes_BK = np.broadcast_to(np.arange(vocabulary), logits_BV.shape)
    order_BK = np.argsort(-np.take_along_axis(logits_BV, codes_BK, -1), -1, kind="stable")
    return np.asarray(np.take_along_axis(codes_BK, order_BK, -1), np.int64)
