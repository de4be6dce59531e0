"""What we rely on in `tf.config`, each case for the fake and for the real one: `python -m` this module runs those.

The real one runs without a GPU. For the cases of GPUs its runtime reports four: all that `tf.config`
decides in Python is then TensorFlow's own. What only its runtime knows, it cannot show.
"""

from __future__ import annotations

import os
import traceback
from typing import Any, Protocol


class Look(Protocol):
    """What a case sees of a world beside what `tf.config` offers."""

    def initialise(self) -> None:
        """What making the first tensor does."""

    def gpus_in_order(self) -> list[int]:
        """Physical numbers of the visible GPUs, in the order of their logical ones."""


class TensorFlowLook:
    """TensorFlow, made to believe that the machine has GPUs."""

    def __init__(self, gpus: int) -> None:
        from tensorflow.python.eager import context

        names = [b"/physical_device:CPU:0", *(f"/physical_device:GPU:{i}".encode() for i in range(gpus))]
        context.pywrap_tfe.TF_ListPhysicalDevices = lambda: names
        self._context = context.context()

    def initialise(self) -> None:
        self._context.ensure_initialized()

    def gpus_in_order(self) -> list[int]:
        return [int(number) for number in self._context.config.gpu_options.visible_device_list.split(",")]


def expect(error: type[Exception], text: str, call: Any) -> None:
    try:
        call()
    except error as raised:
        assert text in str(raised), str(raised)
        return
    raise AssertionError(f"{error.__name__} expected")


def cpus(config: Any, count: int) -> list[Any]:
    return [config.LogicalDeviceConfiguration() for _ in range(count)]


def logical_cpus_are_numbered_from_0(config: Any) -> None:
    config.set_logical_device_configuration(config.list_physical_devices("CPU")[0], cpus(config, 3))
    assert [d.name for d in config.list_logical_devices("CPU")] == [f"/device:CPU:{i}" for i in range(3)]


def listing_physical_devices_initialises_nothing(config: Any) -> None:
    config.list_physical_devices("GPU")
    config.set_logical_device_configuration(config.list_physical_devices("CPU")[0], cpus(config, 2))
    assert len(config.list_logical_devices("CPU")) == 2


def logical_devices_cannot_change_after_initialisation(config: Any) -> None:
    config.list_logical_devices("CPU")
    cpu = config.list_physical_devices("CPU")[0]
    expect(
        RuntimeError,
        "cannot be modified after being initialized",
        lambda: config.set_logical_device_configuration(cpu, cpus(config, 2)),
    )


def visible_devices_cannot_change_after_initialisation(config: Any) -> None:
    config.list_logical_devices("CPU")
    expect(RuntimeError, "cannot be modified after being initialized", lambda: config.set_visible_devices([], "CPU"))


def threads_cannot_change_after_initialisation(config: Any) -> None:
    config.list_logical_devices("CPU")
    expect(RuntimeError, "cannot be modified", lambda: config.threading.set_intra_op_parallelism_threads(7))


def the_same_settings_again_pass_silently(config: Any) -> None:
    cpu = config.list_physical_devices("CPU")[0]
    config.set_logical_device_configuration(cpu, cpus(config, 2))
    config.list_logical_devices("CPU")
    config.set_visible_devices([cpu], "CPU")


def a_cpu_has_no_memory_limit_and_no_growth(config: Any) -> None:
    cpu = config.list_physical_devices("CPU")[0]
    limit = config.LogicalDeviceConfiguration(memory_limit=512)
    expect(ValueError, "not supported", lambda: config.set_logical_device_configuration(cpu, [limit]))
    expect(ValueError, "memory growth", lambda: config.experimental.set_memory_growth(cpu, True))


def memory_of_a_cpu_is_no_measurement_and_of_a_missing_gpu_fails(config: Any) -> None:
    try:
        assert config.experimental.get_memory_info("CPU:0") == {"current": 0, "peak": 0}
    except ValueError as error:
        assert "Allocator stats not available" in str(error)  # 2.21 before the first tensor
    expect(ValueError, "No matching devices found", lambda: config.experimental.get_memory_info("GPU:0"))


def limit(config: Any, mb: int | None) -> list[Any]:
    return [config.LogicalDeviceConfiguration(memory_limit=mb)]


def visible_gpus_are_numbered_in_ascending_order_whatever_the_order_of_the_list(config: Any, look: Look) -> None:
    gpus = config.list_physical_devices("GPU")
    assert [gpu.name for gpu in gpus] == [f"/physical_device:GPU:{i}" for i in range(4)]
    config.set_visible_devices([gpus[3], gpus[1]], "GPU")
    assert look.gpus_in_order() == [1, 3]
    assert set(config.get_visible_devices("GPU")) == {gpus[1], gpus[3]}
    assert len(config.get_visible_devices("CPU")) == 1


def memory_growth_must_not_differ_between_visible_gpus(config: Any, look: Look) -> None:
    gpus = config.list_physical_devices("GPU")
    config.experimental.set_memory_growth(gpus[0], True)
    expect(ValueError, "Memory growth cannot differ between GPU devices", look.initialise)
    config.set_visible_devices([gpus[0]], "GPU")
    look.initialise()


def a_limit_excludes_growth_on_the_same_gpu(config: Any, look: Look) -> None:
    gpu = config.list_physical_devices("GPU")[0]
    config.set_logical_device_configuration(gpu, limit(config, 512))
    expect(
        ValueError,
        "Cannot set memory growth on device when virtual devices configured",
        lambda: config.experimental.set_memory_growth(gpu, True),
    )


def a_part_of_a_gpu_has_a_limit(config: Any, look: Look) -> None:
    gpu = config.list_physical_devices("GPU")[0]
    without = limit(config, None)
    expect(ValueError, "memory limit is required", lambda: config.set_logical_device_configuration(gpu, without))


def gpus_cannot_change_after_initialisation_and_the_same_again_passes(config: Any, look: Look) -> None:
    gpus = config.list_physical_devices("GPU")
    config.set_visible_devices(gpus[:2], "GPU")
    for gpu in gpus[:2]:
        config.experimental.set_memory_growth(gpu, True)
    look.initialise()
    config.set_visible_devices(gpus[:2], "GPU")
    config.experimental.set_memory_growth(gpus[0], True)
    for change in (
        lambda: config.set_visible_devices(gpus[2:], "GPU"),
        lambda: config.experimental.set_memory_growth(gpus[0], False),
        lambda: config.set_logical_device_configuration(gpus[0], limit(config, 512)),
    ):
        expect(RuntimeError, "cannot be modified after being initialized", change)


def a_device_that_is_not_there_is_not_recognised(config: Any, look: Look) -> None:
    gpu = config.list_physical_devices("GPU")[0]
    absent = type(gpu)("/physical_device:GPU:9", "GPU")
    for call in (
        lambda: config.set_visible_devices([absent], "GPU"),
        lambda: config.experimental.set_memory_growth(absent, True),
        lambda: config.set_logical_device_configuration(absent, limit(config, 512)),
    ):
        expect(ValueError, "Unrecognized device", call)


GPU_CASES = {
    case.__name__: case
    for case in (
        visible_gpus_are_numbered_in_ascending_order_whatever_the_order_of_the_list,
        memory_growth_must_not_differ_between_visible_gpus,
        a_limit_excludes_growth_on_the_same_gpu,
        a_part_of_a_gpu_has_a_limit,
        gpus_cannot_change_after_initialisation_and_the_same_again_passes,
        a_device_that_is_not_there_is_not_recognised,
    )
}

CASES = {
    case.__name__: case
    for case in (
        logical_cpus_are_numbered_from_0,
        listing_physical_devices_initialises_nothing,
        logical_devices_cannot_change_after_initialisation,
        visible_devices_cannot_change_after_initialisation,
        threads_cannot_change_after_initialisation,
        the_same_settings_again_pass_silently,
        a_cpu_has_no_memory_limit_and_no_growth,
        memory_of_a_cpu_is_no_measurement_and_of_a_missing_gpu_fails,
    )
}


def main() -> int:
    """Every case against TensorFlow, each in a fork of a process that has imported it and initialised nothing."""
    import tensorflow as tf

    failed = 0
    for name in sorted(CASES | GPU_CASES):
        child = os.fork()
        if child == 0:
            try:
                if name in CASES:
                    CASES[name](tf.config)
                else:
                    GPU_CASES[name](tf.config, TensorFlowLook(gpus=4))
                os.write(1, f"{name}\n".encode())
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the process's edge: printed, and its exit code says so
                traceback.print_exc()
                os._exit(1)
        failed += os.waitpid(child, 0)[1] != 0
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
