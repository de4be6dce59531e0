"""A leak, distinguished from warm-up, plateau, stairs and saw-tooth by the lower envelope of memory over steps.

Memory that is freed again always comes back to the same floor; a leak lifts the floor, and goes on lifting it. So the
samples after warm-up are cut into blocks, each block gives its minimum, and the leak's rate is the median slope between
those minima (Theil and Sen). Nearly every block must rise by about that rate: first buffers fill ever more slowly, and
a validation or a new shape that allocates for good is one stair. The confidence is that of Kendall's trend test.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import median

MIN_SAMPLES = 120
"""Of one sample a step: first buffers are all allocated, and a saw-tooth has shown a few teeth."""
BLOCKS = 10
WARMUP_SHARE = 0.25
MIN_RATE_MB_PER_1000_STEPS = 20.0
"""Slower growth than this needs 50,000 steps to cost a gigabyte; allocators drift by less."""
MIN_RISE_MB = 32.0
"""Over all blocks. Healthy runs were seen to gather half of this between two stairs."""
MIN_CONFIDENCE = 0.99
MIN_RISING_SHARE = 0.75
"""A leak lifts nearly every block above the one before; a few lasting allocations lift only some."""
STEADY_SHARE = 0.5
"""A block rises with the leak when it rises by this share of the leak's rate at least; so must the later half."""


@dataclass(frozen=True)
class LeakReport:
    """Whether memory leaks, how fast, and how sure that is."""

    leaking: bool
    rate_mb_per_1000_steps: float
    confidence: float
    memory: str | None = None
    """Whose memory it is, where several are watched."""

    def describe(self) -> str:
        if not self.leaking:
            return "no leak"
        where = f" in {self.memory}" if self.memory is not None else ""
        rate = f"{self.rate_mb_per_1000_steps:.0f} MB per 1,000 steps"
        return f"memory leak: {rate}{where} (confidence {self.confidence:.0%})"


def detect_memory_leak(samples: Sequence[tuple[int, float]]) -> LeakReport:
    """Look at `(step, MB)` samples in the order of their steps. Too few samples are no leak, with confidence 0."""
    after_warmup = samples[math.ceil(len(samples) * WARMUP_SHARE) :]
    if len(after_warmup) < MIN_SAMPLES:
        return LeakReport(leaking=False, rate_mb_per_1000_steps=0.0, confidence=0.0)
    floors = _block_minima(after_warmup)
    rate = _median_slope(floors)
    confidence = _kendall_confidence([memory for _, memory in floors])
    leaking = rate >= MIN_RATE_MB_PER_1000_STEPS / 1000 and confidence >= MIN_CONFIDENCE and _steady(floors, rate)
    return LeakReport(leaking=leaking, rate_mb_per_1000_steps=1000 * rate, confidence=confidence)


class LeakWatch:
    """The last samples of several memories, each by its name, and which of them leaks."""

    def __init__(self, window: int = 2000) -> None:
        self._window = window
        self._samples: dict[str, deque[tuple[int, float]]] = {}

    def add(self, step: int, memory_mb: Mapping[str, float]) -> None:
        for name, value_mb in memory_mb.items():
            self._samples.setdefault(name, deque(maxlen=self._window)).append((step, value_mb))

    def reports(self) -> list[LeakReport]:
        """One for each memory, the one that leaks fastest first."""
        found = [replace(detect_memory_leak(list(samples)), memory=name) for name, samples in self._samples.items()]
        return sorted(found, key=lambda report: (report.leaking, report.rate_mb_per_1000_steps), reverse=True)


def _steady(floors: Sequence[tuple[float, float]], rate: float) -> bool:
    """Whether memory rises at about the same rate from the first block to the last, and by enough to matter."""
    enough = STEADY_SHARE * rate
    rising = [_slope(a, b) >= enough for a, b in pairwise(floors)]
    later = _median_slope(floors[len(floors) // 2 :])
    rise_mb = rate * (floors[-1][0] - floors[0][0])
    return rise_mb >= MIN_RISE_MB and later >= enough and sum(rising) >= MIN_RISING_SHARE * len(rising)


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def _median_slope(points: Sequence[tuple[float, float]]) -> float:
    return median(_slope(a, b) for a, b in combinations(points, 2))


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
