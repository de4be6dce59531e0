"""How the next code is chosen from the GPT's logits: penalties, temperature, top-k, top-p, one random number.

All values are tensors, so one compiled loop serves every setting. The order is Hugging Face's, and therefore
Coqui's: repetition penalty, temperature, top-k, top-p. Sizes: B batch, V vocabulary, K candidates, N steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.config.checks import at_least, in_range


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How codes are drawn. The defaults are the ones that worked best for voices trained from scratch."""

    temperature: float = 0.5
    """Below 1 prefers likely codes; 0 always takes the likeliest one."""

    top_k: int = 50
    """Only the k likeliest codes can be drawn; 0 for all."""

    top_p: float = 0.85
    """Only the likeliest codes that together have this probability can be drawn."""

    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of codes that were spoken already; 1 is off."""

    def __post_init__(self) -> None:
        in_range("--temperature", self.temperature, 0.0, 10.0, hint="0 is greedy, 0.5 the default")
        at_least("--top-k", self.top_k, 0, hint="0 turns it off, 50 is the default")
        in_range("--top-p", self.top_p, 1e-6, 1.0, hint="1 turns it off, 0.85 is the default")
        in_range("--repetition-penalty", self.repetition_penalty, 1.0, 100.0, hint="1, the default, is off")

    def tensors(self, vocabulary: int) -> SamplingTensors:
        greedy = self.temperature == 0.0
        return SamplingTensors(
            temperature=tf.constant(1.0 if greedy else self.temperature, tf.float32),
            top_k=tf.constant(1 if greedy else min(self.top_k or vocabulary, vocabulary), tf.int32),
            top_p=tf.constant(self.top_p, tf.float32),
            penalty=tf.constant(self.repetition_penalty, tf.float32),
        )


WITHOUT_ALIGNMENT = Sampling(repetition_penalty=2.0)
"""A voice that was trained without alignments loops without a penalty; one with them speaks worse for it, since sounds
do come back in a sentence."""
GREEDY = Sampling(temperature=0.0, repetition_penalty=1.0)


class SamplingTensors(NamedTuple):
    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    penalty: tf.Tensor


def random_numbers(seeds_B: np.ndarray, count: int) -> tf.Tensor:
    """[count, B, 1] numbers in [0, 1); a row depends on its own seed alone, not on the batch around it."""
    return tf.stack([tf.random.stateless_uniform([count, 1], [seed, 0]) for seed in seeds_B.tolist()], 1)


def penalise(logits_BV: tf.Tensor, penalty_BV: tf.Tensor) -> tf.Tensor:
    """Make codes with a penalty above 1 less likely, whatever the sign of their logit."""
    return tf.minimum(logits_BV * penalty_BV, logits_BV / penalty_BV)


def draw(logits_BV: tf.Tensor, sampling: SamplingTensors, uniform_B1: tf.Tensor) -> tf.Tensor:
    """One code for each row: the candidate at which the cumulative probability passes the row's random number."""
    values_BK, codes_BK = tf.math.top_k(logits_BV, sampling.top_k)
    probabilities_BK = tf.nn.softmax(values_BK / sampling.temperature)
    until_BK = tf.cumsum(probabilities_BK, axis=-1)
    kept_BK = until_BK - probabilities_BK < sampling.top_p
    # The sum of what is kept, taken from the same sums: a random number below 1 then stays before the last one kept.
    kept_B1 = tf.reduce_max(tf.where(kept_BK, until_BK, tf.zeros_like(until_BK)), -1, keepdims=True)
    index_B = tf.reduce_sum(tf.cast(until_BK <= uniform_B1 * kept_B1, tf.int32), -1)
    return tf.gather(codes_BK, index_B, batch_dims=1)
