"""What is counted from sizes alone is what the built parts have, and the estimate's constants are theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from myxtts.audio import mel
from myxtts.config.model import ModelConfig
from myxtts.models.discriminators import Discriminators
from myxtts.models.mel_discriminator import MelDiscriminator
from myxtts.models.parameter_counts import Count, count_of, mel_discriminator, wave_discriminators
from myxtts.models.parts import PARTS
from myxtts.training import memory_estimate
from myxtts.training.stages import codec

ODD = {"gpt_layers": 2, "gpt_width": 96, "gpt_heads": 3, "text_vocab": 77, "dvae_width": 48, "decoder_width": 64}
MANY_VOICES = {**ODD, "voice_width": 10, "mel_frame_blocks": 2, "pitch_predictor": True}


def built(layer: Any) -> Count:
    layer.build()
    return Count(
        *(sum(int(np.prod(v.shape)) for v in own) for own in (layer.trainable_weights, layer.non_trainable_weights))
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sizes", [{}, ODD, MANY_VOICES], ids=["tiny", "odd", "many voices"])
def test_a_part_has_as_many_numbers_as_its_sizes_say(part: str, sizes: dict[str, Any]) -> None:
    model = ModelConfig(model_size="tiny", **sizes)

    assert built(PARTS[part](model)) == count_of(part, model)


@pytest.mark.parametrize("shrink", [1, 8])
def test_discriminators_have_as_many_numbers_as_is_counted(shrink: int) -> None:
    assert built(Discriminators(shrink)) == wave_discriminators(shrink)
    assert built(MelDiscriminator()) == mel_discriminator()


def test_the_constants_of_the_memory_estimate_are_those_of_the_stages() -> None:
    assert memory_estimate.SEGMENT_FRAMES == codec.SEGMENT_FRAMES
    assert memory_estimate.FRAMES_PER_SECOND == mel.SAMPLE_RATE / mel.HOP
    assert memory_estimate.MELS == mel.N_MELS
