"""What we rely on in `tf.config`, each case for the fake and for the real one: `python -m` this module runs those."""

from __future__ import annotations

import os
import traceback
from typing import Any


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
    for name in sorted(CASES):
        child = os.fork()
        if child == 0:
            try:
                CASES[name](tf.config)
                os.write(1, f"{name}\n".encode())
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the process's edge: printed, and its exit code says so
                traceback.print_exc()
                os._exit(1)
        failed += os.waitpid(child, 0)[1] != 0
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
