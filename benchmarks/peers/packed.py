"""int8 products and convolutions with weights packed ahead, as TE and as numpy: what a tuner that packs nothing needs.

The weights stand as [co/16, taps.., ci/4, 16, 4], so that 16 results and 4 terms of each are one operand of vpdpbusd;
a product has no taps. Activations are row-major, channels last; the kernel adds the borders of a convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heron_asp.errors import HeronError

Array = npt.NDArray[Any]
LANES, TERMS = 16, 4  # of vpdpbusd: results, and products added to each
_SPACE = {"conv1d": "w", "conv2d": "hw", "conv3d": "dhw"}


class Case(NamedTuple):
    """Activation, packed weights, and the result that a kernel must make of them."""

    activation: Array
    weights: Array
    expected: Array


@dataclass(frozen=True)
class Packed:
    """A convolution of any rank over u8 and s8 to s32; a product has rank 0.

    Attributes:
        batch: images, or rows of a product.
        extents: of the activation in space, without borders.
        taps: extents of the filter in space.
    """

    batch: int
    extents: tuple[int, ...]
    taps: tuple[int, ...]
    ci: int
    co: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def activation_shape(self) -> tuple[int, ...]:
        """Row-major, channels last."""
        return (self.batch, *self.extents, self.ci)

    @property
    def bordered_shape(self) -> tuple[int, ...]:
        """The activation with its borders."""
        return (self.batch, *(extent + 2 * self.padding for extent in self.extents), self.ci)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Packed."""
        return (self.co // LANES, *self.taps, self.ci // TERMS, LANES, TERMS)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Row-major, channels last."""
        across = (
            (extent + 2 * self.padding - self.dilation * (tap - 1) - 1) // self.stride + 1
            for extent, tap in zip(self.extents, self.taps, strict=True)
        )
        return (self.batch, *across, self.co)

    @property
    def operations(self) -> int:
        """A multiply and an add for each term."""
        return 2 * prod(self.result_shape) * prod(self.taps) * self.ci

    def prim_func(self) -> Any:
        """The TIR PrimFunc (activation, weights, result)."""
        from tvm import te

        activation = te.placeholder(self.activation_shape, "uint8", name="activation")
        bordered = self._bordered(activation)
        weights = te.placeholder(self.weight_shape, "int8", name="weights")
        taps = [te.reduce_axis((0, tap), name=f"tap{number}") for number, tap in enumerate(self.taps)]
        channel = te.reduce_axis((0, self.ci), name="ci")

        def element(*place: Any) -> Any:
            image, *across, co = place
            read = [at * self.stride + tap * self.dilation for at, tap in zip(across, taps, strict=True)]
            left = bordered[(image, *read, channel)].astype("int32")
            packed = (co // LANES, *taps, channel // TERMS, co % LANES, channel % TERMS)
            return te.sum(left * weights[packed].astype("int32"), axis=[*taps, channel])

        return te.create_prim_func([activation, weights, te.compute(self.result_shape, element, name="result")])

    def _bordered(self, activation: Any) -> Any:
        from tvm import te, tirx

        if not self.padding:
            return activation

        def element(image: Any, *place: Any) -> Any:
            *across, channel = place
            inside = [
                tirx.all(at >= self.padding, at < self.padding + extent)
                for at, extent in zip(across, self.extents, strict=True)
            ]
            read = (image, *(at - self.padding for at in across), channel)
            return tirx.if_then_else(tirx.all(*inside), activation[read], tirx.const(0, "uint8"))

        return te.compute(self.bordered_shape, element, name="bordered")

    def pack(self, weights: Array) -> Array:
        """Weights [taps.., ci, co] as the kernel reads them."""
        rank = len(self.taps)
        split = weights.reshape(*self.taps, self.ci // TERMS, TERMS, self.co // LANES, LANES)
        return np.ascontiguousarray(split.transpose(rank + 2, *range(rank), rank, rank + 3, rank + 1))

    def reference(self, activation: Array, weights: Array) -> Array:
        """The exact result in int32, from the activation and the weights [taps.., ci, co].

        Sums of 8-bit products stay far below 2**53, so float64 is exact; beyond 32 bits they wrap.
        """
        bordered = np.zeros(self.bordered_shape)
        inside = tuple(slice(self.padding, self.padding + extent) for extent in self.extents)
        bordered[(slice(None), *inside)] = activation
        result = np.zeros(self.result_shape)
        for tap in product(*map(range, self.taps)):
            window = tuple(
                slice(at * self.dilation, at * self.dilation + (steps - 1) * self.stride + 1, self.stride)
                for at, steps in zip(tap, self.result_shape[1:-1], strict=True)
            )
            result += bordered[(slice(None), *window)] @ weights[tap].astype(np.float64)
        return result.astype(np.int64).astype(np.int32)

    def cases(self, seed: int = 0) -> list[Case]:
        """Random inputs, and all of them as large and as small as they can be."""
        generator = np.random.default_rng(seed)
        made = []
        for rows, columns in (((0, 256), (-128, 128)), ((255, 256), (-128, -127))):
            activation = generator.integers(*rows, self.activation_shape).astype(np.uint8)
            weights = generator.integers(*columns, (*self.taps, self.ci, self.co)).astype(np.int8)
            made.append(Case(activation, self.pack(weights), self.reference(activation, weights)))
        return made


def packed(operator: str, shape: Mapping[str, int]) -> Packed:
    """A workload from the name and the shape keys of an operator.

    Raises:
        HeronError: there is no such workload, or the weights do not pack without a remainder.
    """
    try:
        if operator == "gemm":
            made = Packed(shape["m"], (), (), shape["k"], shape["n"])
        elif operator in _SPACE:
            space = _SPACE[operator]
            extents, taps = tuple(shape[axis] for axis in space), tuple(shape[f"k{axis}"] for axis in space)
            rest = {key: shape[key] for key in ("stride", "padding", "dilation")}
            made = Packed(shape["n"], extents, taps, shape["ci"], shape["co"], **rest)
        else:
            raise HeronError(f"{operator}: no workload with packed weights", f"one of gemm, {', '.join(_SPACE)}")
    except KeyError as error:
        raise HeronError(f"{operator}: the shape lacks {error}", "give all of its keys") from None
    if made.co % LANES or made.ci % TERMS:
        raise HeronError(
            f"{operator}: {made.co} result channels and {made.ci} input channels do not pack by {LANES} and {TERMS}",
            "take multiples",
        )
    return made
