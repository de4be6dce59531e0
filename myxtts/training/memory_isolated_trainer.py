"""The memory-isolated dual trainer: hard limits for each role's GPU, the three phases as methods, memory watched."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from myxtts.config.config import XTTSConfig
from myxtts.models.xtts import XTTS
from myxtts.pipeline import DeviceBatch
from myxtts.pipeline.devices import TensorFlowDevices
from myxtts.runtime.leaks import LeakReport, LeakWatch, detect_memory_leak
from myxtts.runtime.memory import monitor_gpu_memory, watched_memory_mb
from myxtts.runtime.plan import DevicePlan
from myxtts.training.stages.stage import Tensors
from myxtts.training.trainer import StepResult, XTTSTrainer

logger = logging.getLogger(__name__)


class MemoryIsolatedDualGPUTrainer(XTTSTrainer):
    """An `XTTSTrainer` whose data GPU and model GPU each have a limit that neither can cross."""

    def __init__(
        self,
        config: XTTSConfig,
        data_gpu_id: int = 0,
        model_gpu_id: int = 1,
        data_gpu_memory_limit: int = 8192,
        model_gpu_memory_limit: int = 16384,
        enable_monitoring: bool = True,
        *,
        model: XTTS | None = None,
        resume_checkpoint: str | None = None,
        plan: DevicePlan | None = None,
    ) -> None:
        isolated = dataclasses.replace(
            config,
            data=dataclasses.replace(config.data, data_gpu=data_gpu_id, model_gpu=model_gpu_id),
            training=dataclasses.replace(
                config.training,
                enable_memory_isolation=True,
                data_gpu_memory=data_gpu_memory_limit,
                model_gpu_memory=model_gpu_memory_limit,
            ),
        )
        self.enable_monitoring = enable_monitoring
        self._watch = LeakWatch()
        super().__init__(isolated, model, resume_checkpoint, plan=plan)
        self._devices = TensorFlowDevices(deep_copy=self.plan.simulated)

    def process_batch(self, host_batch: Mapping[str, Any]) -> Tensors:
        """Phase 1, on the data GPU: waves to mels and codes."""
        with tf.device(self.plan.producer_device):
            return self.current_stage().process(host_batch)

    def transfer_batch(self, processed: Tensors) -> DeviceBatch:
        """Phase 2: an explicit copy from the data GPU to the model GPU."""
        return DeviceBatch(0, self._devices.copy([processed], [self.plan.model.name]).replicas, {})

    def train_batch(self, batch: DeviceBatch) -> StepResult:
        """Phase 3, on the model GPU: forward, backward, update; then a look at the memory."""
        self.refuse_accumulation("train_batch")
        result = self.learn([batch])
        if self.enable_monitoring:
            self._watch.add(result.step, watched_memory_mb(self.plan))
        return result

    def get_memory_stats(self) -> dict[str, dict[str, Any]]:
        """Per role: device, source, current, peak, limit and share; `None` is what cannot be had."""
        return monitor_gpu_memory()

    def check_memory_leak(self) -> LeakReport:
        """The verdict over the steps that `train_batch` has watched; where several memories leak, on the fastest."""
        return next(iter(self._watch.reports()), detect_memory_leak([]))
