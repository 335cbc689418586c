"""Tensors as VTA sees them: entries of a memory, in a layout that the rules choose, and how the host fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.backends.vta.isa import Memory

Array = npt.NDArray[Any]
Span = tuple[int, int]  # from, up to


@dataclass(frozen=True)
class Dim:
    """A dimension of a tensor, in entries.

    Attributes:
        source: which dimension of the tensor it is.
        terms: (axis, stride): its index moves by `stride` for each step of the axis, in units.
        start: index where the block begins to read.
        unit: elements of an entry along it.
        extent: indices at which the tensor has elements; beyond there are zeros.
        data: indices outside of which all elements are zero, so that none needs to be in DRAM.
    """

    source: int
    terms: tuple[tuple[str, int], ...]
    start: int
    unit: int
    extent: int
    data: Span

    def span(self, first: Mapping[str, int], steps: Mapping[str, int]) -> Span:
        """The indices for so many steps of each axis from a first one."""
        begin = self.start + sum(stride * first[axis] for axis, stride in self.terms)
        return begin, begin + 1 + sum(stride * (steps[axis] - 1) for axis, stride in self.terms)


@dataclass(frozen=True)
class Entries:
    """A tensor in a memory of VTA.

    Attributes:
        tensor: its name.
        memory: where its entries go.
        dims: outermost first, both in DRAM and in the scratchpad.
        inside: elements of an entry, outermost first: (dimension of the tensor, extent); the dimension is -1 where the
            elements are repeated.
        dtype: of an element in DRAM.
        fixed: the place along the dimensions of the tensor that are none of `dims`.
    """

    tensor: str
    memory: Memory
    dims: tuple[Dim, ...]
    inside: tuple[tuple[int, int], ...]
    dtype: np.dtype[Any]
    fixed: Mapping[int, int]

    @property
    def axes(self) -> frozenset[str]:
        """The axes that it depends on."""
        return frozenset(axis for dim in self.dims for axis, _ in dim.terms)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry in DRAM."""
        return prod(extent for _, extent in self.inside) * self.dtype.itemsize

    @property
    def data_bytes(self) -> int:
        """Bytes of the entries that are not all zeros by definition."""
        return self.entry_bytes * prod(dim.data[1] - dim.data[0] for dim in self.dims)

    def pack(self, data: Array, held: Sequence[Span]) -> Array:
        """A tensor's elements as they lie in DRAM.

        Args:
            data: the tensor.
            held: for each dimension the indices that DRAM holds, in entries.
        """
        rank = data.ndim
        for source, place in self.fixed.items():
            data = data.take([place], source)
        spans: list[Span] = [(0, 1)] * rank
        for dim, (low, high) in zip(self.dims, held, strict=True):
            spans[dim.source] = (low * dim.unit, high * dim.unit)
        full = np.zeros([high - low for low, high in spans], self.dtype)
        parts = [(max(low, 0), min(high, size)) for (low, high), size in zip(spans, data.shape, strict=True)]
        into = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(parts, spans, strict=True))
        full[into] = data[tuple(slice(a, b) for a, b in parts)]
        units = {dim.source: dim.unit for dim in self.dims}
        split = full.reshape(
            [part for at, size in enumerate(full.shape) for part in (size // units.get(at, 1), units.get(at, 1))]
        )
        outer, inner = (
            [2 * dim.source for dim in self.dims],
            [2 * source + 1 for source, _ in self.inside if source >= 0],
        )
        rest = [axis for axis in range(2 * rank) if axis not in outer and axis not in inner]
        moved = split.transpose([*outer, *inner, *rest]).reshape([split.shape[axis] for axis in (*outer, *inner)])
        for at, (source, extent) in enumerate(self.inside, start=len(outer)):
            if source < 0:
                moved = np.repeat(np.expand_dims(moved, at), extent, axis=at)
        return np.ascontiguousarray(moved)

    def unpack(self, packed: Array, shape: Sequence[int]) -> Array:
        """The tensor whose elements lie in DRAM from index 0 of each dimension, cut to its extents."""
        outer, inner = [2 * dim.source for dim in self.dims], [2 * source + 1 for source, _ in self.inside]
        split = packed.transpose(np.argsort([*outer, *inner]))
        place = sorted([*outer, *inner])
        extents = dict(zip(place, split.shape, strict=True))
        full = split.reshape([extents.get(2 * at, 1) * extents.get(2 * at + 1, 1) for at in range(len(shape))])
        return full[tuple(slice(size) for size in shape)]
