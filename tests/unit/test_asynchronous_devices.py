"""What telemetry says of devices that work behind their threads, as GPUs do: `tests/device_model.py`.

Times are long beside what waking a sleeper takes on a busy machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from myxtts.monitoring.figures import WindowFigures
from myxtts.monitoring.verdict import diagnose
from myxtts.pipeline import Pipeline, Producer, SequentialPipeline
from myxtts.pipeline.devices import CopyTimes
from tests.device_model import ModelledDevices, sleep_until

COPY_S, FORWARD_S, UPDATE_S = 0.02, 0.08, 0.06
STEP_S = FORWARD_S + UPDATE_S
STEPS = 12


class Batches:
    def __next__(self) -> dict[str, Any]:
        return {"x": np.zeros(1)}

    def get_state(self) -> dict[str, int]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        pass


def trained(kind: Any, process_s: float, *, data: str, model: str) -> WindowFigures:
    """Steps whose loss the host waits for; the update goes on behind it, as the trainer's does."""
    devices = ModelledDevices({data, model}, copy_s=COPY_S)
    work = Producer(lambda batch: {"x": devices.queues[data].give(process_s)}, data)
    with kind(Batches(), [work], model_devices=[model], buffer_size=2, devices=devices) as pipeline:
        pipeline.wait_until_ready()
        for step in range(STEPS + 5):
            if step == 5:  # by now a full buffer is empty, if it will be
                pipeline.telemetry.window()
            next(pipeline)
            sleep_until(devices.queues[model].give(FORWARD_S))
            devices.queues[model].give(UPDATE_S)
        window: WindowFigures = pipeline.telemetry.window()
    return window


def test_a_model_device_that_never_waits_is_busy_all_the_time_and_a_copy_that_waits_for_it_is_not_busy() -> None:
    seen = trained(Pipeline, 0.04, data="/GPU:0", model="/GPU:1")

    assert seen.model_busy == pytest.approx(1.0, abs=0.07)
    assert seen.stall_share == pytest.approx(0.0, abs=0.07)
    assert seen.data_busy == pytest.approx(0.04 / STEP_S, abs=0.1)
    assert seen.phases["transfer"].busy == pytest.approx(COPY_S / STEP_S, abs=0.1)
    assert seen.phases["transfer"].waiting > 0.3, "for the model device's queue"
    assert seen.bottleneck == "train"
    assert seen.efficiency == pytest.approx(1.0, abs=0.1)
    assert "training does not wait for data" in str(diagnose(seen))


def test_the_update_behind_a_step_is_work_of_the_model_device_and_no_wait_for_data() -> None:
    seen = trained(Pipeline, 2 * STEP_S, data="/GPU:0", model="/GPU:1")

    assert seen.model_busy == pytest.approx(0.5, abs=0.07), "half of the time, not what the host waited for"
    assert seen.stall_share == pytest.approx(0.5, abs=0.07)
    assert seen.data_busy == pytest.approx(1.0, abs=0.07)
    assert seen.bottleneck == "process"
    assert seen.efficiency == pytest.approx(1.0, abs=0.1)
    assert "the data device is the bottleneck" in str(diagnose(seen))


def test_data_work_on_the_model_s_own_device_is_not_charged_with_the_update_before_it() -> None:
    seen = trained(SequentialPipeline, STEP_S, data="/GPU:0", model="/GPU:0")

    assert seen.model_busy == pytest.approx(1.0, abs=0.07)
    assert seen.phases["process"].busy == pytest.approx(0.5, abs=0.07)
    assert seen.phases["train"].ms_per_batch == pytest.approx(1000 * STEP_S, rel=0.15)
    assert "of the time with data work that a second GPU could take over" in str(diagnose(seen))
    on_a_cpu = replace(seen, data_devices=("/CPU:0",), model_devices=("/CPU:0",), device_busy={"/CPU:0": 1.0})
    assert str(diagnose(on_a_cpu)).rstrip(".").endswith("of the time with data work")


def test_the_fastest_copy_tells_how_long_the_others_have_waited() -> None:
    times = CopyTimes()

    assert times.waited_s(0.4, 2_000) == pytest.approx(0.0)
    assert times.waited_s(0.1, 1_000) == pytest.approx(0.0)
    assert times.waited_s(0.5, 2_000) == pytest.approx(0.3)
    assert times.waited_s(0.5, 0) == 0.0
