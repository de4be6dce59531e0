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
    """Audio embeddings and heads from the codebooks, projected to the GPT's width by one random matrix: what is read of
    a code is then what its vector sounds like."""
    width = gpt.config.gpt_width
    levels = codebook.levels
    found = (levels[0].codes, len(levels))
    if found != (gpt.config.audio_codes, gpt.config.code_levels):
        raise ConfigError(
            f"the DVAE has {found[1]} codebooks of {found[0]} entries, the GPT speaks {gpt.config.code_levels} of "
            f"{gpt.config.audio_codes}",
            hint="give --audio-codes and --code-levels what the DVAE was trained with",
        )
    vectors = [level.vectors_KC.numpy().astype(np.float64) for level in levels]
    random = np.random.default_rng([seed, zlib.crc32(b"codebook")])
    matrix_CD = random.normal(size=(vectors[0].shape[1], width))
    projected = [(vectors_KC - vectors_KC.mean(0)) @ matrix_CD for vectors_KC in vectors]
    stds = [max(float(projected_KD.std()), 1e-12) for projected_KD in projected]
    parts = [(gpt.audio_embedding, gpt.audio_head), *((level.embedding, level.head) for level in gpt.finer)]
    for (embedding, head), projected_KD, std in zip(parts, projected, stds, strict=True):
        entries = len(projected_KD)
        table = embedding.table.value.numpy().copy()
        table[:entries] = EMBEDDING_STD * projected_KD / stds[0]
        embedding.table.assign(table)
        kernel = head.kernel.value.numpy().copy()
        kernel[:, :entries] = (projected_KD / std).T * width**-0.5
        head.kernel.assign(kernel)
