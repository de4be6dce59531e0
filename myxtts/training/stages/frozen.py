"""What every decoder's stage computes with and leaves as it is: the parts that the stages before it trained."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.models.conditioning import Conditioning
from myxtts.models.dvae import DVAE
from myxtts.models.gpt import GPT
from myxtts.models.speaker_encoder import SpeakerEncoder
from myxtts.training.stages.stage import StageContext


@dataclass(frozen=True, kw_only=True)
class FrozenParts:
    """Copies on the data device, or the parts themselves where that is the model's."""

    dvae: DVAE
    conditioning: Conditioning
    gpt: GPT
    speaker_encoder: SpeakerEncoder | None = None
    """Only where a pretrained one must stay as it is; without it, HiFi-GAN's stage trains its own."""

    @classmethod
    def of(cls, context: StageContext) -> FrozenParts:
        pretrained = "speaker_encoder" in context.pretrained
        return cls(
            dvae=context.frozen("dvae"),
            conditioning=context.frozen("conditioning"),
            gpt=context.frozen("gpt"),
            speaker_encoder=context.frozen("speaker_encoder") if pretrained else None,
        )
