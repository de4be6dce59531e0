"""Builds a stage for a model and a plan: what learns is on the model's device, what is frozen beside the producer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.config.training import Stage
from myxtts.models.dvae import DVAE
from myxtts.models.xtts import XTTS
from myxtts.runtime.plan import DevicePlan
from myxtts.training.steps.codec import CodecStage
from myxtts.training.steps.gpt import GPTStage
from myxtts.training.steps.stage import TrainingStage


def make_stage(stage: Stage, config: XTTSConfig, model: XTTS, plan: DevicePlan) -> TrainingStage:
    """Call it outside any strategy's scope: frozen copies must not be mirrored."""
    if stage == "codec":
        return CodecStage(model.dvae)
    return GPTStage(model.gpt, model.conditioning, frozen_copy(model.dvae, DVAE, config, plan))


def frozen_copy(layer: Any, cls: type, config: XTTSConfig, plan: DevicePlan) -> Any:
    """The same weights on the producer's device; the layer itself where producer and model share the only device."""
    if len(plan.roles) == 1:
        return layer
    with tf.device(plan.producer_device):
        copy = cls(config.model)
        copy.build()
        for theirs, ours in zip(layer.weights, copy.weights, strict=True):
            ours.assign(theirs.numpy())
    return copy
