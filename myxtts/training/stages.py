"""Builds a stage for a model and a plan: what learns is on the model's device, what is frozen beside the producer."""

from __future__ import annotations

from typing import Any, TypeVar

import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import DEFAULT_ALIGNMENT_HEADS, GPT
from myxtts.models.layers import Module
from myxtts.models.speaker_encoder import SpeakerEncoder
from myxtts.models.xtts import XTTS
from myxtts.runtime.plan import DevicePlan
from myxtts.training.recipes import DECODER, discriminator_start_for
from myxtts.training.steps.codec import CodecStage
from myxtts.training.steps.decoder import DecoderStage, FrozenParts
from myxtts.training.steps.gpt import GPTStage
from myxtts.training.steps.mel_decoder import MelDecoderStage
from myxtts.training.steps.stage import TrainingStage

AnyModule = TypeVar("AnyModule", bound=Module)


def make_stage(
    stage: Stage,
    config: XTTSConfig,
    model: XTTS,
    plan: DevicePlan,
    *,
    steps: int,
    pretrained: frozenset[str] = frozenset(),
) -> TrainingStage:
    """Call it outside any strategy's scope: frozen copies must not be mirrored. `steps` are those of the whole stage.

    A speaker encoder among the `pretrained` parts stays as it is in stage decoder, a codec is not begun anew.
    """
    if stage == "codec":
        return CodecStage(model.dvae, pretrained="dvae" in pretrained)
    dvae = frozen_copy(model.dvae, DVAE, config, plan)
    if stage == "gpt":
        return GPTStage(
            model.gpt,
            model.conditioning,
            dvae,
            alignment_weight=config.training.alignment_weight or 0.0,
            token_corruption=config.training.token_corruption,
            alignment_heads=[pair for pair in DEFAULT_ALIGNMENT_HEADS if pair[0] < config.model.gpt_layers],
        )
    frozen = FrozenParts(
        dvae=dvae,
        conditioning=frozen_copy(model.conditioning, Conditioning, config, plan),
        gpt=frozen_copy(model.gpt, GPT, config, plan),
        speaker_encoder=frozen_copy(model.speaker_encoder, SpeakerEncoder, config, plan)
        if "speaker_encoder" in pretrained
        else None,
    )
    discriminator_start = discriminator_start_for(config, steps)
    if config.model.decoder == "mel":
        return MelDecoderStage(model.mel_decoder, frozen, discriminator_start)
    settings = DECODER[config.model.model_size]
    return DecoderStage(model.hifigan, model.speaker_encoder, frozen, settings, discriminator_start)


def frozen_copy(layer: Any, cls: type, config: XTTSConfig, plan: DevicePlan) -> Any:
    """The same weights on the producer's device; the layer itself where producer and model share the only device."""
    if len(plan.roles) == 1:
        return layer
    with tf.device(plan.producer_device):
        return with_weights_of(layer, cls(config.model))


def with_weights_of(layer: AnyModule, copy: AnyModule) -> AnyModule:
    """The copy, built under the caller's scope, with the layer's weights."""
    copy.build()
    for theirs, ours in zip(layer.weights, copy.weights, strict=True):
        ours.assign(theirs.numpy())
    return copy
