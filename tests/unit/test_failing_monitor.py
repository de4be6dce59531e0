"""What is not known of a GPU while a run trains is unavailable; it never ends the run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from myxtts.errors import DeviceError
from myxtts.runtime.apply import carry_out
from myxtts.runtime.backend import TensorFlowBackend
from myxtts.runtime.inventory import Gpu, Inventory, real_inventory
from myxtts.runtime.memory import PROCESS, memory_of_plan, watched_memory_mb
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices
from tests.fakes.tf_config import FakeTfConfig

CARDS = 2
FAILING_STEP = 4


class FakeNvml:
    """A driver whose calls fail from a moment on, as when a GPU falls off the bus."""

    NVMLError = pynvml.NVMLError

    def __init__(self) -> None:
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": CARDS,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=500 * 2**20, total=8192 * 2**20),
            "nvmlDeviceGetCudaComputeCapability": (8, 6),
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:01:00.0"),
            "nvmlDeviceGetName": b"NVIDIA GPU",
            "nvmlSystemGetDriverVersion": b"550.1",
        }

        def call(*arguments: Any) -> Any:
            if self.lost and name != "nvmlInit":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            if name in answers:
                return answers[name]
            return f"{name} {arguments}"

        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def dual(**fake: Any) -> tuple[DevicePlan, TensorFlowBackend, FakeTfConfig]:
    gpus = tuple(Gpu(index=i, name=f"GPU {i}", memory_mb=24576) for i in range(CARDS))
    config = FakeTfConfig(gpu_count=CARDS, **fake)
    plan, backend = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), Inventory(gpus)), TensorFlowBackend(config)
    carry_out(plan, backend, config)
    return plan, backend, config


def test_a_driver_that_fails_at_a_step_leaves_the_other_figures(driver: FakeNvml) -> None:
    plan, backend, _ = dual()

    for step in range(FAILING_STEP + 3):
        driver.lost = step >= FAILING_STEP
        seen = memory_of_plan(plan, backend)["model"]
        assert (seen.source, seen.current_mb) == ("tensorflow", 300.0)
        assert seen.driver_used_mb == (None if driver.lost else 500.0)


def test_a_gpu_whose_counters_are_lost_at_a_step_is_unavailable_and_not_zero(driver: FakeNvml) -> None:
    plan, backend, config = dual(lost_after=3 * CARDS)

    for step in range(FAILING_STEP):
        watched = watched_memory_mb(plan, backend)
        assert PROCESS in watched
        assert len(watched) == (1 + CARDS if step < 3 else 1)
    seen = memory_of_plan(plan, backend)["data"]

    assert config.lost_after is not None
    assert config.lost_after < 0
    assert (seen.source, seen.current_mb, seen.share) == ("unavailable", None, None)
    assert seen.describe() == "data /GPU:0: memory unavailable"


def test_a_driver_that_fails_before_the_start_is_one_clear_error(driver: FakeNvml) -> None:
    driver.lost = True

    with pytest.raises(DeviceError, match="the driver does not describe the machine's GPUs") as error:
        real_inventory({})

    assert "nvidia-smi" in error.value.hint


@pytest.mark.parametrize(
    ("theirs", "problem"),
    [
        ([{"pci_bus_id": "0000:01:00.0"}, {"pci_bus_id": "0000:02:00.0"}], None),
        ([{"pci_bus_id": "0000:02:00.0"}, {"pci_bus_id": "0000:01:00.0"}], "GPU 0 has PCI bus 01:00.0 .* and 02:00.0"),
        ([{"device_name": "slow"}, {"device_name": "fast"}], None),
        ([{"device_name": "fast"}, {"device_name": "slow"}], "GPU 0 has name slow to the driver and fast"),
        ([{"device_name": "GeForce"}, {"device_name": "GeForce"}], None),
        ([{}, {}], None),
    ],
)
def test_tensorflow_s_gpus_are_the_driver_s_or_the_plan_is_refused(
    theirs: list[dict[str, Any]], problem: str | None
) -> None:
    names = ("slow", "fast")
    gpus = tuple(Gpu(index=i, name=names[i], bus_id=f"00000000:0{i + 1}:00.0") for i in range(CARDS))
    config = FakeTfConfig(gpu_count=CARDS, details=theirs)
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), Inventory(gpus))

    if problem is None:
        carry_out(plan, TensorFlowBackend(config), config)
        return
    with pytest.raises(DeviceError, match=problem) as error:
        carry_out(plan, TensorFlowBackend(config), config)
    assert "CUDA" in error.value.hint
