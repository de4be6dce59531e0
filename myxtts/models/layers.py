"""The small layers that the model's parts are made of, and the operations that they share.

Weights lie [in, out], and their names are the paths of the parts: "gpt/block_1/qkv/kernel". Sizes in names: B batch, T time, D width, H heads.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from myxtts.errors import DeviceError

MASKED = -1e9
"""Added to a score that must not count; exp of it is 0 in every precision that we use after the row's maximum is taken."""


class Part(keras.layers.Layer):  # type: ignore[misc]
    """A layer that declares its weights and makes them, and those of the parts in it, in `build()`.

    Build the outermost part under the device scope that its weights should live under.
    """

    def __init__(self, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self._declared: list[tuple[str, tuple[int, ...], Any]] = []

    def declare(self, name: str, shape: tuple[int, ...], initializer: Any) -> None:
        """A trainable weight that `build` makes the attribute `name`."""
        self._declared.append((name, shape, initializer))

    def build(self, input_shape: Any = None) -> None:
        for name, shape, initializer in self._declared:
            variable = self.add_weight(name=name, shape=tuple(shape), initializer=initializer)
            refuse_half_precision_on_cpu(self.compute_dtype, str(getattr(variable.value, "device", "")))
            setattr(self, name, variable)
        for part in self.parts():
            part.build()
        self.built = True

    def parts(self) -> list[Part]:
        """The parts that this one is made of, in the order in which they were set."""
        values = [value if isinstance(value, list) else [value] for value in vars(self).values()]
        # Keras holds its own list of the same layers among the attributes.
        return list({id(item): item for group in values for item in group if isinstance(item, Part)}.values())

    def declared_parameters(self) -> int:
        """How many numbers the weights hold, known before they exist."""
        own = sum(math.prod(shape) for _, shape, _ in self._declared)
        return own + sum(part.declared_parameters() for part in self.parts())


def refuse_half_precision_on_cpu(compute_dtype: str | None, device: str) -> None:
    """Plain 16-bit matrix products on a CPU end the process with an illegal instruction; say no before that."""
    if compute_dtype in ("float16", "bfloat16") and "CPU" in device.upper():
        raise DeviceError(
            f"--mixed-precision computes in {compute_dtype}, and the model is on {device}",
            hint="leave --mixed-precision out on a CPU, or put the model on a GPU with --model-gpu",
        )


def normal(std: float) -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=std)


class Linear(Part):
    """x @ kernel + bias over the last axis."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, std: float = 0.02, **keras_options: Any
    ) -> None:
        super().__init__(**keras_options)
        self.declare("kernel", (inputs, outputs), normal(std) if std else "zeros")
        self.bias = None
        if bias:
            self.declare("bias", (outputs,), "zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return linear(x, self.kernel, self.bias)


def linear(x: tf.Tensor, kernel: Any, bias: Any | None) -> tf.Tensor:
    """One matrix product over all leading axes at once, and a fusable bias."""
    kernel = tf.convert_to_tensor(kernel)
    rows = tf.reshape(x, [-1, kernel.shape[0]])
    y = tf.matmul(rows, kernel)
    if bias is not None:
        y = tf.nn.bias_add(y, tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0)) if x.shape.rank != 2 else y


class Embedding(Part):
    def __init__(self, rows: int, width: int, *, std: float = 0.02, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.declare("table", (rows, width), normal(std))

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.convert_to_tensor(self.table), ids)

    def first(self, count: tf.Tensor | int) -> tf.Tensor:
        """The first rows, for positions 0, 1, 2, ..."""
        return tf.convert_to_tensor(self.table)[:count]


class LayerNorm(Part):
    def __init__(self, width: int, *, epsilon: float = 1e-5, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.epsilon = epsilon
        self.declare("gamma", (width,), "ones")
        self.declare("beta", (width,), "zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return layer_norm(x, tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta), self.epsilon)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = 1e-5) -> tf.Tensor:
    """Normalise the last axis. The gradient is written out: a third of the passes over memory that autodiff makes."""

    @tf.custom_gradient
    def normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        unit = centred * inverse

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            axes = list(range(x.shape.rank - 1))
            d_gamma = tf.reduce_sum(upstream * unit, axes)
            d_beta = tf.reduce_sum(upstream, axes)
            d_unit = upstream * gamma
            along = tf.reduce_mean(d_unit * unit, -1, keepdims=True)
            d_x = (d_unit - tf.reduce_mean(d_unit, -1, keepdims=True) - unit * along) * inverse
            return d_x, d_gamma, d_beta

        return unit * gamma + beta, gradient

    return normalise(x, gamma, beta)


class GroupNorm(Part):
    """Normalise groups of channels over channels and time; frames beyond a clip's length do not count."""

    def __init__(self, width: int, *, epsilon: float = 1e-5, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.groups = group_count(width)
        self.epsilon = epsilon
        self.declare("gamma", (width,), "ones")
        self.declare("beta", (width,), "zeros")

    def call(self, x_BTD: tf.Tensor, mask_BT: tf.Tensor | None = None) -> tf.Tensor:
        x_BTGC = tf.reshape(x_BTD, tf.concat([tf.shape(x_BTD)[:2], [self.groups, x_BTD.shape[-1] // self.groups]], 0))
        if mask_BT is None:
            mean = tf.reduce_mean(x_BTGC, [1, 3], keepdims=True)
            variance = tf.reduce_mean(tf.square(x_BTGC - mean), [1, 3], keepdims=True)
        else:
            weight = tf.cast(mask_BT, x_BTD.dtype)[:, :, None, None]
            frames = tf.reduce_sum(weight, [1, 3], keepdims=True)
            count = tf.maximum(frames, 1) * (x_BTD.shape[-1] // self.groups)
            mean = tf.reduce_sum(x_BTGC * weight, [1, 3], keepdims=True) / count
            variance = tf.reduce_sum(tf.square(x_BTGC - mean) * weight, [1, 3], keepdims=True) / count
        unit = tf.reshape((x_BTGC - mean) * tf.math.rsqrt(variance + self.epsilon), tf.shape(x_BTD))
        return unit * tf.convert_to_tensor(self.gamma) + tf.convert_to_tensor(self.beta)


def group_count(width: int) -> int:
    """32 groups, fewer for narrow layers or where 32 does not divide the width (XTTS v2's rule)."""
    groups = 8 if width <= 16 else 16 if width <= 64 else 32
    return math.gcd(width, groups)


class RMSNorm(Part):
    """x scaled to the length sqrt(width), times gamma."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.scale = math.sqrt(width)
        self.declare("gamma", (width,), "ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        square = tf.reduce_sum(tf.square(x), -1, keepdims=True)
        return x * tf.math.rsqrt(tf.maximum(square, 1e-24)) * (self.scale * tf.convert_to_tensor(self.gamma))


_GELU_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715


@tf.custom_gradient
def gelu_tanh(x: tf.Tensor) -> Any:
    """GPT-2's GELU, written with a sigmoid: 0.5 (1 + tanh u) = sigmoid 2u, which saves passes over memory."""
    gate = tf.sigmoid(x * (_GELU_SLOPE + (_GELU_SLOPE * _GELU_CUBE) * tf.square(x)))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        slope = _GELU_SLOPE + (3.0 * _GELU_SLOPE * _GELU_CUBE) * tf.square(x)
        return upstream * gate * (1.0 + x * (1.0 - gate) * slope)

    return x * gate, gradient


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None, site: int) -> tf.Tensor:
    """Drop a share of x, decided by (seed, site) alone; nothing where there is no seed or no rate.

    One 32-bit random number decides four values, so the share is a multiple of 1/256 and random numbers, the larger
    part of dropout's cost on a CPU, cost a quarter.
    """
    threshold = round(rate * 256)
    if seed is None or threshold == 0:
        return x
    count = tf.size(x)
    seed = tf.random.experimental.stateless_fold_in(seed, site)
    words = tf.random.stateless_uniform([(count + 3) // 4], seed, None, None, tf.int32)
    bytes_ = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:count]
    kept = tf.reshape(bytes_, tf.shape(x)) >= tf.constant(threshold, tf.uint8)
    return x * tf.where(kept, tf.constant(256.0 / (256 - threshold), x.dtype), tf.zeros([], x.dtype))


def split_heads(x_BTD: tf.Tensor, heads: int) -> tf.Tensor:
    """[B, T, D] to [B, H, T, D / H]."""
    shape = tf.shape(x_BTD)
    return tf.transpose(tf.reshape(x_BTD, [shape[0], shape[1], heads, x_BTD.shape[-1] // heads]), [0, 2, 1, 3])


def merge_heads(x_BHTd: tf.Tensor) -> tf.Tensor:
    """[B, H, T, d] to [B, T, H * d]."""
    shape = tf.shape(x_BHTd)
    return tf.reshape(tf.transpose(x_BHTd, [0, 2, 1, 3]), [shape[0], shape[2], x_BHTd.shape[1] * x_BHTd.shape[3]])


def length_mask(lengths_B: tf.Tensor, size: tf.Tensor | int) -> tf.Tensor:
    """True where an index is below the row's length."""
    return tf.range(size)[None, :] < tf.cast(lengths_B, tf.int32)[:, None]
