"""What is counted from sizes alone is what the built parts have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from myxtts.config.model import ModelConfig
from myxtts.models.discriminators import Discriminators
from myxtts.models.mel_discriminator import MelDiscriminator
from myxtts.models.parameter_counts import Count, count_of, mel_discriminator, wave_discriminators
from myxtts.models.parts import PARTS

ODD = {"gpt_layers": 2, "gpt_width": 96, "gpt_heads": 3, "text_vocab": 77, "dvae_width": 48, "decoder_width": 64}


def built(layer: Any) -> Count:
    layer.build()
    return Count(
        *(sum(int(np.prod(v.shape)) for v in own) for own in (layer.trainable_weights, layer.non_trainable_weights))
    )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sizes", [{"model_size": "tiny"}, {"model_size": "tiny", **ODD}], ids=["tiny", "odd"])
def test_a_part_has_as_many_numbers_as_its_sizes_say(part: str, sizes: dict[str, Any]) -> None:
    model = ModelConfig(**sizes)

    assert built(PARTS[part](model)) == count_of(part, model)


@pytest.mark.parametrize("shrink", [1, 8])
def test_discriminators_have_as_many_numbers_as_is_counted(shrink: int) -> None:
    assert built(Discriminators(shrink)) == wave_discriminators(shrink)
    assert built(MelDiscriminator()) == mel_discriminator()
