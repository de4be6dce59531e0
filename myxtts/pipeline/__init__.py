"""Keeps the data devices and the model devices busy at the same time.

Knows batches and devices, nothing of speech. Importing it imports no TensorFlow.
"""

from myxtts.pipeline.batches import BatchSize, BatchSource, DeviceBatch, Producer, split_rows
from myxtts.pipeline.pipeline import Pipeline, Readiness
from myxtts.pipeline.sequential import SequentialPipeline
from myxtts.pipeline.telemetry import Telemetry

__all__ = [
    "BatchSize",
    "BatchSource",
    "DeviceBatch",
    "Pipeline",
    "Producer",
    "Readiness",
    "SequentialPipeline",
    "Telemetry",
    "split_rows",
]
