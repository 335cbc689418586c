"""Operators in VTA's units and layouts. A matrix product is a convolution of one column and a 1 x 1 kernel.

Layouts, row-major, `b` rows of a batch and `c` columns of a block: matrix product input [m/b][k/c][b][c], weights
[n/c][k/c][c n][c k], output [m/b][n/c][b][c]; convolution input [i/c][h][w][b][c], weights
[o/c][i/c][kh][kw][c o][c i], output [o/c][h][w][b][c]; bias [channels/c][b][c] of the accumulators' type. What does not
fill a block is filled with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import Configuration
from heron_asp.errors import HeronError

Array = NDArray[np.generic]
_LARGEST_IMMEDIATE = 32767
_LARGEST_SHIFT = 31


@dataclass(frozen=True)
class Requantise:
    """Output = clip((sum + bias) >> shift, low, high).

    Attributes:
        shift: 0 to 31 bits.
        low: least output.
        high: greatest output.
        bias: whether a bias is added.
    """

    shift: int = 8
    low: int = -128
    high: int = 127
    bias: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.shift <= _LARGEST_SHIFT:
            raise HeronError(f"shift is {self.shift}; accumulators are shifted by 0 to {_LARGEST_SHIFT} bits")
        if not -_LARGEST_IMMEDIATE - 1 <= self.low <= self.high <= _LARGEST_IMMEDIATE:
            raise HeronError(
                f"low is {self.low} and high {self.high}; -32768 <= low <= high <= 32767 is what an immediate holds"
            )


@dataclass(frozen=True)
class Problem:
    """An operator in VTA's units.

    Attributes:
        config: the device.
        height: rows of the output; of a matrix product, groups of `config.batch` rows.
        width: columns of the output; 1 for a matrix product.
        outputs: output channels.
        inputs: input channels.
        images: rows of a matrix product or images of a convolution that share an entry, at most `config.batch` for
            the latter.
        kernel: rows and columns of the kernel.
        stride: of the kernel, in both directions.
        pad: zeros around the input, in both directions.
        in_height: rows of the input.
        in_width: columns of the input.
        channels_last: whether the channels of a pixel lie together, as those of a matrix row do.
        requantise: what happens to the sums.
    """

    config: Configuration
    height: int
    width: int
    outputs: int
    inputs: int
    images: int
    kernel: tuple[int, int]
    stride: int
    pad: int
    in_height: int
    in_width: int
    channels_last: bool
    requantise: Requantise

    @property
    def extents(self) -> dict[str, int]:
        """Extents of the tiled axes: o and i in blocks of channels, h and w in pixels."""
        block = self.config.block
        return {"o": -(-self.outputs // block), "h": self.height, "w": self.width, "i": -(-self.inputs // block)}

    @property
    def taps(self) -> int:
        """Entries of a weight block of one input and one output block."""
        return self.kernel[0] * self.kernel[1]

    @property
    def gemm_steps(self) -> int:
        """Micro-ops that multiply: what a device does at best one of a cycle."""
        extents = self.extents
        return extents["o"] * extents["h"] * extents["w"] * extents["i"] * self.taps

    def pack_input(self, data: Array) -> Array:
        """(m, k) or (images, channels, height, width) to VTA's layout."""
        b, c, blocks = self.config.batch, self.config.block, self.extents["i"]
        kind = np.dtype(f"<i{self.config.out_bits // 8}")
        if self.channels_last:
            full = np.zeros((self.in_height * b, blocks * c), kind)
            full[: data.shape[0], : data.shape[1]] = data
            return full.reshape(self.in_height, b, blocks, c).transpose(0, 2, 1, 3)
        full = np.zeros((b, blocks * c, self.in_height, self.in_width), kind)
        full[: data.shape[0], : data.shape[1]] = data
        return full.reshape(b, blocks, c, self.in_height, self.in_width).transpose(1, 3, 4, 0, 2)

    def pack_weights(self, data: Array) -> Array:
        """(n, k) or (out channels, in channels, kernel rows, kernel columns) to VTA's layout."""
        c, rows, columns = self.config.block, self.extents["o"], self.extents["i"]
        full = np.zeros((rows * c, columns * c, *self.kernel), np.dtype(f"<i{(1 << self.config.log_wgt_width) // 8}"))
        full[: data.shape[0], : data.shape[1]] = data.reshape(*data.shape[:2], *self.kernel)
        return full.reshape(rows, c, columns, c, *self.kernel).transpose(0, 2, 4, 5, 1, 3)

    def pack_bias(self, data: Array) -> Array:
        """(out channels,) to VTA's layout, the same for every row of the batch."""
        c, blocks = self.config.block, self.extents["o"]
        full = np.zeros(blocks * c, np.dtype(f"<i{self.config.acc_bits // 8}"))
        full[: len(data)] = data
        return np.repeat(full.reshape(blocks, 1, c), self.config.batch, axis=1)

    def unpack_output(self, data: Array) -> Array:
        """VTA's layout to (m, n) or (images, channels, height, width)."""
        b, c, blocks = self.config.batch, self.config.block, self.extents["o"]
        if self.channels_last:
            full = data.reshape(self.height, blocks, b, c).transpose(0, 2, 1, 3).reshape(self.height * b, blocks * c)
            return full[: self.images, : self.outputs]
        full = data.reshape(blocks, self.height, self.width, b, c).transpose(3, 0, 4, 1, 2)
        return full.reshape(b, blocks * c, self.height, self.width)[: self.images, : self.outputs]

    @property
    def output_bytes(self) -> int:
        """Bytes of the output in VTA's layout."""
        entry = self.config.batch * self.config.block * self.config.out_bits // 8
        return self.extents["o"] * self.height * self.width * entry


def matmul(m: int, n: int, k: int, config: Configuration, requantise: Requantise | None = None) -> Problem:
    """(m, k) times the transpose of (n, k)."""
    _positive(m=m, n=n, k=k)
    rows = -(-m // config.batch)
    return Problem(config, rows, 1, n, k, m, (1, 1), 1, 0, rows, 1, True, requantise or Requantise())


def conv2d(
    shape: tuple[int, int, int],
    out_channels: int,
    kernel: tuple[int, int],
    config: Configuration,
    stride: int = 1,
    pad: int = 0,
    requantise: Requantise | None = None,
    images: int = 1,
) -> Problem:
    """A convolution of images of (channels, height, width).

    Raises:
        HeronError: if no output is left, or a padding is as large as the kernel.
    """
    channels, height, width = shape
    _positive(channels=channels, height=height, width=width, out_channels=out_channels, stride=stride, images=images)
    _positive(kernel_rows=kernel[0], kernel_columns=kernel[1])
    rows, columns = ((extent + 2 * pad - taps) // stride + 1 for extent, taps in zip(shape[1:], kernel, strict=True))
    if min(rows, columns) < 1:
        raise HeronError(f"a kernel of {kernel[0]} x {kernel[1]} does not fit {height} x {width} with padding {pad}")
    if not 0 <= pad < min(kernel):
        raise HeronError(f"pad is {pad}; from 0 up to {min(kernel) - 1} it meets the input with this kernel")
    if images > config.batch:
        raise HeronError(f"{images} images; an entry of this device holds {config.batch}", "Run them in groups.")
    quantise = requantise or Requantise()
    return Problem(
        config, rows, columns, out_channels, channels, images, kernel, stride, pad, height, width, False, quantise
    )


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise HeronError(f"{name} is {number}; it must be positive")
