"""How long a stage takes on a CPU, from the settings and the speed at which it multiplies; TensorFlow is not needed.

The operations that a parameter takes for each second of speech were measured on one kind of CPU (half an hour of one
voice, size tiny, docs/results.md), so that another size or machine may be off by a factor of two. Nothing was measured
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

_OPERATIONS = {"dvae": 510.0, "gpt": 410.0, "mel_decoder": 770.0}
"""Of training, forth and back, for each parameter and second of speech, by the part that a stage is for."""
_SIDE = 512
_MEASURED_S = 0.3


def measured_speed() -> float:
    """Operations of a CPU-second, by multiplying matrices for a third of one.

    By the fastest tenth of the products: where other processes hold a core, the library's threads spin as they wait for
    each other, which counts as CPU time.
    """
    matrix = np.ones((_SIDE, _SIDE), np.float32)
    matrix @ matrix  # starts the library's threads
    took_s: list[float] = []
    while sum(took_s) < _MEASURED_S:
        began = time.process_time()
        matrix @ matrix
        took_s.append(time.process_time() - began)
    return 2 * _SIDE**3 / sorted(took_s)[len(took_s) // 10]


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
