"""The mel that conditioning reads of a reference clip: one definition for training and for speaking."""

from __future__ import annotations

from myxtts.audio.mel import CONDITIONING_MEL, MelSpectrogram
from myxtts.config.model import ModelConfig
from myxtts.errors import CheckpointError
from myxtts.models.dvae import DVAE


def reference_mel(config: ModelConfig, dvae: DVAE | None) -> MelSpectrogram:
    """Divided by the DVAE's scales where the model asks for that; they are read now, so load the weights before."""
    if not config.normed_conditioning:
        return MelSpectrogram(CONDITIONING_MEL)
    if dvae is None:
        raise CheckpointError(
            "the voice's conditioning reads mels divided by its DVAE's scales, and it has no dvae",
            hint="import or export the voice again, with all its parts",
        )
    return MelSpectrogram(CONDITIONING_MEL, channel_norms=dvae.mel_scale_M.numpy())
