"""XTTS: all parts of the model under one roof, with the decoder that its configuration asks for.

Which part learns when, the training stages decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.gpt import AlignmentHeads, GPTOutput
from myxtts.models.parts import new_part
from myxtts.models.weights import load_weights, save_weights


class XTTS(keras.layers.Layer):  # type: ignore[misc]
    """All weights exist once it is constructed, on the device under whose scope it was constructed."""

    def __init__(self, config: ModelConfig, **keras_options: Any) -> None:
        super().__init__(**{"name": "xtts", **keras_options})
        self.config = config
        self.parts = config.parts
        # Built once all are constructed: both draw from Keras's seed, and the order decides the initial weights.
        for name in self.parts:
            setattr(self, name, new_part(name, config))
        for name in self.parts:
            getattr(self, name).build()
        self.built = True

    def call(
        self,
        text_BU: tf.Tensor,
        text_lengths_B: tf.Tensor,
        codes_BT: tf.Tensor,
        code_lengths_B: tf.Tensor,
        conditioning_mel_BTM: tf.Tensor,
        conditioning_mel_lengths_B: tf.Tensor | None = None,
        *,
        seed: tf.Tensor | None = None,
        alignment_heads: AlignmentHeads = (),
    ) -> GPTOutput:
        """The teacher-forced pass that the `gpt` stage learns from."""
        latents_BLD = self.conditioning(conditioning_mel_BTM, conditioning_mel_lengths_B)
        output: GPTOutput = self.gpt(
            latents_BLD,
            text_BU,
            text_lengths_B,
            codes_BT,
            code_lengths_B,
            seed=seed,
            alignment_heads=alignment_heads,
        )
        return output

    def parameter_counts(self) -> dict[str, int]:
        """Trainable and other weights of each part."""
        return {name: getattr(self, name).count_params() for name in self.parts}

    def save(self, folder: str | Path, metadata: dict[str, Any] | None = None) -> Path:
        return save_weights(folder, self.weights, metadata)

    def load(self, folder: str | Path) -> dict[str, Any]:
        """Fill every weight from a folder that `save` wrote; returns its metadata."""
        return load_weights(folder, self.weights)
