"""Sizes and inputs of the golden cases, the same for `tools/make_golden.py` and for the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.golden.formula import noise


@dataclass(frozen=True)
class DVAECase:
    width: int = 48
    code_width: int = 16
    codes: int = 64
    frames: int = 61

    def mel(self) -> np.ndarray:
        return noise("dvae.mel", (2, self.frames, 80), 3.0)

    def mel_stats(self) -> np.ndarray:
        return 1.0 + np.abs(noise("dvae.mel_stats", (80,)))


@dataclass(frozen=True)
class HiFiGANCase:
    latent_width: int = 256
    count: int = 9

    def latents(self) -> np.ndarray:
        return noise("hifigan.latents", (1, self.count, self.latent_width))

    def speaker(self) -> np.ndarray:
        return noise("hifigan.speaker", (1, 512), 0.05)


@dataclass(frozen=True)
class SpeakerCase:
    samples: int = 20011

    def wave(self) -> np.ndarray:
        return noise("speaker.wave", (2, self.samples), 0.1)


DVAE = DVAECase()
HIFIGAN = HiFiGANCase()
SPEAKER = SpeakerCase()
