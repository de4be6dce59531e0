"""A leak, told from warm-up, plateau and saw-tooth by the lower envelope of memory over steps.

Memory that is freed again always comes back to the same floor; a leak lifts the floor. So the samples after warm-up
are cut into blocks, each block gives its minimum, and the leak's rate is the median slope between those minima
(Theil and Sen). The confidence is that of Kendall's trend test on the same minima: one step of growth is not a trend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

MIN_SAMPLES = 120
"""Of one sample a step: first buffers are all allocated, and a saw-tooth has shown a few teeth."""
BLOCKS = 10
WARMUP_SHARE = 0.25
MIN_RATE_MB_PER_1000_STEPS = 20.0
"""Slower growth than this needs 50,000 steps to cost a gigabyte; allocators drift by less."""
MIN_CONFIDENCE = 0.99
MIN_RISING_SHARE = 0.8
"""A leak lifts nearly every block above the one before; a few lasting allocations lift only some."""


@dataclass(frozen=True)
class LeakReport:
    """Whether memory leaks, how fast, and how sure that is."""

    leaking: bool
    rate_mb_per_1000_steps: float
    confidence: float

    def describe(self) -> str:
        if not self.leaking:
            return "no leak"
        return f"memory leak: {self.rate_mb_per_1000_steps:.0f} MB per 1,000 steps (confidence {self.confidence:.0%})"


def detect_memory_leak(samples: Sequence[tuple[int, float]]) -> LeakReport:
    """Judge `(step, MB)` samples in the order of their steps. Too few samples are no leak, with confidence 0."""
    settled = samples[math.ceil(len(samples) * WARMUP_SHARE) :]
    if len(settled) < MIN_SAMPLES:
        return LeakReport(leaking=False, rate_mb_per_1000_steps=0.0, confidence=0.0)
    floors = _block_minima(settled)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(floors, 2)]
    rate = median(slopes) * 1000.0
    confidence = _kendall_confidence([memory for _, memory in floors])
    rising = sum(b[1] > a[1] for a, b in pairwise(floors)) / (len(floors) - 1)
    leaking = rate >= MIN_RATE_MB_PER_1000_STEPS and confidence >= MIN_CONFIDENCE and rising >= MIN_RISING_SHARE
    return LeakReport(leaking=leaking, rate_mb_per_1000_steps=rate, confidence=confidence)


def _block_minima(samples: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """The middle step and the least memory of each of `BLOCKS` equal runs of samples."""
    edges = [round(i * len(samples) / BLOCKS) for i in range(BLOCKS + 1)]
    blocks = [samples[a:b] for a, b in pairwise(edges)]
    return [((block[0][0] + block[-1][0]) / 2, min(memory for _, memory in block)) for block in blocks]


def _kendall_confidence(values: Sequence[float]) -> float:
    """One-sided confidence that the values rise: normal approximation of Kendall's S."""
    n = len(values)
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return 0.5 * (1 + math.erf((score - math.copysign(1, score)) / deviation / math.sqrt(2))) if score else 0.5
