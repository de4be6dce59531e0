"""Initial weights for training from scratch, where GPT-2's small normal weights learn too slowly.

Known to work at tiny sizes: linear layers with a standard deviation of 1 / sqrt(fan in), half of that on the outputs
that are added to the residual stream, embeddings 0.2, and the audio embedding and head from the DVAE's codebook, so
that codes that sound alike start alike.
"""

from __future__ import annotations

import zlib

import numpy as np

from myxtts.errors import ConfigError
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


def audio_from_codebook(gpt: GPT, codebook_VC: np.ndarray, *, seed: int) -> None:
    """Audio embedding and audio head from the codebook, projected to the GPT's width by one random matrix."""
    codes, width = gpt.config.audio_codes, gpt.config.gpt_width
    codebook_VC = np.asarray(codebook_VC, np.float64)
    if codebook_VC.ndim != 2 or codebook_VC.shape[0] != codes:
        raise ConfigError(
            f"the codebook has the shape {codebook_VC.shape}, the GPT speaks {codes} codes",
            hint="give --audio-codes the size of the DVAE that was trained",
        )
    random = np.random.default_rng([seed, zlib.crc32(b"codebook")])
    centred_VC = codebook_VC - codebook_VC.mean(0)
    projected_VD = centred_VC @ random.normal(size=(codebook_VC.shape[1], width))
    unit_VD = projected_VD / max(float(projected_VD.std()), 1e-12)
    table = gpt.audio_embedding.table.value.numpy().copy()
    table[:codes] = EMBEDDING_STD * unit_VD
    gpt.audio_embedding.table.assign(table)
    kernel = gpt.audio_head.kernel.value.numpy().copy()
    kernel[:, :codes] = unit_VD.T * width**-0.5
    gpt.audio_head.kernel.assign(kernel)
