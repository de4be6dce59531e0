"""The few things that a plan needs of TensorFlow, behind a protocol with two implementations.

`TensorFlowBackend` configures real GPUs; `SimulatedBackend` makes logical CPU devices stand for them, through the same
calls of `apply`. Both take the `tf.config` module as an argument: the tests pass a recording fake with as many
GPUs as they like, and a contract suite runs the same cases against the fake and the real one.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from myxtts.errors import DeviceError, MissingDependencyError, how_to_install
from myxtts.runtime.inventory import Gpu
from myxtts.runtime.plan import DevicePlan

logger = logging.getLogger(__name__)

ALREADY_INITIALISED_HINT = (
    "call early_gpu_configuration() first, before any tensor or tf.device(...): devices are configured once per process"
)


class Backend(Protocol):
    """How a plan reaches the devices."""

    def configure(self, plan: DevicePlan) -> None:
        """Make exactly the plan's devices visible, with its limits. Raises `DeviceError` if it is too late."""

    def logical_devices(self) -> tuple[str, ...]:
        """Names (`/GPU:0`, `/CPU:1`) of the devices that a plan can use. Initialises TensorFlow."""

    def memory_bytes(self, device: str) -> dict[str, int] | None:
        """TensorFlow's `current` and `peak` bytes on a device; `None` where it does not count them."""


class TensorFlowBackend:
    """Real GPUs, or none: the CPU is left as TensorFlow finds it."""

    def __init__(self, tf_config: Any) -> None:
        self._config = tf_config

    def configure(self, plan: DevicePlan) -> None:
        gpus = self._config.list_physical_devices("GPU")
        if plan.visible and max(plan.visible) >= len(gpus):
            raise DeviceError(
                f"the driver lists GPU {max(plan.visible)}, but TensorFlow sees {len(gpus)} GPU(s)",
                hint="install TensorFlow with CUDA: make setup EXTRAS=gpu,dev (or pip uninstall tensorflow-cpu, then "
                "pip install '.[gpu]' in the checkout), then run myxtts doctor; "
                "to train on the CPU instead: CUDA_VISIBLE_DEVICES=-1",
            )
        if plan.mode == "cpu" and gpus and not _cpu_was_asked_for():
            raise _unknown_to_the_driver(len(gpus))
        details = [self._config.experimental.get_device_details(gpus[gpu.index]) for gpu in plan.gpus]
        refuse_other_order(plan.gpus, details)
        try:
            self._config.set_visible_devices([gpus[index] for index in plan.visible], "GPU")
            for role in plan.roles:
                if role.physical is not None and role.memory_limit_mb is not None:
                    self._limit(gpus[role.physical], role.memory_limit_mb)
            if plan.cpu_threads is not None:
                self._config.threading.set_intra_op_parallelism_threads(plan.cpu_threads)
            if plan.memory_growth:
                for index in plan.visible:
                    self._config.experimental.set_memory_growth(gpus[index], True)
        except RuntimeError as error:
            raise already_initialised(error) from error

    def _limit(self, gpu: Any, limit_mb: int) -> None:
        limit = self._config.LogicalDeviceConfiguration(memory_limit=limit_mb)
        self._config.set_logical_device_configuration(gpu, [limit])

    def logical_devices(self) -> tuple[str, ...]:
        return short_names(self._config, "GPU")

    def memory_bytes(self, device: str) -> dict[str, int] | None:
        if not device.startswith("/GPU"):
            return None  # TensorFlow answers 0 for a CPU, which is not a measurement.
        try:
            info = self._config.experimental.get_memory_info(device.lstrip("/"))
        except Exception as error:  # noqa: BLE001 - a GPU that is lost, a counter that is missing: no figure
            logger.debug("no memory figure of %s: %s", device, error)
            return None
        return {"current": int(info["current"]), "peak": int(info["peak"])}


class SimulatedBackend:
    """Logical CPU devices in the place of GPUs: /CPU:0 stays the host, /CPU:k+1 is the k-th visible GPU."""

    def __init__(self, tf_config: Any, cores: int | None = None) -> None:
        self._config = tf_config
        self._cores = cores or len(os.sched_getaffinity(0))

    def configure(self, plan: DevicePlan) -> None:
        cpu = self._config.list_physical_devices("CPU")[0]
        devices = [self._config.LogicalDeviceConfiguration() for _ in range(1 + len(plan.visible))]
        try:
            self._config.set_visible_devices([], "GPU")
            self._config.set_logical_device_configuration(cpu, devices)
            threads = plan.cpu_threads
            if len(plan.roles) > 1:
                # Logical CPUs share two thread pools. One inter-op thread would serialise the devices; a share of
                # the cores for each operation keeps one device from taking the cores of the other.
                threads = threads or max(1, self._cores // len(plan.roles))
                self._config.threading.set_inter_op_parallelism_threads(max(2, len(plan.roles) + 1))
            if threads is not None:
                self._config.threading.set_intra_op_parallelism_threads(threads)
        except RuntimeError as error:
            raise already_initialised(error) from error

    def logical_devices(self) -> tuple[str, ...]:
        return short_names(self._config, "CPU")[1:]

    def memory_bytes(self, device: str) -> dict[str, int] | None:
        return None


def refuse_other_order(planned: Sequence[Gpu], details: Sequence[Mapping[str, Any]]) -> None:
    """TensorFlow's GPU of a number must be the driver's of that number: by its place on the PCI bus, or where this
    TensorFlow does not tell that, by its name."""
    what = "PCI bus"
    ours = [_short(gpu.bus_id) for gpu in planned]
    theirs = [_short(one.get("pci_bus_id")) for one in details]
    if None in ours or None in theirs:
        what, ours, theirs = "name", [gpu.name for gpu in planned], [one.get("device_name") for one in details]
        if sorted(map(str, ours)) != sorted(map(str, theirs)):
            return  # other words for the same GPUs say nothing about their order
    for gpu, known, found in zip(planned, ours, theirs, strict=True):
        if known != found:
            raise DeviceError(
                f"GPU {gpu.index} has {what} {known} to the driver and {found} to TensorFlow",
                hint="they count in different orders: import myxtts before anything else that uses CUDA",
            )


def _short(bus_id: str | None) -> str | None:
    """Bus, device and function: NVML writes the domain with eight digits, CUDA with four."""
    return None if bus_id is None else bus_id.lower().split(":", 1)[-1]


def _cpu_was_asked_for() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


def _unknown_to_the_driver(count: int) -> DeviceError:
    """A plan for the CPU beside GPUs: hours on the wrong device, unless it is said."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    cause = "" if chosen is None else f" (CUDA_VISIBLE_DEVICES is {chosen!r})"
    return DeviceError(
        f"TensorFlow sees {count} GPU(s), and the driver's management library (NVML) lists none of them{cause}",
        hint="slices of a GPU (MIG) cannot be planned with: name whole GPUs in CUDA_VISIBLE_DEVICES; where NVML itself "
        "fails, nvidia-smi says why; to use the CPU instead: CUDA_VISIBLE_DEVICES=-1",
    )


def short_names(tf_config: Any, kind: str) -> tuple[str, ...]:
    return tuple(f"/{kind}:{device.name.rsplit(':', 1)[1]}" for device in tf_config.list_logical_devices(kind))


def already_initialised(error: RuntimeError) -> DeviceError:
    return DeviceError(f"TensorFlow was already initialised by this program: {error}", hint=ALREADY_INITIALISED_HINT)


def import_tensorflow() -> Any:
    """TensorFlow, without its greetings, or a clear error where it is not installed."""
    try:
        with _without_greetings(), _without_scikit_learn():
            import tensorflow
    except ImportError as error:
        raise MissingDependencyError(
            f"TensorFlow cannot be imported: {error}",
            hint=f"{how_to_install('cpu')}; for NVIDIA GPUs '.[gpu]'",
        ) from error
    return tensorflow


@contextmanager
def _without_scikit_learn() -> Iterator[None]:
    """Keras loads scikit-learn, where it is installed, for wrappers that nothing here uses: a third of the import."""
    if "sklearn" in sys.modules:
        yield
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["sklearn"]


_GREETINGS = (
    b"absl::InitializeLog",
    b"oneDNN custom operations are on",
    b"cpu_feature_guard",
    b"To enable the following",
)


@contextmanager
def _without_greetings() -> Iterator[None]:
    """Lines that TensorFlow's libraries write to standard error as they load, whatever the log level, are held back.

    Everything else that was written meanwhile is passed on, also when the import fails.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            for line in written:
                if not any(greeting in line for greeting in _GREETINGS):
                    os.write(2, line)
