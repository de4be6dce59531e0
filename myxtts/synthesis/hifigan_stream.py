"""HiFi-GAN in parts, whatever runtime computes it: latents as they come, at the frame rate of 24 kHz, to samples.

Shapes: N latents, T frames, D width of a latent, V speaker vector, S samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.models.hifigan_sizes import FRAMES_PER_LATENT, HOP_SAMPLES, RATE_RATIO, REACH_FRAMES, frames_of_latents

Floats = NDArray[np.float32]
Run = Callable[[Floats, Floats], Floats]
"""Frames [1, T, D] and speaker vector [1, V] to samples [S]."""


class StreamingHiFiGAN:
    """Decodes each part of the latents together with its receptive field: the parts make up the whole."""

    def __init__(self, run: Run, speaker_V: Any, *, most_frames: int) -> None:
        """No part has more than `most_frames`, beside its receptive field: memory grows with the length of a part."""
        self._run, self._most_frames = run, most_frames
        self._speaker_1V = np.asarray(speaker_V, np.float32)[None]
        self._latents: list[Floats] = []
        self._decoded_frames = 0

    def add(self, latents_ND: Floats, *, last: bool) -> Floats:
        """The samples that no later latent can change; with the last latents, all that are left."""
        self._latents.append(latents_ND)
        known_ND = np.concatenate(self._latents)
        frames_TD = to_output_rate(known_ND)
        # Between the last two latents, and behind them, frames wait for the next latent.
        known = len(frames_TD) if last else frames_of_latents(max(0, len(known_ND) - 1))
        end = known if last else known - REACH_FRAMES
        parts = [np.zeros(0, np.float32)]
        while self._decoded_frames < end:
            left = end - self._decoded_frames
            # About as long each: a short one at the end would be mostly receptive field.
            part_end = self._decoded_frames + -(-left // -(-left // self._most_frames))
            begin, seen = max(0, self._decoded_frames - REACH_FRAMES), min(known, part_end + REACH_FRAMES)
            wave_S = self._run(np.ascontiguousarray(frames_TD[None, begin:seen]), self._speaker_1V)
            parts.append(wave_S[(self._decoded_frames - begin) * HOP_SAMPLES : (part_end - begin) * HOP_SAMPLES])
            self._decoded_frames = part_end
        return np.concatenate(parts)


def to_output_rate(latents_ND: Floats) -> Floats:
    """Latents at the frame rate of 24 kHz: four frames each, then 24000 / 22050 times as many, both linear."""
    frames_TD = _stretched(latents_ND, len(latents_ND) * FRAMES_PER_LATENT, float(FRAMES_PER_LATENT))
    return _stretched(frames_TD, frames_of_latents(len(latents_ND)), RATE_RATIO)


def _stretched(x_TD: Floats, made: int, ratio: float) -> Floats:
    """Linear interpolation between sample centres, held at the ends."""
    where_T = (np.arange(made, dtype=np.float32) + np.float32(0.5)) / np.float32(ratio) - np.float32(0.5)
    where_T = np.clip(where_T, np.float32(0), np.float32(len(x_TD) - 1))
    low_T = np.floor(where_T).astype(np.int64)
    share_T1 = (where_T - low_T).astype(np.float32)[:, None]
    low_TD, high_TD = x_TD[low_T], x_TD[np.minimum(low_T + 1, len(x_TD) - 1)]
    return np.asarray(low_TD + (high_TD - low_TD) * share_T1, np.float32)
