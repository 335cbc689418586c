"""What sliding windows of one, two or three dimensions have in common: shape keys, extents, exact sums tap by tap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

import numpy as np

from heron_asp.errors import HeronError
from heron_asp.operators.kind import LARGEST_TENSOR, Exact, Extents, Names

SIDES = {"d": ("front", "back"), "h": ("top", "bottom"), "w": ("left", "right")}
LAYOUTS = ("channels-last", "channels-first")


@dataclass(frozen=True)
class Window:
    """The window along one dimension.

    Attributes:
        dim: the dimension: d, h or w.
        size: extent of the operand that it slides over.
        taps: extent of the kernel.
        stride: distance of neighbouring windows.
        before: zeros before the operand.
        after: zeros behind it.
        dilation: distance of neighbouring taps.
    """

    dim: str
    size: int
    taps: int
    stride: int
    before: int
    after: int
    dilation: int

    @property
    def span(self) -> int:
        """Elements from the first tap to the last."""
        return self.dilation * (self.taps - 1) + 1

    @property
    def padded(self) -> int:
        """Extent of the operand with its zeros."""
        return self.before + self.size + self.after

    @property
    def steps(self) -> int:
        """How many windows there are: the extent of a convolution's result."""
        return (self.padded - self.span) // self.stride + 1

    @property
    def reach(self) -> int:
        """How much of the padded operand the windows touch."""
        return (self.steps - 1) * self.stride + self.span

    def touched(self, tap: int) -> slice:
        """What one tap touches of the padded operand, in all windows."""
        first = tap * self.dilation
        return slice(first, first + (self.steps - 1) * self.stride + 1, self.stride)


def window_defaults(dims: str) -> dict[str, int | str]:
    """Optional shape keys of windows along some dimensions: one number for all, one a dimension, one a side."""
    keys: dict[str, int | str] = {"stride": 1, "padding": 0, "dilation": 1}
    several = len(dims) > 1
    for dim in dims if several else "":
        keys |= {f"stride_{dim}": "stride", f"padding_{dim}": "padding", f"dilation_{dim}": "dilation"}
    for dim in dims:
        keys |= dict.fromkeys((f"padding_{side}" for side in SIDES[dim]), f"padding_{dim}" if several else "padding")
    return keys


def window_least(dims: str) -> dict[str, int]:
    """The smallest values of those of them that may be zero."""
    return {key: 0 for key in window_defaults(dims) if key.startswith("padding")}


def windows(extents: Extents, dims: str) -> tuple[Window, ...]:
    """The windows of an operator, outermost dimension first."""
    return tuple(
        Window(
            dim=dim,
            size=extents[dim],
            taps=extents[f"k{dim}"],
            stride=extents.get(f"stride_{dim}", extents["stride"]),
            before=extents[f"padding_{SIDES[dim][0]}"],
            after=extents[f"padding_{SIDES[dim][1]}"],
            dilation=extents.get(f"dilation_{dim}", extents["dilation"]),
        )
        for dim in dims
    )


def require_room(name: str, window: Window) -> None:
    """Makes sure that a kernel fits its padded operand at least once.

    Raises:
        HeronError: it does not.
    """
    if window.span > window.padded:
        dim = window.dim
        dilated = f" with dilation {window.dilation}" if window.dilation > 1 else ""
        zeros = window.before + window.after
        raise HeronError(
            f"{name}: k{dim}={window.taps}{dilated} spans {window.span} along {dim}, "
            f"more than the {window.padded} of {dim}={window.size} and {zeros} of padding",
            f"padding={-(-(window.span - window.size) // 2)} would do",
        )


def require_size(name: str, tensor: str, size: int) -> None:
    """Makes sure that a tensor that the kernel makes for itself can be indexed in 32 bits.

    Raises:
        HeronError: it has too many elements.
    """
    if size > LARGEST_TENSOR:
        raise HeronError(f"{name}: {tensor} of {size} elements is larger than {LARGEST_TENSOR}")


def channels_last(array: Exact, dims: int, layout: str, leading: int = 1) -> Exact:
    """The array with its channels behind the spatial dimensions.

    Args:
        array: of any layout.
        dims: the number of spatial dimensions.
        layout: the array's.
        leading: dimensions before all of them, such as the batch, in either layout.
    """
    if layout == "channels-last":
        return array
    return np.moveaxis(array, range(array.ndim - dims, array.ndim), range(leading, leading + dims))


def in_layout(array: Exact, dims: int, layout: str) -> Exact:
    """A result whose channels are last, as a contiguous array of the layout."""
    if layout != "channels-last":
        array = np.moveaxis(array, range(1, 1 + dims), range(array.ndim - dims, array.ndim))
    return np.ascontiguousarray(array)


def pad(array: Exact, along: tuple[Window, ...]) -> Exact:
    """The array with its zeros; the batch comes first, then the dimensions of the windows."""
    amounts = [(0, 0), *((one.before, one.after) for one in along)]
    return np.pad(array, amounts + [(0, 0)] * (array.ndim - len(amounts)))


def taps(along: tuple[Window, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """All taps with what they touch of the padded operand."""
    for place in combinations(*(range(one.taps) for one in along)):
        yield place, tuple(one.touched(tap) for one, tap in zip(along, place, strict=True))


def volume(extents: Mapping[str, int], names: Names) -> int:
    """The product of some extents."""
    return prod(extents[name] for name in names)
