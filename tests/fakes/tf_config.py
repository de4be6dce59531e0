"""A recording stand-in for `tf.config` with as many GPUs as a test wants.

The only fake in the project, because no machine of ours has a GPU. `tests/contract/test_tf_config_fake.py` runs the
same cases against it and against the real `tf.config` of the installed TensorFlow: what is in those cases cannot drift
unnoticed, what is not can. Which logical GPUs the runtime makes and how much memory it counts is believed here, and
shown only by `pytest -m gpu` on a machine that has some.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

PhysicalDevice = namedtuple("PhysicalDevice", "name device_type")
LogicalDevice = namedtuple("LogicalDevice", "name device_type")


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    memory_limit: int | None = None


@dataclass
class _Experimental:
    owner: FakeTfConfig

    def set_memory_growth(self, device: PhysicalDevice, enable: bool) -> None:
        self.owner.refuse_unknown(device)
        if self.owner.virtual.get(device):
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        if device.device_type != "GPU":
            raise ValueError("Cannot set memory growth on non-GPU and non-Pluggable devices")
        if self.owner.growth.get(device) == enable:
            return
        self.owner.refuse_if_initialised("Physical")
        self.owner.growth[device] = enable
        self.owner.calls.append(("growth", device.name, enable))

    def get_memory_info(self, device: str) -> dict[str, int]:
        if self.owner.lost_after is not None:
            self.owner.lost_after -= 1
            if self.owner.lost_after < 0:
                raise RuntimeError("INTERNAL: CUDA error: GPU is lost")
        kind, index = device.split(":")
        names = [d.name for d in self.owner.list_logical_devices(kind)]
        if f"/device:{kind}:{index}" not in names:
            raise ValueError(f"No matching devices found for '{device}'")
        return {"current": 0, "peak": 0} if kind == "CPU" else {"current": 300 * 2**20, "peak": 400 * 2**20}

    def get_device_details(self, device: PhysicalDevice) -> dict[str, Any]:
        self.owner.refuse_unknown(device)
        return self.owner.details[int(device.name.rsplit(":", 1)[1])] if self.owner.details else {}

    def set_device_policy(self, policy: str | None) -> None:
        self.owner.calls.append(("policy", policy))


@dataclass
class _Threading:
    owner: FakeTfConfig
    intra: int = 0
    inter: int = 0

    def set_intra_op_parallelism_threads(self, count: int) -> None:
        if count != self.intra:
            self.owner.refuse_if_initialised("Intra op parallelism")
        self.intra = count

    def set_inter_op_parallelism_threads(self, count: int) -> None:
        if count != self.inter:
            self.owner.refuse_if_initialised("Inter op parallelism")
        self.inter = count


@dataclass
class FakeTfConfig:
    gpu_count: int
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    virtual: dict[PhysicalDevice, list[LogicalDeviceConfiguration]] = field(default_factory=dict)
    growth: dict[PhysicalDevice, bool] = field(default_factory=dict)
    soft_placement: bool = True
    details: list[dict[str, Any]] = field(default_factory=list)
    """What TensorFlow says of each GPU; the runtime's to know."""
    lost_after: int | None = None
    """Memory readings after which the GPUs do not answer."""
    initialised: bool = False

    LogicalDeviceConfiguration = LogicalDeviceConfiguration

    def __post_init__(self) -> None:
        self.experimental = _Experimental(self)
        self.threading = _Threading(self)
        self.visible = {
            "CPU": [PhysicalDevice("/physical_device:CPU:0", "CPU")],
            "GPU": [PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(self.gpu_count)],
        }
        self._physical = {kind: list(devices) for kind, devices in self.visible.items()}

    def initialise(self) -> None:
        growing = {self.growth.get(gpu) for gpu in self.visible["GPU"]}
        if len(growing) > 1 and not any(gpu in self.virtual for gpu in self.visible["GPU"]):
            raise ValueError("Memory growth cannot differ between GPU devices")
        self.initialised = True

    def refuse_if_initialised(self, what: str) -> None:
        if self.initialised:
            raise RuntimeError(f"{what} devices cannot be modified after being initialized")

    def refuse_unknown(self, device: PhysicalDevice) -> None:
        if device not in self._physical.get(device.device_type, []):
            raise ValueError(f"Unrecognized device: {device!r}")

    def gpus_in_order(self) -> list[int]:
        """Physical numbers of the visible GPUs, in the order of their logical ones."""
        return [int(gpu.name.rsplit(":", 1)[1]) for gpu in self.visible["GPU"]]

    def list_physical_devices(self, kind: str) -> list[PhysicalDevice]:
        return list(self._physical[kind])

    def set_visible_devices(self, devices: list[PhysicalDevice], kind: str) -> None:
        for device in devices:
            self.refuse_unknown(device)
        # TensorFlow numbers visible devices in ascending physical order whatever the order of the list.
        visible = [device for device in self._physical[kind] if device in devices]
        if visible == self.visible[kind]:
            return
        self.refuse_if_initialised("Visible")
        self.visible[kind] = visible
        self.calls.append(("visible", kind, [device.name for device in visible]))

    def get_visible_devices(self, kind: str) -> list[PhysicalDevice]:
        return list(self.visible[kind])

    def set_logical_device_configuration(
        self, device: PhysicalDevice, configurations: list[LogicalDeviceConfiguration]
    ) -> None:
        self.refuse_unknown(device)
        if device.device_type == "CPU" and any(c.memory_limit is not None for c in configurations):
            raise ValueError("Setting memory limit on CPU virtual devices is currently not supported")
        if device.device_type == "GPU" and any(c.memory_limit is None for c in configurations):
            raise ValueError("Setting memory limit is required for GPU virtual devices")
        if self.virtual.get(device) == configurations:
            return
        self.refuse_if_initialised("Virtual")
        self.virtual[device] = configurations
        self.calls.append(("virtual", device.name, [c.memory_limit for c in configurations]))

    def list_logical_devices(self, kind: str) -> list[LogicalDevice]:
        self.initialise()
        count = sum(len(self.virtual.get(device, [None])) for device in self.visible[kind])
        return [LogicalDevice(f"/device:{kind}:{i}", kind) for i in range(count)]

    def set_soft_device_placement(self, enabled: bool) -> None:
        self.soft_placement = enabled
