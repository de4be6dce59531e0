"""HiFi-GAN's rates and reach, for its layers and for what runs around them. No TensorFlow."""

from __future__ import annotations

import math

INPUT_SAMPLE_RATE = 22050
OUTPUT_SAMPLE_RATE = 24000
FRAMES_PER_LATENT = 4
UPSAMPLING = (8, 8, 2, 2)
HOP_SAMPLES = math.prod(UPSAMPLING)
RESIDUAL_KERNELS = (3, 7, 11)
DILATIONS = (1, 3, 5)
RATE_RATIO = OUTPUT_SAMPLE_RATE / INPUT_SAMPLE_RATE


def _reach_frames() -> int:
    """How far the layers see to each side: the widest kernels of a stage at its rate, and its upsampling's one step."""
    block_steps = sum((RESIDUAL_KERNELS[-1] - 1) // 2 * (dilation + 1) for dilation in DILATIONS)
    reach, steps_a_frame = 3.0, 1
    for rate in UPSAMPLING:
        reach += 1 / steps_a_frame
        steps_a_frame *= rate
        reach += block_steps / steps_a_frame
    return math.ceil(reach + 3 / steps_a_frame)


REACH_FRAMES = _reach_frames()


def frames_of_latents(latents: int) -> int:
    """24 kHz frames of so many latents."""
    return math.floor(latents * FRAMES_PER_LATENT * RATE_RATIO)
