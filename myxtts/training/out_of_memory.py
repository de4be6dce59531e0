"""A device that ran out of memory, in words: which, how much was asked, within which limit, and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from myxtts.config.data import DataConfig
from myxtts.config.training import Stage
from myxtts.errors import TrainingError
from myxtts.runtime.plan import DevicePlan, DeviceRole
from myxtts.training.run_folder import disk_full_hint

_TENSOR = re.compile(r"allocating tensor with shape\[([\d,]*)\] and type (\w+)")
_BYTES = re.compile(r"(?:allocate|allocating) (\d+) bytes")
_FULL_DISK = "No space left on device"
_DEVICE = re.compile(r"device:([A-Z]+:\d+)")
_BESIDE_TENSORFLOW = re.compile(
    r"No algorithm (?:without scratch )?worked|(?:CUDNN|CUBLAS|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED"
    r"|CUFFT_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|NCCL\b.*?(?:unhandled cuda error|out of memory)",
    re.IGNORECASE,
)
"""What cuDNN, cuBLAS, cuFFT, NCCL and the driver say; TensorFlow raises it as one of several kinds of error."""


def ran_out_of_memory(error: Exception) -> bool:
    """Whether it is one of the faces of a device, or a disk, that is full."""
    return isinstance(error, tf.errors.ResourceExhaustedError) or bool(_BESIDE_TENSORFLOW.search(str(error)))


def out_of_memory(error: Exception, plan: DevicePlan, batch: str) -> TrainingError:
    """`batch` says in words what was being worked on; the device and the size are TensorFlow's own.

    TensorFlow has one error for every resource that is used up, a disk's space among them.
    """
    message = str(error)
    if _FULL_DISK in message:
        return TrainingError(f"a disk is full: {message.splitlines()[0]}", hint=disk_full_hint())
    role = _role_of(message, plan)
    limit_flag, library = f"--{role.role}-gpu-memory", _BESIDE_TENSORFLOW.search(message)
    limited = role.memory_limit_mb is not None
    limit = f", its limit is {limit_flag} {role.memory_limit_mb}" if limited else ""
    asked = f"a library beside TensorFlow got none ({library[0]})" if library is not None else asked_for(message)
    # TensorFlow's memory is within the limit, a library's outside of it.
    change = f"{'lower' if library is not None else 'raise'} {limit_flag}, " if limited else ""
    return TrainingError(
        f"{role.role} device {role.label} is out of memory: {asked} on {batch}{limit}",
        hint="lower --batch-size or --batch-seconds (and raise --grad-accum to keep the sum), "
        + change
        + "or lower --max-clip-seconds; a run that has saved a checkpoint wants another --run-dir for that, or --fresh",
    )


def batch_in_words(tensors: Mapping[str, Any]) -> str:
    """How many clips, and what each tensor measures."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    clips = next(iter(shapes.values()))[0]
    return f"a batch of {clips} clips ({', '.join(f'{name} {shape}' for name, shape in shapes.items())})"


def limits_in_words(limits: DataConfig, stage: Stage) -> str:
    """A batch that is not at hand, by how large it may be."""
    clips = [] if limits.batch_size is None else [f"{limits.batch_size} clips"]
    seconds = [] if limits.batch_seconds is None else [f"{limits.batch_seconds:g} s of audio"]
    return f"a batch of {' and '.join(clips + seconds)} of stage {stage}"


def asked_for(message: str) -> str:
    """How much TensorFlow wanted at once, from its own words; the words where they hold no number."""
    if found := _TENSOR.search(message):
        shape = [int(size) for size in found[1].split(",") if size]
        return f"{_words(math.prod(shape) * tf.as_dtype(found[2]).size)} were asked for a {found[2]} tensor of {shape}"
    if found := _BYTES.search(message):
        return f"{_words(int(found[1]))} were asked for"
    return message.splitlines()[0] if message else "how much was asked is not known"


def _role_of(message: str, plan: DevicePlan) -> DeviceRole:
    """The role whose device the message names; the model's, which holds the most, where it names none of ours."""
    named = set(_DEVICE.findall(message))
    return next((role for role in plan.roles if role.name.lstrip("/") in named), plan.model)


def _words(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:,.1f} GB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:,.1f} MB"
