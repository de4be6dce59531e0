"""How long a stage takes on a CPU, from the settings and the speed at which it multiplies; TensorFlow is not needed.

The operations that a parameter takes for each second of speech were measured on two CPUs (half an hour of one voice,
size tiny and the built-in voice's), so that another size or machine may be off by a factor of two. Nothing was measured
on a GPU, and no recipe with HiFi-GAN on a CPU: those have no estimate.
"""

from __future__ import annotations

import math
import time

import numpy as np

from myxtts.config.config import XTTSConfig
from myxtts.models.parameter_counts import count_of, counted
from myxtts.training.memory_estimate import FRAMES_PER_SECOND, SEGMENT_FRAMES
from myxtts.training.recipes import recipe_for, with_batches_of
from myxtts.training.stages.spec import StageSpec

_OPERATIONS = {"dvae": 255.0, "gpt": 205.0, "mel_decoder": 385.0}
"""Of training, forth and back, for each parameter and second of speech, by the part that a stage is for."""
_SIDE, _MATRICES = 64, 256
_MEASURED_S = 0.3


def measured_speed() -> float:
    """Operations of a CPU-second, by multiplying matrices for a third of one; other load changes little.

    They are as small as one thread multiplies alone: threads that wait for each other on a busy machine spin, which
    counts as CPU time.
    """
    matrices = np.ones((_MATRICES, _SIDE, _SIDE), np.float32)
    matrices @ matrices  # loads the library
    began, rounds = time.process_time(), 0
    while (spent := time.process_time() - began) < _MEASURED_S:
        matrices @ matrices
        rounds += 1
    return 2 * _SIDE**3 * _MATRICES * rounds / spent


def batches_of(config: XTTSConfig, spec: StageSpec, clips: int, seconds: float) -> int:
    """Batches of one pass over so many clips of so many seconds together."""
    return max(1, math.ceil(clips / _clips_of_a_batch(config, spec, seconds / max(1, clips))))


def cpu_seconds(
    config: XTTSConfig, spec: StageSpec, steps: int, clip_seconds: float, operations_per_s: float
) -> float | None:
    """CPU-seconds of so many steps over clips of this mean length; None where nothing was measured."""
    per_second = _OPERATIONS.get(spec.purpose)
    if per_second is None or counted(spec.learns) != spec.learns:
        return None
    parameters = sum(count_of(part, config.model).trained for part in spec.learns)
    heard_s = min(clip_seconds, SEGMENT_FRAMES / FRAMES_PER_SECOND) if spec.purpose == "dvae" else clip_seconds
    speech_s = _clips_of_a_batch(config, spec, clip_seconds) * heard_s * config.training.grad_accum
    return steps * speech_s * parameters * per_second / operations_per_s


def _clips_of_a_batch(config: XTTSConfig, spec: StageSpec, clip_seconds: float) -> float:
    limits = with_batches_of(recipe_for(config, spec), config.data)
    by_seconds = math.inf if limits.batch_seconds is None else limits.batch_seconds / max(0.1, clip_seconds)
    return max(1.0, min(by_seconds, math.inf if limits.batch_size is None else limits.batch_size))
