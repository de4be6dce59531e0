"""Devices, logging and checkpoints, under the documented path."""

from myxtts.monitoring.log import setup_logging
from myxtts.runtime.early import early_gpu_configuration
from myxtts.runtime.strategy import ensure_gpu_placement, get_device_context, setup_gpu_strategy
from myxtts.training.checkpoint import find_latest_checkpoint

__all__ = [
    "early_gpu_configuration",
    "ensure_gpu_placement",
    "find_latest_checkpoint",
    "get_device_context",
    "setup_gpu_strategy",
    "setup_logging",
]
