"""How the next code is sampled from the GPT's logits: repetition penalty, temperature, top-k, top-p.

All values are tensors, so one compiled loop serves every setting. The order is Hugging Face's, and therefore
Coqui's: repetition penalty, temperature, top-k, top-p. Sizes: B batch, V vocabulary, K candidates, N steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.config.speaking import Sampling
from myxtts.runtime.philox import stateless_uniform


class SamplingTensors(NamedTuple):
    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    penalty: tf.Tensor


def sampling_tensors(sampling: Sampling, vocabulary: int) -> SamplingTensors:
    greedy = sampling.temperature == 0.0
    return SamplingTensors(
        temperature=tf.constant(1.0 if greedy else sampling.temperature, tf.float32),
        top_k=tf.constant(1 if greedy else min(sampling.top_k or vocabulary, vocabulary), tf.int32),
        top_p=tf.constant(sampling.top_p, tf.float32),
        penalty=tf.constant(sampling.repetition_penalty, tf.float32),
    )


def random_numbers(seeds_B: np.ndarray, count: int) -> tf.Tensor:
    """[count, B, 1] numbers in [0, 1); a row depends on its own seed alone, not on the batch around it."""
    return tf.constant(np.stack([stateless_uniform(count, seed) for seed in seeds_B.tolist()], 1)[:, :, None])


def penalise(logits_BV: tf.Tensor, penalty_BV: tf.Tensor) -> tf.Tensor:
    """Make codes with a penalty above 1 less likely, whatever the sign of their logit."""
    return tf.minimum(logits_BV * penalty_BV, logits_BV / penalty_BV)


def sample(logits_BV: tf.Tensor, sampling: SamplingTensors, uniform_B1: tf.Tensor) -> tf.Tensor:
    """One code for each row: the candidate at which the cumulative probability passes the row's random number."""
    values_BK, codes_BK = tf.math.top_k(logits_BV, sampling.top_k)
    probabilities_BK = tf.nn.softmax(values_BK / sampling.temperature)
    until_BK = tf.cumsum(probabilities_BK, axis=-1)
    kept_BK = until_BK - probabilities_BK < sampling.top_p
    # The sum of what is kept, taken from the same sums: a random number below 1 then stays before the last one kept.
    kept_B1 = tf.reduce_max(tf.where(kept_BK, until_BK, tf.zeros_like(until_BK)), -1, keepdims=True)
    index_B = tf.reduce_sum(tf.cast(until_BK <= uniform_B1 * kept_B1, tf.int32), -1)
    return tf.gather(codes_BK, index_B, batch_dims=1)
