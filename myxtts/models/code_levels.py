"""Codes of several levels: one number for each 46 ms, whose digits name an entry of every codebook of the DVAE.

The GPT's blocks predict the coarsest digit; each finer one is predicted from the same hidden state and from the digits
before it. To everything else a code is one number, and start and stop are two more.

Shapes: any leading axes, D width of the GPT, K entries of a codebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.layers import Embedding, Linear, Part

CODE_TYPE = tf.int64
"""Of codes: 1,024 entries have six levels in it, and three in 32 bits."""


class CodeLevels:
    """The digits of codes; of start and stop the first digit is behind the entries, and the others are 0."""

    def __init__(self, config: ModelConfig) -> None:
        self.entries = config.audio_codes
        self.count = config.code_levels
        self._first_place = self.entries ** (self.count - 1)
        self.codes = self.entries * self._first_place
        """Codes in all."""
        self.stop_digit = self.entries + 1
        """What the first digit is where the speech ends."""
        self.start = self.codes
        self.stop = self.stop_digit * self._first_place

    def digits(self, codes: Any) -> list[Any]:
        """The coarsest first; of tensors or arrays."""
        digits, rest, place = [], codes, self._first_place
        while place > 1:
            digits.append(rest // place)
            rest, place = rest % place, place // self.entries
        return [*digits, rest]

    def code(self, digits: Sequence[Any]) -> Any:
        """The number that has these digits."""
        code, *finer = (tf.cast(digit, CODE_TYPE) for digit in digits)
        for digit in finer:
            code = code * self.entries + digit
        return code


class FinerLevel(Part):
    """One level behind the first: how its digits are read, and how they are predicted."""

    def __init__(self, entries: int, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.embedding = Embedding(entries, width, name="embedding")
        self.from_hidden = Linear(width, width, name="from_hidden")
        self.from_coarser = Linear(width, width, bias=False, name="from_coarser")
        self.head = Linear(width, entries, name="head")

    def call(self, hidden_D: tf.Tensor, coarser_D: tf.Tensor) -> tf.Tensor:
        """Logits [..., K]; `coarser` is what the digits before this one are read as."""
        return self.head(tf.nn.relu(self.from_hidden(hidden_D) + self.from_coarser(coarser_D)))
