"""The parts of a voice by name. Each is a layer that is constructed from the model's sizes and built without inputs."""

from __future__ import annotations

from typing import Any

from myxtts.config.model import ModelConfig
from myxtts.config.parts import refuse_unknown_parts
from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.models.hifigan import HiFiGAN
from myxtts.models.mel_decoder import MelDecoder
from myxtts.models.speaker_encoder import SpeakerEncoder

PARTS: dict[str, Any] = {
    "dvae": DVAE,
    "conditioning": Conditioning,
    "gpt": GPT,
    "mel_decoder": MelDecoder,
    "speaker_encoder": SpeakerEncoder,
    "hifigan": HiFiGAN,
}


def new_part(name: str, config: ModelConfig) -> Any:
    """The part, not built yet; a `CheckpointError` for a name that `myxtts.config.parts` does not have."""
    refuse_unknown_parts((name,))
    return PARTS[name](config)
