"""Counters of the server in Prometheus' text format. Runs on the event loop and needs no lock."""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class Histogram:
    """Counts of values up to each bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._sum += value
        self._counts[sum(value > bound for bound in BUCKETS_S)] += 1

    def lines(self, name: str, about: str) -> list[str]:
        lines, total = [f"# HELP {name} {about}", f"# TYPE {name} histogram"], 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._sum:.6f}", f"{name}_count {total}"]


class Metrics:
    """What happened since the server started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route, as it was declared, and status: nothing that a client sends is a label."""
        self.first_audio = Histogram()
        self.audio_s = 0.0
        self.hung_up = 0
        self._began = time.monotonic()

    def text(self, *, active: int, waiting: int) -> str:
        lines = ["# HELP myxtts_requests_total Answered requests.", "# TYPE myxtts_requests_total counter"]
        lines += [
            f'myxtts_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        lines += self.first_audio.lines("myxtts_first_audio_seconds", "From a speech request to its first audio.")
        for name, kind, value, about in (
            ("myxtts_audio_seconds_total", "counter", self.audio_s, "Seconds of speech made."),
            ("myxtts_hung_up_total", "counter", self.hung_up, "Clients that left before their answer was complete."),
            ("myxtts_speaking", "gauge", active, "Requests that are spoken now."),
            ("myxtts_waiting", "gauge", waiting, "Requests that wait for a place."),
            ("myxtts_uptime_seconds", "gauge", time.monotonic() - self._began, "Since the server started."),
            ("process_resident_memory_bytes", "gauge", resident_bytes(), "Memory of this process."),
            ("process_cpu_seconds_total", "counter", time.process_time(), "CPU time of this process."),
        ):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {value:.10g}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
