"""Convolutions over time on a CPU with half the multiplications: Toom-Cook's algorithm, four outputs at a time.

Four outputs of four taps are sixteen products, but seven when signal and taps are taken as polynomials, evaluated at
seven points and multiplied there. Longer kernels are cut into blocks of four taps that add up before the way back, so
what the two changes of basis cost is paid once. Rounding errors are some ten times those of a plain convolution, 1e-5.

Shapes: B clips, T time, C and O channels in and out, K taps, G blocks of taps, N tiles of four samples, P points,
d phases of a dilation (samples that far apart are neighbours; each phase is a signal of its own).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

TILE = 4
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5)
"""And infinity, which is the highest coefficient."""
LEAST_WORK = 700
"""Channels times taps from which it pays; below, changing the bases takes longer than the products saved."""


def _bases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices of samples [P, P], taps [P, 4] and outputs [4, P], from Vandermonde's at the points."""

    def values_at_points(width: int) -> np.ndarray:
        infinity = np.eye(1, width, width - 1)
        return np.concatenate([np.vander(POINTS, width, increasing=True), infinity])

    samples = np.linalg.inv(values_at_points(len(POINTS) + 1)).T
    scale = np.abs(samples).max(axis=1, keepdims=True)
    return samples / scale, values_at_points(TILE) * scale, values_at_points(TILE).T


FROM_SAMPLES, FROM_TAPS, TO_OUTPUTS = (matrix.astype(np.float32) for matrix in _bases())


def pays(kernel_1KCO: tf.Tensor) -> bool:
    """Whether `fast_conv` is faster than `plain_conv`; kernels of one block save too little."""
    _, taps, channels, _ = kernel_1KCO.shape
    return bool(taps > TILE and taps * channels >= LEAST_WORK)


def plain_conv(x_BHWC: tf.Tensor, kernel: tf.Tensor, padding: str, dilation: int = 1) -> tf.Tensor:
    """A convolution by Eigen: oneDNN takes over `tf.nn.conv2d`, and without AVX-512 needs 1.6 times as long for these.

    It has no gradient.
    """
    return tf.raw_ops.Conv(
        input=x_BHWC, filter=kernel, strides=[1, 1, 1, 1], padding=padding, dilations=[1, 1, dilation, 1]
    )


@tf.function(autograph=False)  # type: ignore[untyped-decorator]
def fast_conv(x_B1TC: tf.Tensor, kernel_1KCO: tf.Tensor, dilation: int = 1) -> tf.Tensor:
    """As `tf.nn.conv2d(x, kernel, 1, "SAME", dilations=dilation)`.

    A function of its own, so that layers of one shape are traced once: a decoder has 43 of 16 shapes.
    """
    _, taps, channels, made_channels = kernel_1KCO.shape
    blocks = -(-taps // TILE)
    shape = tf.shape(x_B1TC)
    batch, time = shape[0], shape[2]
    tiles = (time - 1) // (dilation * TILE) + 1
    before = (taps - 1) // 2 * dilation
    after = (tiles + blocks) * TILE * dilation - time - before
    padded = tf.pad(x_B1TC, [[0, 0], [0, 0], [before, after], [0, 0]])
    tiled_4BND = tf.transpose(tf.reshape(padded, [batch, -1, TILE, dilation * channels]), [2, 0, 1, 3])
    # A tile and the three samples behind it.
    reached_PBND = tf.concat([tiled_4BND[:, :, :-1], tiled_4BND[: TILE - 1, :, 1:]], 0)
    points_PX = tf.matmul(FROM_SAMPLES, tf.reshape(reached_PBND, [len(FROM_SAMPLES), -1]))
    points_PBNdC = tf.reshape(points_PX, [len(FROM_SAMPLES), batch, -1, dilation, channels])
    products_PBNdO = tf.stack(
        [
            plain_conv(point_BNdC, kernel_G1CO, "VALID")
            for point_BNdC, kernel_G1CO in zip(
                tf.unstack(points_PBNdC), tf.unstack(_kernels(kernel_1KCO, blocks)), strict=True
            )
        ]
    )
    outputs_4X = tf.matmul(TO_OUTPUTS, tf.reshape(products_PBNdO, [len(FROM_SAMPLES), -1]))
    made_4BND = tf.reshape(outputs_4X, [TILE, batch, tiles, dilation * made_channels])
    made = tf.reshape(tf.transpose(made_4BND, [1, 2, 0, 3]), [batch, 1, -1, made_channels])
    return made[:, :, :time]


def _kernels(kernel_1KCO: tf.Tensor, blocks: int) -> tf.Tensor:
    """The taps at the points, [P, G, 1, C, O]: 15 ms for all of a decoder, so it is done at every call."""
    _, taps, channels, made_channels = kernel_1KCO.shape
    padded = tf.pad(kernel_1KCO[0], [[0, blocks * TILE - taps], [0, 0], [0, 0]])
    taps_4X = tf.reshape(tf.transpose(tf.reshape(padded, [blocks, TILE, -1]), [1, 0, 2]), [TILE, -1])
    return tf.reshape(tf.matmul(FROM_TAPS, taps_4X), [len(FROM_TAPS), blocks, 1, channels, made_channels])
