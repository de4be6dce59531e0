"""Coqui's `DiscreteVAE` (dvae.pth) and mel statistics (mel_stats.pth) as weights of `myxtts.models.dvae.DVAE`."""

from __future__ import annotations

import numpy as np

from myxtts.audio.mel import N_MELS
from myxtts.models.coqui.mapping import Rule, Weights, conv1d, linear, same, translate, with_bias
from myxtts.models.dvae import RESIDUAL_BLOCKS

IGNORED = (r"^discrete_loss\.",)


def dvae_weights(state: Weights, mel_stats_M: np.ndarray) -> dict[str, np.ndarray]:
    """Our weights by path. Coqui divides each mel channel by a constant and shifts none."""
    made = translate(_rules(), state, ignored=IGNORED)
    made["dvae/mel_shift"] = np.zeros(N_MELS, np.float32)
    made["dvae/mel_scale"] = np.asarray(mel_stats_M, np.float32).reshape(N_MELS)
    made["dvae/codebook/idle"] = np.zeros_like(made["dvae/codebook/counts"])
    made["dvae/codebook/updates"] = np.zeros(1, np.float32)
    return made


def _rules() -> list[Rule]:
    rules = [
        *with_bias("dvae/encoder/down_1", "encoder.0.0", conv1d),
        *with_bias("dvae/encoder/down_2", "encoder.1.0", conv1d),
        *with_bias("dvae/encoder/out", f"encoder.{2 + RESIDUAL_BLOCKS}", conv1d),
        *with_bias("dvae/decoder/into", "decoder.0", conv1d),
        *with_bias("dvae/decoder/up_1", f"decoder.{1 + RESIDUAL_BLOCKS}.0.conv", conv1d),
        *with_bias("dvae/decoder/up_2", f"decoder.{2 + RESIDUAL_BLOCKS}.0.conv", conv1d),
        *with_bias("dvae/decoder/out", f"decoder.{3 + RESIDUAL_BLOCKS}", conv1d),
        Rule("dvae/codebook/vectors", ("codebook.embed",), linear),
        Rule("dvae/codebook/sums", ("codebook.embed_avg",), linear),
        Rule("dvae/codebook/counts", ("codebook.cluster_size",), same),
    ]
    for side, first in (("encoder", 2), ("decoder", 1)):
        for block in range(RESIDUAL_BLOCKS):
            for conv, position in ((1, 0), (2, 2), (3, 4)):
                theirs = f"{side}.{first + block}.net.{position}"
                rules += with_bias(f"dvae/{side}/block_{block + 1}/conv_{conv}", theirs, conv1d)
    return rules
