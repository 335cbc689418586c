"""What is compared: int8 products and convolutions as arrays, with a reference that shares no code with either side.

Activations (`source`) are u8, weights s8, results s32; rows are packed one after the other, channels are last.
Weights of a convolution are (spatial..., ci / groups, co), of a product (k, n), of a matrix by a vector (m, k).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Extents = Mapping[str, int]

_SPATIAL = {1: "w", 2: "hw", 3: "dhw"}
PRODUCTS = ("gemm", "batch_matmul", "gemv", "scan")
CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv2d_dilated": 2, "conv2d_transposed": 2, "conv3d": 3}
_CONVOLUTION_EXTRAS = ("stride", "padding", "dilation", "groups", "output_padding")


@dataclass(frozen=True)
class Window:
    """How a convolution goes over one spatial dimension; a transposed one scatters where others gather."""

    source: int
    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    transposed: bool = False
    output_padding: int = 0

    @property
    def reach(self) -> int:
        """Elements from the first to the last tap of the kernel, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def result(self) -> int:
        """Elements of the result."""
        padding = self.before + self.after
        if self.transposed:
            return (self.source - 1) * self.stride + self.reach - padding + self.output_padding
        return (self.source + padding - self.reach) // self.stride + 1

    @property
    def products(self) -> int:
        """Pairs of a source element and a tap that some result adds up; those with padding are left out."""
        if self.transposed:
            places = range(self.before, self.before + self.result)
            return sum(at * self.stride + tap in places for at in range(self.source) for tap in self._taps)
        inside = range(self.source)
        return sum(at * self.stride + tap - self.before in inside for at in range(self.result) for tap in self._taps)

    @property
    def _taps(self) -> range:
        return range(0, self.reach, self.dilation)


@dataclass(frozen=True)
class Workload:
    """One call of an operator.

    Attributes:
        operator: `gemm`, `batch_matmul`, `gemv`, `scan`, or a convolution as in `CONVOLUTIONS`.
        shape: the extents and numbers of the case, by name.
        source: extents of the activations by axis name, outermost first.
        weights: extents of the weights (of batch_matmul: of the second activation).
        result: extents of the result.
        windows: of a convolution, one for each spatial dimension.
        groups: of a convolution.
    """

    operator: str
    shape: Extents
    source: Extents
    weights: Extents
    result: Extents
    windows: tuple[Window, ...] = ()
    groups: int = field(default=1)

    @property
    def constant(self) -> bool:
        """Whether the weights are known ahead, so that both sides pack them before they are timed."""
        return self.operator != "batch_matmul"

    @property
    def transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return self.operator == "conv2d_transposed"

    @property
    def operations(self) -> int:
        """A multiply and an add for each product, those with padding included: what a GOP/s counts."""
        if not self.windows:
            extents = {**self.source, **self.weights}
            return 2 * prod(extents.values())
        taps = prod(window.kernel for window in self.windows) * self.shape["ci"] // self.groups
        places = [window.source if window.transposed else window.result for window in self.windows]
        return 2 * self.shape["n"] * prod(places) * self.shape["co"] * taps

    @property
    def useful_operations(self) -> int:
        """The operations without those whose operand is padding, or whose product falls outside the result."""
        if not self.windows:
            return self.operations
        products = prod(window.products for window in self.windows)
        return 2 * self.shape["n"] * products * self.shape["co"] * self.shape["ci"] // self.groups

    @property
    def bytes_read(self) -> int:
        """Bytes of the operands."""
        return prod(self.source.values()) + prod(self.weights.values())

    @property
    def bytes_written(self) -> int:
        """Bytes of the result."""
        return 4 * prod(self.result.values())

    def inputs(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Random activations and weights over all their values; the weights of a scan are ones and zeros."""
        source = generator.integers(0, 256, tuple(self.source.values()), dtype=np.uint8)
        if self.operator == "scan":
            k, n = self.weights.values()
            return source, np.triu(np.ones((k, n), np.int8), 1)  # result n adds up the elements before n
        return source, generator.integers(-128, 128, tuple(self.weights.values()), dtype=np.int8)

    def reference(self, source: Array, weights: Array) -> Array:
        """The exact result; float64 holds every sum (below 2**53), and its BLAS is fast."""
        if self.windows:
            exact = _transposed(self, source, weights) if self.transposed else _convolution(self, source, weights)
        elif self.operator == "gemv":
            exact = weights.astype(np.float64) @ source.astype(np.float64)
        elif self.operator == "batch_matmul":  # a matrix at a time: in float64 a large batch exceeds the memory
            results = np.empty(tuple(self.result.values()), np.int32)
            for a, b, result in zip(source, weights, results, strict=True):
                result[...] = _integers(_product(a, b))
            return results
        else:
            exact = _product(source, weights)
        return _integers(exact)


def _product(a: Array, b: Array) -> Array:
    product: Array = a.astype(np.float64) @ b.astype(np.float64)
    return product


def _integers(exact: Array) -> Array:
    assert np.abs(exact).max(initial=0) < 2**31, "the sums of the suite fit into 32 bits"
    return exact.astype(np.int32)


def _taps(windows: tuple[Window, ...]) -> list[tuple[int, ...]]:
    return list(np.ndindex(*(window.kernel for window in windows)))


def _convolution(workload: Workload, source: Array, weights: Array) -> Array:
    """A product for each tap of the kernel: rows are the elements of the result."""
    windows = workload.windows
    padding = [(0, 0), *((window.before, window.after) for window in windows), (0, 0)]
    padded = np.pad(source.astype(np.float64), padding)
    total = np.zeros(tuple(workload.result.values()))
    for tap in _taps(windows):
        begins = [at * window.dilation for at, window in zip(tap, windows, strict=True)]
        cut = tuple(
            slice(begin, begin + (window.result - 1) * window.stride + 1, window.stride)
            for begin, window in zip(begins, windows, strict=True)
        )
        total += _grouped(padded[(slice(None), *cut)], weights[tap], workload.groups)
    return total


def _transposed(workload: Workload, source: Array, weights: Array) -> Array:
    """Each tap adds the product of the source to every stride-th element of a result with its padding still on it."""
    windows = workload.windows
    room = [window.result + window.before + window.after for window in windows]
    total = np.zeros((workload.shape["n"], *room, workload.shape["co"]))
    for tap in _taps(windows):
        begins = [at * window.dilation for at, window in zip(tap, windows, strict=True)]
        cut = tuple(
            slice(begin, begin + (window.source - 1) * window.stride + 1, window.stride)
            for begin, window in zip(begins, windows, strict=True)
        )
        total[(slice(None), *cut)] += _grouped(source.astype(np.float64), weights[tap], workload.groups)
    inside = tuple(slice(window.before, window.before + window.result) for window in windows)
    return total[(slice(None), *inside)]


def _grouped(pixels: Array, weights: Array, groups: int) -> Array:
    """(..., ci) times (ci / groups, co): each group of inputs makes its group of outputs."""
    parts = np.split(pixels, groups, axis=-1)
    columns = np.split(weights.astype(np.float64), groups, axis=-1)
    return np.concatenate([part @ column for part, column in zip(parts, columns, strict=True)], axis=-1)


def workload(operator: str, shape: Extents) -> Workload:
    """Makes a workload.

    Args:
        operator: see `Workload`.
        shape: gemm and scan m, n, k; batch_matmul also batch; gemv m, k; a convolution n, ci, co, its spatial extents
            (w, h, d), kernel (kw, kh, kd), and stride, padding, dilation, groups, output_padding, which are the same in
            every spatial dimension.

    Raises:
        ValueError: an unknown operator, a name that is missing or unknown, an empty result.
    """
    if operator in CONVOLUTIONS:
        return _make_convolution(operator, shape)
    if operator not in PRODUCTS:
        raise ValueError(f"no workload '{operator}': there are {', '.join((*PRODUCTS, *CONVOLUTIONS))}")
    names = {"batch_matmul": ("batch", "m", "n", "k"), "gemv": ("m", "k")}.get(operator, ("m", "n", "k"))
    _require(operator, shape, names, ())
    axes = {
        "batch_matmul": (("batch", "m", "k"), ("batch", "k", "n"), ("batch", "m", "n")),
        "gemv": (("k",), ("m", "k"), ("m",)),
    }.get(operator, (("m", "k"), ("k", "n"), ("m", "n")))
    source, weights, result = ({name: shape[name] for name in tensor} for tensor in axes)
    return Workload(operator, dict(shape), source, weights, result)


def _make_convolution(operator: str, shape: Extents) -> Workload:
    letters = _SPATIAL[CONVOLUTIONS[operator]]
    _require(operator, shape, ("n", *letters, "ci", "co", *(f"k{letter}" for letter in letters)), _CONVOLUTION_EXTRAS)
    padding, groups = shape.get("padding", 0), shape.get("groups", 1)
    if shape["ci"] % groups or shape["co"] % groups:
        raise ValueError(f"{operator}: {groups} groups divide ci={shape['ci']} and co={shape['co']}")
    windows = tuple(
        Window(
            shape[letter],
            shape[f"k{letter}"],
            shape.get("stride", 1),
            padding,
            padding,
            shape.get("dilation", 1),
            operator == "conv2d_transposed",
            shape.get("output_padding", 0),
        )
        for letter in letters
    )
    if min(window.result for window in windows) < 1:
        raise ValueError(f"{operator}: the kernel is larger than the padded source")
    spatial = {letter: shape[letter] for letter in letters}
    kernel = {f"k{letter}": shape[f"k{letter}"] for letter in letters}
    results = {f"o{letter}": window.result for letter, window in zip(letters, windows, strict=True)}
    source = {"n": shape["n"], **spatial, "ci": shape["ci"]}
    weights = {**kernel, "ci": shape["ci"] // groups, "co": shape["co"]}
    return Workload(
        operator, dict(shape), source, weights, {"n": shape["n"], **results, "co": shape["co"]}, windows, groups
    )


def _require(operator: str, shape: Extents, needed: tuple[str, ...], extra: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in shape]
    unknown = [name for name in shape if name not in (*needed, *extra)]
    if missing or unknown:
        said = [f"lacks {', '.join(missing)}"] if missing else []
        said += [f"does not know {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"{operator} {' and '.join(said)}")
