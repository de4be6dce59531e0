"""What a pipeline does with devices: work under one, wait for one, copy to some.

A GPU works behind the thread that feeds it, so that time on the host is not time on the device: what a phase has to
wait for to know the one from the other is here, behind `Devices`. A device of None means "no device": the phase then
runs on plain arrays and TensorFlow is never imported. TensorFlow is imported when the first batch needs it, after the
devices have been configured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from myxtts.pipeline.batches import Tensors


@dataclass(frozen=True, slots=True)
class Copied:
    """A batch on its devices."""

    replicas: tuple[Tensors, ...]
    waited_s: float = 0.0
    """Of the time that the call took, what was spent waiting for other work of the devices and not copying."""


class Devices(Protocol):
    """Devices by name."""

    def scope(self, device: str | None) -> AbstractContextManager[object]:
        """Work inside is the device's."""

    def finish(self, tensors: Tensors, device: str | None) -> None:
        """Returns when the device has computed `tensors`, whatever it and other devices have still to do."""

    def drain(self, device: str | None) -> None:
        """Returns when the device has done all that it was given so far."""

    def copy(self, replicas: Sequence[Tensors], devices: Sequence[str | None]) -> Copied:
        """Each mapping on its device; returns when it can be used there."""


class CopyTimes:
    """Tells a copy's own time from its wait, which no clock on the host can: the fastest copy so far did not wait.

    TensorFlow lets a copy between GPUs wait for what the receiving one has in its queue, at most the step at hand. The
    first copies of a run go to a model GPU that has nothing to do yet.
    """

    def __init__(self) -> None:
        self._least_s_per_byte = math.inf

    def waited_s(self, took_s: float, size_bytes: int) -> float:
        """How much of `took_s` a copy of this size has waited."""
        if size_bytes == 0:
            return 0.0
        self._least_s_per_byte = min(self._least_s_per_byte, took_s / size_bytes)
        return took_s - self._least_s_per_byte * size_bytes


class TensorFlowDevices:
    """TensorFlow's devices.

    A batch is copied inside one function that spans all devices which it is on: one wait for the receiving GPU's queue,
    and none for the sending one's, where an eager copy of each tensor waits for both. Between logical CPUs that copies
    nothing; `deep_copy` does, so that a simulated run pays for its transfer like a real one.
    """

    def __init__(self, *, deep_copy: bool = False) -> None:
        self._deep_copy = deep_copy
        self._functions: dict[Any, Callable[[Any], Any]] = {}
        self._times = CopyTimes()

    def scope(self, device: str | None) -> AbstractContextManager[object]:
        if device is None:
            return nullcontext()
        import tensorflow as tf

        scope: AbstractContextManager[object] = tf.device(device)
        return scope

    def finish(self, tensors: Tensors, device: str | None) -> None:
        """Fetches one element, which waits for that GPU's stream up to the last output and for no other device
        (`tf.experimental.sync_devices` would stop the model device too). CPU functions return when they are done."""
        if not _is_gpu(device):
            return
        import tensorflow as tf

        on_gpu = [t for t in tensors.values() if isinstance(t, tf.Tensor) and "GPU" in t.backing_device]
        if on_gpu:
            with tf.device(device):
                tf.reshape(on_gpu[-1], [-1])[:1].numpy()

    def drain(self, device: str | None) -> None:
        """Fetches what is computed last."""
        if not _is_gpu(device):
            return
        import tensorflow as tf

        with tf.device(device):
            tf.fill([1], 0.0).numpy()

    def copy(self, replicas: Sequence[Tensors], devices: Sequence[str | None]) -> Copied:
        if all(device is None for device in devices):
            return Copied(tuple(replicas))
        # What a function is traced for: names, types and the axes behind the first two.
        kinds = tuple(
            tuple((name, tensor.dtype, len(tensor.shape), tuple(tensor.shape[2:])) for name, tensor in tensors.items())
            for tensors in replicas
        )
        key = tuple(devices), kinds
        traced = key in self._functions
        if not traced:
            self._functions[key] = self._spanning(replicas, devices)
        began = time.perf_counter()
        with self.scope("/CPU:0"):  # the call itself; what it does is placed by its devices
            copies = tuple(self._functions[key](list(replicas)))
        took_s = time.perf_counter() - began
        if not traced or not any(_is_gpu(device) for device in devices):
            return Copied(copies)
        tensors = [tensor for own in replicas for tensor in own.values()]
        size_bytes = sum(math.prod(tensor.shape) * tensor.dtype.size for tensor in tensors)
        return Copied(copies, self._times.waited_s(took_s, size_bytes))

    def _spanning(self, replicas: Sequence[Tensors], devices: Sequence[str | None]) -> Callable[[Any], Any]:
        import tensorflow as tf

        from myxtts.runtime.strategy import specs_of_any_length

        def copy_of(tensor: Any) -> Any:
            return tf.raw_ops.DeepCopy(x=tensor) if self._deep_copy else tf.identity(tensor)

        def copied(parts: Sequence[Tensors]) -> list[dict[str, Any]]:
            made = []
            for tensors, device in zip(parts, devices, strict=True):
                with tf.device(device):
                    made.append({name: copy_of(tensor) for name, tensor in tensors.items()})
            return made

        function: Callable[[Any], Any] = tf.function(
            copied, autograph=False, input_signature=[[specs_of_any_length(tensors) for tensors in replicas]]
        )
        return function


def _is_gpu(device: str | None) -> bool:
    return device is not None and "GPU" in device.upper()
