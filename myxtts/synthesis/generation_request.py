"""What is asked of a generation: limits, seeds, sampling and guidance, checked once and the same for every step.

Sizes in names: B batch, L latents, U text positions, N codes, V audio vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.config.speaking import Sampling
from myxtts.errors import ConfigError
from myxtts.models.gpt import GPT
from myxtts.synthesis.sampling import SamplingTensors, random_numbers, sampling_tensors


class Request(NamedTuple):
    """What stays the same during a generation.

    With guidance every text is read a second time without its words: the second half of the rows, which draw the codes
    of the first.
    """

    text_lengths_B: tf.Tensor
    text_width: tf.Tensor
    """Tokens of the longest text."""
    uniform_NB1: tf.Tensor
    min_codes_B1: tf.Tensor
    max_codes_B: tf.Tensor
    sampling: SamplingTensors
    guidance: tf.Tensor | None
    """How much more the words count than they do by themselves; None where they are read once."""

    def guided(self, logits_BV: tf.Tensor) -> tf.Tensor:
        """The logits to draw from, one row for each text."""
        if self.guidance is None:
            return logits_BV
        conditional_BV, unconditional_BV = tf.split(logits_BV, 2)
        return unconditional_BV + self.guidance * (conditional_BV - unconditional_BV)

    def for_all(self, drawn_B: tf.Tensor) -> tf.Tensor:
        """What was drawn for each text, for all rows."""
        return drawn_B if self.guidance is None else _twice(drawn_B)


def new_request(
    gpt: GPT,
    latents_BLD: Any,
    text_BU: Any,
    text_lengths_B: Any,
    sampling: Sampling | None,
    seeds: int | Sequence[int],
    min_codes: int | Sequence[int],
    max_codes: int | Sequence[int] | None,
) -> tuple[tuple[tf.Tensor, tf.Tensor], Request]:
    """Voice latents and text as the prompt takes them, and the request; refuses what this GPT cannot read."""
    text_BU = tf.convert_to_tensor(text_BU, tf.int32)
    batch = int(text_BU.shape[0])
    limit, sampling = gpt.config.max_audio_tokens, sampling or Sampling()
    gpt.refuse_long_text(text_BU.shape[1])
    most = np.minimum(_per_row("max_codes", limit if max_codes is None else max_codes, batch), limit)
    request = Request(
        text_lengths_B=tf.convert_to_tensor(text_lengths_B, tf.int32),
        text_width=tf.constant(text_BU.shape[1]),
        uniform_NB1=random_numbers(_per_row("seeds", seeds, batch), limit + 1),
        min_codes_B1=tf.constant(_per_row("min_codes", min_codes, batch)[:, None]),
        max_codes_B=tf.constant(most),
        sampling=sampling_tensors(sampling, gpt.audio_vocab),
        guidance=None if sampling.guidance == 1.0 else tf.constant(sampling.guidance, tf.float32),
    )
    latents_BLD = tf.convert_to_tensor(latents_BLD, tf.float32)
    expected = gpt.config.conditioning_latents, gpt.config.gpt_width
    if tuple(latents_BLD.shape[1:]) != expected:
        raise ConfigError(
            f"voice latents have the shape {tuple(latents_BLD.shape)}, this GPT takes [batch, {expected[0]}, "
            f"{expected[1]}]",
            hint="make them with the conditioning encoder of the same model",
        )
    if latents_BLD.shape[0] == 1 and batch > 1:
        latents_BLD = tf.repeat(latents_BLD, batch, 0)
    if request.guidance is not None:
        latents_BLD, text_BU = _twice(latents_BLD), _twice(text_BU)
        request = request._replace(
            text_lengths_B=tf.pad(request.text_lengths_B, [[0, batch]]), max_codes_B=_twice(request.max_codes_B)
        )
    return (latents_BLD, text_BU), request


def _twice(rows: tf.Tensor) -> tf.Tensor:
    return tf.concat([rows, rows], 0)


def _per_row(name: str, value: int | Sequence[int], batch: int) -> np.ndarray:
    rows = np.asarray(value, np.int32)
    if rows.ndim == 0:
        rows = np.full(batch, rows, np.int32)
    if rows.shape != (batch,):
        raise ConfigError(
            f"{name} has the shape {rows.shape} for a batch of {batch}", hint="give one number, or one for each text"
        )
    return rows
