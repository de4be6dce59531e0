"""Coqui's `ResNetSpeakerEncoder` as weights of `myxtts.models.speaker_encoder.SpeakerEncoder`."""

from __future__ import annotations

import numpy as np

from myxtts.models.coqui.mapping import Rule, Weights, batch_norm, conv2d, linear, pointwise, translate, with_bias
from myxtts.models.speaker_encoder import BLOCKS

PREFIX = "hifigan_decoder.speaker_encoder."
IGNORED = (r"^torch_spec\.", r"\.num_batches_tracked$")


def speaker_weights(state: Weights) -> dict[str, np.ndarray]:
    """Our weights by path, from a state dict whose names begin as in the encoder itself (no prefix)."""
    return translate(_rules(), state, ignored=IGNORED)


def _rules() -> list[Rule]:
    rules = [
        *with_bias("speaker_encoder/into", "conv1", conv2d),
        *batch_norm("speaker_encoder/into_norm", "bn1"),
        *with_bias("speaker_encoder/pooling/hidden", "attention.0", pointwise),
        *batch_norm("speaker_encoder/pooling/norm", "attention.2"),
        *with_bias("speaker_encoder/pooling/score", "attention.3", pointwise),
        *with_bias("speaker_encoder/out", "fc", linear),
    ]
    for stage, count in enumerate(BLOCKS):
        for index in range(count):
            ours, theirs = f"speaker_encoder/block_{stage + 1}_{index + 1}", f"layer{stage + 1}.{index}"
            rules += _block(ours, theirs, shortcut=stage > 0 and index == 0)
    return rules


def _block(ours: str, theirs: str, *, shortcut: bool) -> list[Rule]:
    rules = [
        Rule(f"{ours}/conv_1/kernel", (f"{theirs}.conv1.weight",), conv2d),
        *batch_norm(f"{ours}/norm_1", f"{theirs}.bn1"),
        Rule(f"{ours}/conv_2/kernel", (f"{theirs}.conv2.weight",), conv2d),
        *batch_norm(f"{ours}/norm_2", f"{theirs}.bn2"),
        *with_bias(f"{ours}/gate/squeeze", f"{theirs}.se.fc.0", linear),
        *with_bias(f"{ours}/gate/excite", f"{theirs}.se.fc.2", linear),
    ]
    if shortcut:
        rules.append(Rule(f"{ours}/shortcut/kernel", (f"{theirs}.downsample.0.weight",), conv2d))
        rules += batch_norm(f"{ours}/shortcut_norm", f"{theirs}.downsample.1")
    return rules
