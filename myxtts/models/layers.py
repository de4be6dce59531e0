"""The small layers that the model's parts are made of, and the operations that they share.

Weights lie [in, out], and their names are the paths of the parts: "gpt/block_1/qkv/kernel". Sizes in names: B batch,
T time, D width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
import tensorflow as tf

from myxtts.errors import DeviceError

MASKED = -1e9
"""Added to a score that must not count: its exponential is 0 beside any other."""


@contextmanager
def layers_in(precision: str) -> Iterator[None]:
    """Layers made in here compute in this precision: each takes the policy of its making."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


def float32_layers() -> AbstractContextManager[None]:
    """Layers made in here compute in float32 whatever `--mixed-precision` says."""
    return layers_in("float32")


class Module(keras.layers.Layer):  # type: ignore[misc]
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

    def parts(self) -> list[Module]:
        """The parts that this one is made of, in the order in which they were set."""
        values = [value if isinstance(value, list) else [value] for value in vars(self).values()]
        # Keras holds its own list of the same layers among the attributes.
        return list({id(item): item for group in values for item in group if isinstance(item, Module)}.values())

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


class Linear(Module):
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
    padding = gradient_padding(kernel)
    kernel = tf.convert_to_tensor(kernel)
    if x.shape.rank == 2:
        y = tf.matmul(x, kernel)
        # Few rows: the fused kernel that `bias_add` would become is slower here than a plain product and a sum.
        return y if bias is None else tf.add_n([y, tf.broadcast_to(tf.convert_to_tensor(bias), tf.shape(y))])
    x_ND = tf.reshape(x, [-1, kernel.shape[0]])
    weights = (kernel,) if bias is None else (kernel, tf.convert_to_tensor(bias))
    y = _padded_product(x_ND, *weights) if padding else _product(x_ND, *weights)
    return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))


def gradient_padding(kernel: Any) -> bool:
    """True where a side of the kernel is a multiple of 1024 and it lies on a CPU.

    The gradient of such a kernel is a sum over thousands of positions into rows 4096 bytes apart, which a CPU's caches
    take for one another: it runs at half the speed of its neighbours (40 instead of 75 GFLOP/s).
    """
    return on_cpu(kernel) and any(side % 1024 == 0 for side in kernel.shape)


def on_cpu(weight: Any) -> bool:
    return "CPU" in str(getattr(getattr(weight, "value", weight), "device", "")).upper()


def _product(x_ND: tf.Tensor, kernel_DE: tf.Tensor, bias_E: tf.Tensor | None = None) -> tf.Tensor:
    y_NE = tf.matmul(x_ND, kernel_DE)
    return y_NE if bias_E is None else tf.nn.bias_add(y_NE, bias_E)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _padded_product(x_ND: tf.Tensor, kernel_DE: tf.Tensor, *bias_E: tf.Tensor) -> Any:
    def gradient(d_y_NE: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Without this TensorFlow pads x while it goes forward, and remembers the copy.
        with tf.control_dependencies([d_y_NE]):
            d_kernel = _padded_kernel_gradient(x_ND, d_y_NE)
        d_bias = [tf.raw_ops.BiasAddGrad(out_backprop=d_y_NE)] if bias_E else []
        return tf.matmul(d_y_NE, kernel_DE, transpose_b=True), d_kernel, *d_bias

    return _product(x_ND, kernel_DE, *bias_E), gradient


def _padded_kernel_gradient(x_ND: tf.Tensor, d_y_NE: tf.Tensor) -> tf.Tensor:
    """x^T dy with 16 more columns where 1024 of them would lie in a row."""
    padded = (tf.pad(x, [[0, 0], [0, 0 if x.shape[1] % 1024 else 16]]) for x in (x_ND, d_y_NE))
    return tf.matmul(*padded, transpose_a=True)[: x_ND.shape[1], : d_y_NE.shape[1]]


class Embedding(Module):
    def __init__(self, rows: int, width: int, *, std: float = 0.02, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.declare("table", (rows, width), normal(std))

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.convert_to_tensor(self.table), ids)

    def first(self, count: tf.Tensor | int) -> tf.Tensor:
        """The first rows, for positions 0, 1, 2, ..., as `call` gives rows: also to those outside any layer's call."""
        return tf.cast(tf.convert_to_tensor(self.table)[:count], self.compute_dtype)


def in_float32(normalise: Callable[..., tf.Tensor], x: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
    """A norm of x in float32 whatever x is, returned in x's type: 16 bits hold neither its sums nor its squares."""
    return tf.cast(normalise(*(tf.cast(value, tf.float32) for value in (x, *weights))), x.dtype)


class LayerNorm(Module):
    def __init__(self, width: int, *, epsilon: float = 1e-5, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.epsilon = epsilon
        self.declare("gamma", (width,), "ones")
        self.declare("beta", (width,), "zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return layer_norm(x, tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta), self.epsilon)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = 1e-5) -> tf.Tensor:
    """Normalise the last axis. The gradient is written out: a third of the passes over memory that autodiff makes."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        unit, inverse = _unit(x, epsilon)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            axes = list(range(x.shape.rank - 1))
            d_gamma = tf.reduce_sum(upstream * unit, axes)
            d_beta = tf.reduce_sum(upstream, axes)
            d_unit = upstream * gamma
            along = tf.reduce_mean(d_unit * unit, -1, keepdims=True)
            d_x = (d_unit - tf.reduce_mean(d_unit, -1, keepdims=True) - unit * along) * inverse
            return d_x, d_gamma, d_beta

        return unit * gamma + beta, gradient

    return in_float32(normalise, x, gamma, beta)


def normalised(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = 1e-5) -> tf.Tensor:
    """`layer_norm` where no gradient is wanted: its frame costs a few operations, which count for a single row."""
    return _unit(x, epsilon)[0] * gamma + beta


def _unit(x: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """x with mean 0 and variance 1 along its last axis, and what it was multiplied by."""
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    return centred * inverse, inverse


class GroupNorm(Module):
    """Normalise groups of channels over channels and time; frames beyond a clip's length do not count."""

    def __init__(self, width: int, *, epsilon: float = 1e-5, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.groups = group_count(width)
        self.epsilon = epsilon
        self.declare("gamma", (width,), "ones")
        self.declare("beta", (width,), "zeros")

    def call(self, x_BTD: tf.Tensor, mask_BT: tf.Tensor | None = None) -> tf.Tensor:
        weight_BT1 = None if mask_BT is None else tf.cast(mask_BT, tf.float32)[:, :, None]
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        return group_norm(x_BTD, gamma, beta, weight_BT1, self.groups, self.epsilon)


def group_norm(
    x_BTD: tf.Tensor,
    gamma_D: tf.Tensor,
    beta_D: tf.Tensor,
    weight_BT1: tf.Tensor | None,
    groups: int,
    epsilon: float = 1e-5,
) -> tf.Tensor:
    """`GroupNorm` with its gradient written out; sums over time come first and leave little to sum over channels."""

    def counted(x: tf.Tensor) -> tf.Tensor:
        return x if weight_BT1 is None else x * weight_BT1

    def over_group(sums_BD: tf.Tensor) -> tf.Tensor:
        """Each channel's place gets its group's sum, [B, 1, D]."""
        width = gamma_D.shape[0]
        sums_BG = tf.reduce_sum(tf.reshape(sums_BD, [-1, groups, width // groups]), -1)
        return tf.repeat(sums_BG, width // groups, axis=1)[:, None]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        frames = tf.cast(tf.shape(x)[1], x.dtype) if weight_BT1 is None else tf.reduce_sum(weight_BT1, [1], True)
        count = tf.maximum(frames, 1) * (x.shape[-1] // groups)
        centred = x - over_group(tf.reduce_sum(counted(x), 1)) / count
        variance_B1D = over_group(tf.reduce_sum(counted(tf.square(centred)), 1)) / count
        inverse_B1D = tf.math.rsqrt(variance_B1D + epsilon)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            sums_BD = tf.reduce_sum(upstream, 1)
            along_BD = tf.reduce_sum(upstream * centred, 1) * inverse_B1D[:, 0]
            shared = over_group(sums_BD * gamma) * inverse_B1D / count
            slope = over_group(along_BD * gamma) * tf.square(inverse_B1D) / count
            d_x = upstream * (inverse_B1D * gamma) - counted(centred * slope + shared)
            return d_x, tf.reduce_sum(along_BD, 0), tf.reduce_sum(sums_BD, 0)

        return centred * (inverse_B1D * gamma) + beta, gradient

    return in_float32(normalise, x_BTD, gamma_D, beta_D)


def group_count(width: int) -> int:
    """32 groups, fewer for narrow layers or where 32 does not divide the width (XTTS v2's rule)."""
    groups = 8 if width <= 16 else 16 if width <= 64 else 32
    return math.gcd(width, groups)


class RMSNorm(Module):
    """x scaled to the length sqrt(width), times gamma."""

    def __init__(self, width: int, **keras_options: Any) -> None:
        super().__init__(**keras_options)
        self.declare("gamma", (width,), "ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return rms_norm(x, tf.convert_to_tensor(self.gamma))


def rms_norm(x: tf.Tensor, gamma_D: tf.Tensor) -> tf.Tensor:
    def normalise(x: tf.Tensor, gamma_D: tf.Tensor) -> tf.Tensor:
        square = tf.reduce_sum(tf.square(x), -1, keepdims=True)
        return x * tf.math.rsqrt(tf.maximum(square, 1e-24)) * (math.sqrt(gamma_D.shape[0]) * gamma_D)

    return in_float32(normalise, x, gamma_D)


_GELU_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715


@tf.custom_gradient  # type: ignore[untyped-decorator]
def gelu_tanh(x: tf.Tensor) -> Any:
    """GPT-2's GELU, written with a sigmoid: 0.5 (1 + tanh u) = sigmoid 2u, which saves passes over memory."""
    gate = _gelu_gate(x)
    return x * gate, lambda upstream: _gelu_gradient(x, gate, upstream)


def gelu_forward(x: tf.Tensor) -> tf.Tensor:
    """`gelu_tanh` where no gradient is wanted."""
    return x * _gelu_gate(x)


def gelu_linear(x: tf.Tensor, kernel: Any, bias: Any) -> tf.Tensor:
    """`linear` of `gelu_tanh`, which remembers x alone: the rest is made again, a fifth of a block's memory."""
    padding = gradient_padding(kernel)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def product(x_ND: tf.Tensor, kernel_DE: tf.Tensor, bias_E: tf.Tensor) -> Any:
        def gradient(d_y_NE: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # Without this TensorFlow makes the gate again while it goes forward.
            with tf.control_dependencies([d_y_NE]):
                gate = _gelu_gate(x_ND)
                active_ND = x_ND * gate
                d_kernel = (
                    _padded_kernel_gradient(active_ND, d_y_NE)
                    if padding
                    else tf.matmul(active_ND, d_y_NE, transpose_a=True)
                )
                d_active = tf.matmul(d_y_NE, kernel_DE, transpose_b=True)
                return _gelu_gradient(x_ND, gate, d_active), d_kernel, tf.raw_ops.BiasAddGrad(out_backprop=d_y_NE)

        return _product(x_ND * _gelu_gate(x_ND), kernel_DE, bias_E), gradient

    kernel = tf.convert_to_tensor(kernel)
    y = product(tf.reshape(x, [-1, kernel.shape[0]]), kernel, tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))


def _gelu_gate(x: tf.Tensor) -> tf.Tensor:
    return tf.sigmoid(x * (_GELU_SLOPE + (_GELU_SLOPE * _GELU_CUBE) * tf.square(x)))


def _gelu_gradient(x: tf.Tensor, gate: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    # In float32: 16 bits have no number for the slope's product from |x| = 68 on, and no gate makes 0 of infinity.
    wide, x, gate = (tf.cast(tensor, tf.float32) for tensor in (upstream, x, gate))
    slope = _GELU_SLOPE + (3.0 * _GELU_SLOPE * _GELU_CUBE) * tf.square(x)
    return tf.cast(wide * gate * (1.0 + x * (1.0 - gate) * slope), upstream.dtype)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None, site: int) -> tf.Tensor:
    """Drop a share of x, decided by (seed, site) alone; nothing where there is no seed or no rate."""
    kept = None if seed is None else dropout_mask(tf.shape(x), rate, seed, site)
    if kept is None:
        return x

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def thin(x: tf.Tensor) -> Any:
        def thinned(x: tf.Tensor) -> tf.Tensor:
            return tf.where(kept, x, tf.zeros([], x.dtype)) * dropout_scale(rate)

        return thinned(x), thinned

    return thin(x)


def dropout_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor, site: int) -> tf.Tensor | None:
    """True for what stays; None where everything does.

    One 32-bit random number decides four values, so the share is a multiple of 1/256 and random numbers, the larger
    part of dropout's cost on a CPU, cost a quarter.
    """
    threshold = round(rate * 256)
    if threshold == 0:
        return None
    count = tf.reduce_prod(shape)
    seed = tf.random.experimental.stateless_fold_in(seed, site)
    words = tf.random.stateless_uniform([(count + 3) // 4], seed, None, None, tf.int32)
    bytes_ = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:count]
    return tf.reshape(bytes_, shape) >= tf.constant(threshold, tf.uint8)


def dropout_scale(rate: float) -> float:
    """What is kept grows by this, so that the mean stays."""
    return 256.0 / (256 - round(rate * 256))


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
