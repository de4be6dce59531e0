"""What a pipeline does with TensorFlow devices: work under one, copy to one, wait for one.

A device of None means "no device": the phase then runs on plain arrays and TensorFlow is never imported.
TensorFlow is imported when the first batch needs it, after the devices have been configured.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from myxtts.pipeline.batches import Tensors


def device_scope(device: str | None) -> AbstractContextManager[object]:
    """`tf.device(device)`, or nothing for None."""
    if device is None:
        return nullcontext()
    import tensorflow as tf

    scope: AbstractContextManager[object] = tf.device(device)
    return scope


def copy_to_device(tensors: Tensors, device: str | None, *, deep_copy: bool) -> Tensors:
    """Copies every tensor to `device`.

    `tf.identity` copies between GPUs, and does not copy at all between logical CPUs; `deep_copy`
    chooses `DeepCopy`, which does, so that a simulated run pays for its transfer like a real one.
    """
    if device is None:
        return tensors
    import tensorflow as tf

    with tf.device(device):
        if deep_copy:
            return {name: tf.raw_ops.DeepCopy(x=tensor) for name, tensor in tensors.items()}
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def synchronise(tensors: Tensors, device: str | None) -> None:
    """Returns when the work on `device` that made `tensors` is done.

    A GPU runs behind the thread that feeds it. Fetching one element waits for that GPU's stream up to the
    last output, which is what makes a phase's busy time true; the other devices are not waited for
    (`tf.experimental.sync_devices` would stop the model device too). CPU functions return when they are done.
    """
    if device is None or "GPU" not in device.upper():
        return
    import tensorflow as tf

    on_gpu = [t for t in tensors.values() if isinstance(t, tf.Tensor) and "GPU" in t.backing_device]
    if on_gpu:
        with tf.device(device):
            tf.reshape(on_gpu[-1], [-1])[:1].numpy()
