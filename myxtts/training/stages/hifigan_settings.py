"""What differs between the sizes in HiFi-GAN's stage. Pure: memory is estimated before TensorFlow is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HiFiGANSettings:
    """What differs between the sizes beside the recipe."""

    segment_latents: int = 32
    """Latents of a segment, 46 ms each."""
    discriminator_start: int = 5000
    """Steps before the discriminators join: they cost more than half of a step, and teach little until speech is
    roughly there."""
    discriminator_shrink: int = 1
    """Divides the widths of the discriminators."""
    speaker_seconds: float = 3.0
    """Longest piece of the reference that the speaker encoder reads in a step."""


SETTINGS = {
    "tiny": HiFiGANSettings(segment_latents=16, discriminator_start=3000, discriminator_shrink=8, speaker_seconds=1.0),
    "small": HiFiGANSettings(),
    "normal": HiFiGANSettings(),
    "big": HiFiGANSettings(),
}
