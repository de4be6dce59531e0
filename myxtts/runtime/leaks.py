"""A leak, distinguished from warm-up, plateau, stairs and saw-tooth by the lower envelope of memory over steps.

Memory that is freed again always comes back to the same floor; a leak lifts the floor, and goes on lifting it. So each
of a few trailing windows is cut into blocks, each block gives its minimum, and the leak's rate is the median slope
between those minima (Theil and Sen). A window leaks where its floor has risen by `MIN_RISE_MB`, above all that was in
use before it, evenly: nearly every block by about that rate, the later half no slower, none falling back. First
buffers fill ever more slowly, and a validation or a new shape that allocates for good is one stair. The confidence is
that of Kendall's trend test.

The rise that is asked for is the same for all windows, so a leak of 1 MB a step is found within 200 steps and one of
0.05 MB a step within 3,000; slower ones than 0.036 MB, a gigabyte in 28,000 steps, are not. A healthy run that is told
from a leak: up to 300 MB of warm-up however slow, teeth of up to 150 steps however high.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import median

MIN_SAMPLES = 150
"""Of a window, one sample a step: a saw-tooth has shown a few teeth."""
KEPT_SAMPLES = 4096
WINDOW_SHARES = (0.75, 0.5, 0.25, 0.125)
"""Of the samples kept. The largest leaves out the warm-up of a young run, the smaller ones find a leak that began."""
BLOCKS = 10
MIN_RISE_MB = 100.0
"""Over the blocks of a window. Stage gpt of a demo was seen to gather 41 MB between steps 100 and 400 and be flat."""
MIN_CONFIDENCE = 0.99
MIN_RISING_SHARE = 0.75
"""A leak lifts nearly every block above the one before; a few lasting allocations lift only some."""
STEADY_SHARE = 0.5
"""A block rises with the leak when it rises by this share of the leak's rate at least."""
MAX_FALL_SHARE = 0.25
"""Of the whole rise: a block that falls by more has given back what it was suspected to keep."""


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
    lengths = {math.floor(len(samples) * share) for share in WINDOW_SHARES}
    reports = [_of_window(samples, length) for length in sorted(lengths, reverse=True) if length >= MIN_SAMPLES]
    if not reports:
        return LeakReport(leaking=False, rate_mb_per_1000_steps=0.0, confidence=0.0)
    return next((report for report in reports if report.leaking), reports[0])


def _of_window(samples: Sequence[tuple[int, float]], length: int) -> LeakReport:
    """The verdict over the last `length` samples; those before them say how much was in use already."""
    floors = _block_minima(samples[-length:])
    # What warms up slows down: if the later half rises more slowly than the whole, its rate is the leak's.
    rate = min(_median_slope(floors), _median_slope(floors[BLOCKS // 2 :]))
    confidence = _kendall_confidence([memory for _, memory in floors])
    used_before = max((memory for _, memory in samples[:-length]), default=0.0)
    new_mb = floors[-1][1] - max(used_before, floors[0][1])
    leaking = confidence >= MIN_CONFIDENCE and new_mb >= MIN_RISE_MB / 2 and _steady(floors, rate)
    return LeakReport(leaking=leaking, rate_mb_per_1000_steps=1000 * rate, confidence=confidence)


class LeakWatch:
    """The last samples of several memories, each by its name, and which of them leaks."""

    def __init__(self, window: int = KEPT_SAMPLES) -> None:
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
    rise_mb = rate * (floors[-1][0] - floors[0][0])
    if rise_mb < MIN_RISE_MB:
        return False
    rising = [_slope(a, b) >= STEADY_SHARE * rate for a, b in pairwise(floors)]
    fall_mb = max(a - b for (_, a), (_, b) in pairwise(floors))
    return sum(rising) >= MIN_RISING_SHARE * len(rising) and fall_mb <= MAX_FALL_SHARE * rise_mb


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
