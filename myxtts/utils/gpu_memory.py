"""Memory limits, use and leaks, under the documented path."""

from myxtts.runtime.early import setup_gpu_memory_isolation
from myxtts.runtime.leaks import LeakReport, detect_memory_leak
from myxtts.runtime.memory import (
    get_optimal_memory_limits,
    log_memory_stats,
    monitor_gpu_memory,
)

__all__ = [
    "LeakReport",
    "detect_memory_leak",
    "get_optimal_memory_limits",
    "log_memory_stats",
    "monitor_gpu_memory",
    "setup_gpu_memory_isolation",
]
