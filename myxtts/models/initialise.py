"""Initial weights for training from scratch, where GPT-2's small normal weights learn too slowly.

Known to work at tiny sizes: linear layers with a standard deviation of 1 / sqrt(fan in), half of that on the outputs
that are added to the residual stream, embeddings 0.2, and the audio embedding and head from the DVAE's codebook, so
that codes that sound alike start alike.
"""

from __future__ import annotations

import zlib

import numpy as np

from myxtts.errors import ConfigError
from myxtts.models.codebook import Codebook
from myxtts.models.gpt import GPT

EMBEDDING_STD = 0.2
RESIDUAL_OUTPUTS = ("attention_out", "down")


def initialise_from_scratch(gpt: GPT, *, seed: int, position_std: float = EMBEDDING_STD) -> None:
    """Draw every matrix of the GPT anew; norms and biases stay as they were built (ones and zeros)."""
    for variable in gpt.trainable_weights:
        layer, kind = variable.path.split("/")[-2:]
        random = np.random.default_rng([seed, zlib.crc32(variable.path.encode())])
        if kind == "table":
            std = position_std if layer.endswith("_position") else EMBEDDING_STD
        elif kind == "kernel":
            std = variable.shape[0] ** -0.5 * (0.5 if layer in RESIDUAL_OUTPUTS else 1.0)
        else:
            continue
        variable.assign(random.normal(0.0, std, variable.shape).astype(np.float32))


def audio_from_codebook(gpt: GPT, codebook: Codebook, *, seed: int) -> None:
    """Audio embedding and head from the codebook, projected to the GPT's width by a random matrix: what is read of a
    code is then what its vector sounds like."""
    width, codes = gpt.config.gpt_width, codebook.codes
    if codes != gpt.config.audio_codes:
        raise ConfigError(
            f"the DVAE has {codes} codes, the GPT speaks {gpt.config.audio_codes}",
            hint="give audio_codes the value that the DVAE was trained with",
        )
    vectors_KC = codebook.vectors_KC.numpy().astype(np.float64)
    random = np.random.default_rng([seed, zlib.crc32(b"codebook")])
    projected_KD = (vectors_KC - vectors_KC.mean(0)) @ random.normal(size=(vectors_KC.shape[1], width))
    projected_KD /= max(float(projected_KD.std()), 1e-12)
    table = gpt.audio_embedding.table.value.numpy().copy()
    table[:codes] = EMBEDDING_STD * projected_KD
    gpt.audio_embedding.table.assign(table)
    kernel = gpt.audio_head.kernel.value.numpy().copy()
    kernel[:, :codes] = projected_KD.T * width**-0.5
    gpt.audio_head.kernel.assign(kernel)
