"""Plans for every mode, and an error with a way out for everything that cannot be planned."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from myxtts.config.config import XTTSConfig
from myxtts.errors import ConfigError, DeviceError
from myxtts.runtime.inventory import (
    Gpu,
    Inventory,
    chosen_by_cuda_variable,
    describe,
    find_inventory,
    handles_of_visible,
    memory_info,
    simulated_inventory,
)
from myxtts.runtime.plan import DeviceRequest, plan_devices, plan_in_force, propose_memory_limits
from myxtts.runtime.plan_log import configuration_lines, creation_line, pipeline_lines, placement_lines
from myxtts.runtime.precision import choose_precision


def gpus(count: int, memory_mb: int = 24576, capability: tuple[int, int] = (8, 6)) -> Inventory:
    return Inventory(
        tuple(Gpu(index=i, name=f"GPU {i}", memory_mb=memory_mb, compute_capability=capability) for i in range(count))
    )


@pytest.mark.parametrize(
    ("data", "model", "data_name", "model_name", "hidden"),
    [(0, 1, "/GPU:0", "/GPU:1", (2, 3)), (2, 3, "/GPU:0", "/GPU:1", (0, 1)), (1, 3, "/GPU:0", "/GPU:1", (0, 2))],
)
def test_any_pair_of_gpus_gets_its_roles(
    data: int, model: int, data_name: str, model_name: str, hidden: tuple[int, ...]
) -> None:
    plan = plan_devices(DeviceRequest(data_gpu=data, model_gpu=model), gpus(4))

    assert plan.data is not None
    assert (plan.mode, plan.data.name, plan.model.name, plan.hidden) == ("dual", data_name, model_name, hidden)


def test_swapped_gpus_keep_their_roles() -> None:
    plan = plan_devices(DeviceRequest(data_gpu=3, model_gpu=1), gpus(4))

    assert plan.data is not None
    assert (plan.data.name, plan.model.name) == ("/GPU:1", "/GPU:0")


def test_simulated_gpus_leave_the_host_cpu_to_the_host() -> None:
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), simulated_inventory(2))

    assert [role.name for role in plan.roles] == ["/CPU:1", "/CPU:2"]
    assert plan.model.label == "/GPU:1 (simulated by /CPU:2)"


def test_hybrid_mirrors_the_model_beside_one_data_gpu() -> None:
    plan = plan_devices(DeviceRequest(data_gpu=1, model_gpu="0,2,3"), gpus(4))

    assert plan.mode == "hybrid"
    assert [role.name for role in plan.models] == ["/GPU:0", "/GPU:2", "/GPU:3"]
    assert plan.producer_device == "/GPU:1"


@pytest.mark.parametrize(("model", "names"), [("2", ["/GPU:2"]), ("3,2", ["/GPU:3", "/GPU:2"])])
def test_several_data_gpus_share_the_batches_in_the_order_in_which_they_are_named(model: str, names: list[str]) -> None:
    request = DeviceRequest(data_gpu="1,0", model_gpu=model, data_memory_mb=2048, model_memory_mb=8192)
    plan = plan_devices(request, gpus(4))

    assert plan.mode == "hybrid"
    assert plan.producer_devices == ("/GPU:1", "/GPU:0")
    assert [role.name for role in plan.models] == names
    assert [role.memory_limit_mb for role in plan.roles] == [2048, 2048, *([8192] * len(names))]
    log = "\n".join((*configuration_lines(plan), *pipeline_lines(plan, 50)))
    assert "Data Processing GPU: 1, 0" in log
    assert "Prefetching to /GPU:1, /GPU:0" in log
    assert "limit 2048 MB for data GPU 0" in log
    assert plan_in_force(plan, request) == plan
    with pytest.raises(DeviceError, match="asks for data GPU 1, and this process"):
        plan_in_force(plan, DeviceRequest(data_gpu=1, model_gpu=model))


def test_one_device_modes() -> None:
    assert plan_devices(DeviceRequest(), gpus(0)).mode == "cpu"
    assert plan_devices(DeviceRequest(), gpus(3)).mode == "single"
    assert plan_devices(DeviceRequest(multi_gpu=True), gpus(3)).mode == "mirrored"
    assert plan_devices(DeviceRequest(multi_gpu=True), gpus(1)).mode == "single"
    assert len(plan_devices(DeviceRequest(), gpus(3)).visible) == 3


def test_visible_gpus_limit_what_is_seen() -> None:
    plan = plan_devices(DeviceRequest(multi_gpu=True, visible_gpus="2,0"), gpus(4))

    assert (plan.visible, plan.hidden) == ((0, 2), (1, 3))
    assert [role.physical for role in plan.models] == [0, 2]


@pytest.mark.parametrize(
    ("request_", "count", "problem", "hint"),
    [
        ({"data_gpu": 0, "model_gpu": 1}, 0, "needs at least 2 GPUs, found 0 GPUs", "--simulate-gpus 2"),
        ({"data_gpu": 0, "model_gpu": 1}, 1, "needs at least 2 GPUs, found 1 GPU", "train_main.py --train-data"),
        ({"data_gpu": 5, "model_gpu": 1}, 2, "--data-gpu is 5, must be 0-1", "valid numbers: 0-1"),
        ({"data_gpu": 0, "model_gpu": 2}, 2, "--model-gpu is 2, must be 0-1", "valid numbers: 0-1"),
        ({"data_gpu": 1, "model_gpu": 1}, 2, "both 1", "train_main.py"),
        ({"data_gpu": 1, "model_gpu": (0, 1)}, 3, "both 1", "GPUs of their own"),
        ({"data_gpu": "0,1", "model_gpu": (1, 2)}, 3, "both 1", "GPUs of their own"),
        ({"data_gpu": "0,4", "model_gpu": 1}, 3, "--data-gpu is 4, must be 0-2", "valid numbers: 0-2"),
        ({"data_gpu": "0,1"}, 2, "--data-gpu 0,1 was given without --model-gpu", "both --data-gpu and --model-gpu"),
        ({"data_gpu": 1}, 2, "--data-gpu 1 was given without --model-gpu", "both --data-gpu and --model-gpu"),
        ({"model_gpu": (1, 2)}, 3, "--model-gpu 1,2 was given without --data-gpu", "both --data-gpu and --model-gpu"),
        ({"data_gpu": 0, "model_gpu": 1, "visible_gpus": "1,2"}, 3, "hides that GPU", "add 0 to --visible-gpus"),
        ({"visible_gpus": "0,7"}, 2, "names GPU 7", "valid numbers: 0-1"),
        ({"multi_gpu": True}, 0, "no GPU was found", "--simulate-gpus"),
    ],
)
def test_what_cannot_be_planned_says_why_and_what_to_do(
    request_: dict[str, Any], count: int, problem: str, hint: str
) -> None:
    with pytest.raises(DeviceError) as error:
        plan_devices(DeviceRequest(**request_), gpus(count))

    assert problem in error.value.problem
    assert hint in error.value.hint


def test_a_limit_above_the_gpus_memory_is_refused_with_one_that_fits() -> None:
    request = DeviceRequest(data_gpu=0, model_gpu=1, data_memory_mb=8192, model_memory_mb=16384)

    with pytest.raises(DeviceError) as error:
        plan_devices(request, gpus(2, memory_mb=12288))

    assert "--model-gpu-memory is 16384 MB, of GPU 1's 12288 MB 10152 are usable" in error.value.problem
    assert "--model-gpu-memory 10152" in error.value.hint


@pytest.mark.parametrize(
    ("capability", "models", "usable"),
    [
        ((6, 1), (1,), 12288 - 600 - 500),
        ((7, 5), (1,), 12288 - 600 - 1050),
        ((8, 6), (1,), 12288 - 600 - 1536),
        ((12, 0), (1,), 12288 - 600 - 1800),
        ((8, 6), (1, 2), 12288 - 600 - 1536 - 400),
    ],
)
def test_a_limit_leaves_room_for_the_libraries_beside_tensorflow(
    capability: tuple[int, int], models: tuple[int, ...], usable: int
) -> None:
    there = gpus(3, memory_mb=12288, capability=capability)

    def limited(model_memory_mb: int) -> DeviceRequest:
        return DeviceRequest(data_gpu=0, model_gpu=models, data_memory_mb=512, model_memory_mb=model_memory_mb)

    assert plan_devices(limited(usable), there).model.memory_limit_mb == usable
    with pytest.raises(DeviceError, match=f"{usable} are usable"):
        plan_devices(limited(usable + 1), there)


def test_a_limit_that_the_allocator_would_not_keep_is_refused() -> None:
    there = find_inventory(2, {"TF_GPU_ALLOCATOR": "cuda_malloc_async"})
    request = DeviceRequest(data_gpu=0, model_gpu=1, data_memory_mb=4096, model_memory_mb=8192)

    with pytest.raises(DeviceError, match="with TF_GPU_ALLOCATOR=cuda_malloc_async no limit holds") as error:
        plan_devices(request, there)

    assert "unset TF_GPU_ALLOCATOR" in error.value.hint
    assert plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), there).memory_growth
    assert plan_devices(request, find_inventory(2, {})).model.memory_limit_mb == 8192


def test_a_limit_below_256_mb_is_refused() -> None:
    with pytest.raises(ConfigError, match="--data-gpu-memory is 100, must be at least 256"):
        XTTSConfig(enable_memory_isolation=True, data_gpu=0, model_gpu=1, data_gpu_memory=100)
    with pytest.raises(DeviceError, match="--model-gpu-memory is 255"):
        plan_devices(DeviceRequest(data_gpu=0, model_gpu=1, data_memory_mb=256, model_memory_mb=255), gpus(2))


def test_limits_and_growth_exclude_each_other() -> None:
    limited = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1, data_memory_mb=512, model_memory_mb=512), gpus(2))
    growing = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), gpus(2))

    assert (limited.memory_growth, growing.memory_growth) == (False, True)


def test_proposed_limits_are_shares_of_each_gpus_own_memory() -> None:
    assert propose_memory_limits(gpus(2), 0, 1) == (8110, 16465)
    assert propose_memory_limits(gpus(2, memory_mb=8192), 0, 1, model_fraction=1.0)[1] == 8192 - 600 - 1536
    with pytest.raises(DeviceError, match="memory of simulated GPU 0"):
        propose_memory_limits(simulated_inventory(2), 0, 1)
    with pytest.raises(DeviceError, match="data_fraction is 0"):
        propose_memory_limits(gpus(2), 0, 1, data_fraction=0)


def test_the_log_has_the_documented_steps_in_their_order() -> None:
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), gpus(2))

    before = (*configuration_lines(plan), *pipeline_lines(plan, 25), *placement_lines(plan), creation_line(plan))
    lines = [line.strip() for line in before]

    expected = [
        "Configuring Multi-GPU Mode...",
        "Data Processing GPU: 0",
        "Model Training GPU: 1",
        "Set visible devices: GPU 0 and GPU 1",
        "Configured memory growth for data GPU",
        "Configured memory growth for model GPU",
        "Multi-GPU configuration completed successfully",
        "Intelligent GPU Pipeline: Multi-GPU Mode",
        "- Prefetching to /GPU:0 with buffer_size=25",
        "Multi-GPU Mode: Model will be placed on /GPU:1",
        "(Original GPU 1 is now mapped to GPU:1)",
        "Creating model on device: /GPU:1",
    ]
    positions = [lines.index(line) for line in expected]
    assert positions == sorted(positions)


def test_a_simulation_says_that_it_is_one() -> None:
    plan = plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), simulated_inventory(2))

    assert configuration_lines(plan)[0].startswith("SIMULATED: 2 CPU devices stand for GPUs")


@pytest.mark.parametrize(
    ("capability", "precision"), [((8, 0), "mixed_bfloat16"), ((9, 0), "mixed_bfloat16"), ((7, 5), "mixed_float16")]
)
def test_mixed_precision_takes_the_kind_that_the_gpu_has(capability: tuple[int, int], precision: str) -> None:
    inventory = gpus(2, capability=capability)

    assert choose_precision(True, plan_devices(DeviceRequest(), inventory)) == precision


def test_mixed_precision_is_refused_where_it_cannot_work() -> None:
    for inventory in (gpus(0), simulated_inventory(2), gpus(1, capability=(6, 1))):
        with pytest.raises(DeviceError, match="mixed precision"):
            choose_precision(True, plan_devices(DeviceRequest(), inventory))


@pytest.mark.parametrize(
    ("data", "model", "expected"),
    [
        ((8, 6), (8, 9), ("mixed_bfloat16", "mixed_bfloat16")),
        ((7, 5), (8, 9), ("mixed_float16", "mixed_bfloat16")),
        ((6, 1), (7, 5), ("float32", "mixed_float16")),
    ],
)
def test_each_role_has_the_precision_of_its_own_gpus(
    data: tuple[int, int], model: tuple[int, int], expected: tuple[str, str]
) -> None:
    inventory = Inventory(
        tuple(Gpu(index=i, name=f"GPU {i}", compute_capability=own) for i, own in enumerate((model, (9, 0), data)))
    )
    plan = plan_devices(DeviceRequest(data_gpu="1,2", model_gpu=0), inventory)

    assert (choose_precision(True, plan, "data"), choose_precision(True, plan)) == expected
    assert choose_precision(False, plan, "data") == "float32"
    assert choose_precision(True, plan_devices(DeviceRequest(), inventory), "data") == expected[1]


DUAL = DeviceRequest(data_gpu=0, model_gpu=1)
LIMITED = DeviceRequest(data_gpu=0, model_gpu=1, data_memory_mb=1024, model_memory_mb=2048)


@pytest.mark.parametrize(
    ("before", "asked", "lacking"),
    [
        (DUAL, LIMITED, "a limit of 1024 MB on the data GPU, a limit of 2048 MB on the model GPU"),
        (DeviceRequest(), DUAL, "data GPU 0, model GPU 1"),
        (DUAL, DeviceRequest(data_gpu=1, model_gpu=0), "data GPU 1, model GPU 0"),
        (DUAL, DeviceRequest(multi_gpu=True), "the model mirrored"),
        (DeviceRequest(), DeviceRequest(visible_gpus="1"), "GPUs 1 and no others"),
        (DeviceRequest(visible_gpus="0"), DeviceRequest(multi_gpu=True, visible_gpus="0,1"), "GPUs 0,1 and no others"),
    ],
)
def test_a_later_request_that_the_plan_in_force_does_not_meet_is_refused(
    before: DeviceRequest, asked: DeviceRequest, lacking: str
) -> None:
    plan = plan_devices(before, gpus(2))

    with pytest.raises(DeviceError, match=f"asks for {lacking}.* was configured for {plan.mode} mode") as error:
        plan_in_force(plan, asked)

    assert "setup_gpu_memory_isolation" in error.value.hint


@pytest.mark.parametrize("before", [DeviceRequest(), DUAL, LIMITED, DeviceRequest(multi_gpu=True, cpu_threads=2)])
def test_a_later_request_is_served_by_its_own_plan_and_one_that_asks_for_nothing_by_any(before: DeviceRequest) -> None:
    plan = plan_devices(before, gpus(2))

    assert plan_in_force(plan, before) == plan
    assert plan_in_force(plan, DeviceRequest()) == plan


@pytest.mark.parametrize("inventory", [gpus(2), simulated_inventory(2)], ids=["real", "simulated"])
def test_gpus_that_were_made_visible_can_be_mirrored_over_later(inventory: Inventory) -> None:
    mirrored = DeviceRequest(multi_gpu=True)

    assert plan_in_force(plan_devices(DeviceRequest(), inventory), mirrored) == plan_devices(mirrored, inventory)


class FourCards:
    """NVML as far as numbers go: it hides no card, whatever CUDA sees."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"card {index}"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:  # noqa: N802
        return f"GPU-{handle}".encode()


def test_the_driver_is_asked_about_the_cards_that_cuda_sees() -> None:
    assert handles_of_visible(FourCards(), {"CUDA_VISIBLE_DEVICES": "2,3"}) == ["card 2", "card 3"]
    assert handles_of_visible(FourCards(), {})[1] == "card 1"


@pytest.mark.parametrize("value", ["0,0", "1,GPU-card 1", "GPU-card 2,0,GPU-card 2"])
def test_a_gpu_that_cuda_is_to_see_twice_is_refused(value: str) -> None:
    with pytest.raises(DeviceError, match=f"CUDA_VISIBLE_DEVICES is '{value}', it names a GPU twice") as error:
        handles_of_visible(FourCards(), {"CUDA_VISIBLE_DEVICES": value})

    assert "name each GPU once" in error.value.hint


def test_the_log_names_the_device_that_was_given_in_the_place_of_the_plan_s() -> None:
    plan = plan_devices(DUAL, gpus(2))

    assert creation_line(plan).endswith(": /GPU:1")
    assert creation_line(plan, "/GPU:0").endswith(": /GPU:0")


def test_the_simulation_variable_works_like_the_flag() -> None:
    assert len(find_inventory(0, {"MYXTTS_SIMULATE_GPUS": "3"})) == 3
    assert len(find_inventory(2, {"MYXTTS_SIMULATE_GPUS": "3"})) == 2
    with pytest.raises(DeviceError, match="MYXTTS_SIMULATE_GPUS is 'two'"):
        find_inventory(0, {"MYXTTS_SIMULATE_GPUS": "two"})


class SharedMemoryChip:
    """NVML on a chip whose GPU has no memory of its own to tell of."""

    NVMLError = pynvml.NVMLError

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "NVIDIA GB10"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        return 12, 1

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_gpu_whose_memory_the_driver_does_not_tell_can_be_planned_with() -> None:
    gpu = describe(SharedMemoryChip(), 0, "card 0")

    assert gpu == Gpu(index=0, name="NVIDIA GB10", memory_mb=None, compute_capability=(12, 1))
    assert plan_devices(DeviceRequest(), Inventory((gpu,))).mode == "single"
    assert memory_info(SharedMemoryChip(), "card 0") is None


def test_memory_limits_without_isolation_are_refused() -> None:
    with pytest.raises(ConfigError, match="--model-gpu-memory is 4000, and without --enable-memory-isolation") as error:
        DeviceRequest.from_config(XTTSConfig(data_gpu=0, model_gpu=1, model_gpu_memory=4000))
    assert "add --enable-memory-isolation" in error.value.hint

    isolated = XTTSConfig(data_gpu=0, model_gpu=1, model_gpu_memory=4000, enable_memory_isolation=True)
    assert DeviceRequest.from_config(isolated).model_memory_mb == 4000
    assert DeviceRequest.from_config(XTTSConfig(data_gpu=0, model_gpu=1)).model_memory_mb is None


def test_cuda_visible_devices_is_read_as_cuda_reads_it() -> None:
    uuids = ["GPU-aaa", "GPU-abb", "GPU-ccc"]

    assert chosen_by_cuda_variable(None, uuids) == [0, 1, 2]
    assert chosen_by_cuda_variable("2,0", uuids) == [2, 0]
    assert chosen_by_cuda_variable("GPU-c,1", uuids) == [2, 1]
    assert chosen_by_cuda_variable("0,9,1", uuids) == [0]
    assert chosen_by_cuda_variable("-1", uuids) == []
    assert chosen_by_cuda_variable("GPU-a", uuids) == []
