"""One suite over the backends: real GPUs (through the fake `tf.config`), simulated ones, and no GPU at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from myxtts.errors import DeviceError
from myxtts.runtime.apply import carry_out
from myxtts.runtime.backend import Backend, SimulatedBackend, TensorFlowBackend
from myxtts.runtime.inventory import Gpu, Inventory, simulated_inventory
from myxtts.runtime.memory import PROCESS, watched_memory_mb
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices
from tests.fakes.tf_config import FakeTfConfig
from tests.processes import run_program


@dataclass
class World:
    """A machine with GPUs, real or simulated, whose `tf.config` records every call."""

    config: FakeTfConfig
    backend: Backend
    inventory: Inventory

    def plan(self, **request: Any) -> DevicePlan:
        return plan_devices(DeviceRequest(**request), self.inventory)


@pytest.fixture(params=["gpus", "simulated"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "simulated":
        config = FakeTfConfig(gpu_count=0)
        return World(config, SimulatedBackend(config, cores=2), simulated_inventory(4))
    config = FakeTfConfig(gpu_count=4)
    gpus = tuple(Gpu(index=i, name=f"GPU {i}", memory_mb=24576) for i in range(4))
    return World(config, TensorFlowBackend(config), Inventory(gpus))


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"multi_gpu": True},
        {"data_gpu": 0, "model_gpu": 1},
        {"data_gpu": 3, "model_gpu": 1},
        {"data_gpu": 0, "model_gpu": (1, 2, 3)},
    ],
    ids=["single", "mirrored", "dual", "swapped", "hybrid"],
)
def test_every_planned_device_is_there_afterwards(world: World, request_: dict[str, Any]) -> None:
    plan = world.plan(**request_)

    carry_out(plan, world.backend, world.config)

    assert {role.name for role in plan.roles} <= set(world.backend.logical_devices())
    assert len(world.backend.logical_devices()) == len(plan.visible)


def test_dual_mode_turns_soft_placement_off_and_sets_the_silent_policy(world: World) -> None:
    carry_out(world.plan(data_gpu=0, model_gpu=1), world.backend, world.config)

    assert world.config.soft_placement is False
    assert ("policy", "silent") in world.config.calls


def test_a_program_that_initialised_tensorflow_first_is_told_so(world: World) -> None:
    world.config.initialise()

    with pytest.raises(DeviceError, match="already initialised") as error:
        carry_out(world.plan(data_gpu=0, model_gpu=1), world.backend, world.config)

    assert "early_gpu_configuration" in error.value.hint


def test_cpu_threads_are_those_asked_for_in_every_mode(world: World) -> None:
    carry_out(world.plan(data_gpu=0, model_gpu=1, cpu_threads=5), world.backend, world.config)

    assert world.config.threading.intra == 5


def test_simulated_devices_share_the_cores_unless_told_otherwise() -> None:
    config = FakeTfConfig(gpu_count=0)
    world = World(config, SimulatedBackend(config, cores=8), simulated_inventory(4))

    carry_out(world.plan(data_gpu=0, model_gpu=1), world.backend, world.config)

    assert (config.threading.intra, config.threading.inter) == (4, 3)


def gpu_world(count: int = 4) -> World:
    config = FakeTfConfig(gpu_count=count)
    gpus = tuple(Gpu(index=i, name=f"GPU {i}", memory_mb=24576) for i in range(count))
    return World(config, TensorFlowBackend(config), Inventory(gpus))


def test_gpus_get_growth_without_limits() -> None:
    world = gpu_world()

    carry_out(world.plan(data_gpu=2, model_gpu=3), world.backend, world.config)

    assert ("visible", "GPU", ["/physical_device:GPU:2", "/physical_device:GPU:3"]) in world.config.calls
    assert [call for call in world.config.calls if call[0] == "growth"] == [
        ("growth", "/physical_device:GPU:2", True),
        ("growth", "/physical_device:GPU:3", True),
    ]


def test_gpus_get_limits_and_then_no_growth() -> None:
    world = gpu_world()

    carry_out(
        world.plan(data_gpu=1, model_gpu=0, data_memory_mb=8192, model_memory_mb=16384), world.backend, world.config
    )

    assert [call for call in world.config.calls if call[0] in ("virtual", "growth")] == [
        ("virtual", "/physical_device:GPU:1", [8192]),
        ("virtual", "/physical_device:GPU:0", [16384]),
    ]


def test_single_mode_sees_all_gpus_with_growth() -> None:
    world = gpu_world(2)

    carry_out(world.plan(), world.backend, world.config)

    assert world.config.soft_placement is True
    assert len([call for call in world.config.calls if call[0] == "growth"]) == 2


def test_memory_of_a_gpu_is_tensorflows_count_and_of_a_simulated_one_is_unknown(world: World) -> None:
    plan = world.plan()
    carry_out(plan, world.backend, world.config)

    counted = world.backend.memory_bytes(plan.model.name)

    assert counted == (None if plan.simulated else {"current": 300 * 2**20, "peak": 400 * 2**20})


def test_every_memory_of_its_own_is_watched_for_leaks_and_the_host_s(world: World) -> None:
    plan = world.plan(data_gpu=3, model_gpu=(0, 1))
    carry_out(plan, world.backend, world.config)

    watched = watched_memory_mb(plan, world.backend)

    assert watched.pop(PROCESS) > 0.0
    devices = ("data device /GPU:2", "model device /GPU:0", "model device /GPU:1")
    assert watched == ({} if plan.simulated else dict.fromkeys(devices, 300.0)), (
        "simulated GPUs share the host's memory"
    )


@pytest.mark.parametrize("chosen", ["MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", None])
def test_gpus_that_the_driver_does_not_list_are_not_left_idle_without_a_word(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of a GPU, or an NVML that fails where CUDA works: the plan is one for the CPU."""
    config, plan = FakeTfConfig(gpu_count=1), plan_devices(DeviceRequest(), Inventory())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)

    with pytest.raises(DeviceError, match=rf"TensorFlow sees 1 GPU\(s\), and .*NVML.*{chosen or ''}") as error:
        carry_out(plan, TensorFlowBackend(config), config)

    assert "CUDA_VISIBLE_DEVICES=-1" in error.value.hint
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    carry_out(plan, TensorFlowBackend(config), config)


def test_a_tensorflow_without_cuda_beside_a_driver_with_gpus_is_named() -> None:
    config = FakeTfConfig(gpu_count=0)
    plan = plan_devices(DeviceRequest(), Inventory((Gpu(index=0, name="GPU", memory_mb=24576),)))

    with pytest.raises(DeviceError, match="TensorFlow sees 0") as error:
        carry_out(plan, TensorFlowBackend(config), config)

    assert ".[gpu]" in error.value.hint


def test_real_tensorflow_without_a_gpu_trains_on_the_cpu() -> None:
    output = run_program("devices", "placed", "{}", "0")

    assert '"cpu"' in output
    assert "CPU:0" in output


def test_real_tensorflow_places_swapped_simulated_gpus_by_physical_number() -> None:
    output = run_program("devices", "placed", '{"data_gpu": 3, "model_gpu": 1}', "4")

    assert '["dual", {"data": "/job:localhost/replica:0/task:0/device:CPU:2", ' in output
    assert '"model": "/job:localhost/replica:0/task:0/device:CPU:1"}, 3, false]' in output


def test_real_tensorflow_initialised_by_the_caller_is_an_error_that_says_so() -> None:
    output = run_program("devices", "used_before_the_plan")

    assert "TensorFlow was already initialised by this program" in output
    assert "call early_gpu_configuration() first" in output


def test_a_missing_device_name_fails_instead_of_running_elsewhere() -> None:
    output = run_program("devices", "device_that_is_not_there", MYXTTS_SIMULATE_GPUS="2")

    assert "InvalidArgumentError" in output
