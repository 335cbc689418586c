"""What an operator family is: its shape keys, tensors, layouts, tensor expression and reference, as plain metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from heron_asp.dtypes import DType

ACTIVATION, WEIGHT, ACCUMULATOR = 0, 1, 2  # places in a type triple
LARGEST_TENSOR = 2**31 - 1  # elements
Extents: TypeAlias = Mapping[str, int]
Array: TypeAlias = npt.NDArray[Any]
Exact: TypeAlias = npt.NDArray[np.float64]
Names: TypeAlias = tuple[str, ...]
Reference: TypeAlias = Callable[[Extents, Sequence[Exact], str], Exact]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of an operator.

    Attributes:
        name: its name in the C functions and in the rules.
        shape: its extents (row-major), as callers know it.
        dtype: its element type.
        view: the extents that the kernel gives the same memory: an axis may be two there, such as channels that fall
            into groups. Empty where they are those of `shape`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    view: tuple[int, ...] = ()

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """The extents as the kernel sees them: `view`, or `shape` where that is empty."""
        return self.view or self.shape


@dataclass(frozen=True)
class Expression:
    """An operator as tensor expressions.

    Attributes:
        total: the sum of products.
        axes: extents of the result by the names of its loops, in the order of its dimensions as the kernel sees them.
        value: an element of the result, from index expressions by axis; None where it is that of the sum.
    """

    total: Any
    axes: Mapping[str, int]
    value: Callable[[dict[str, Any]], Any] | None = None


def _no_views(_: Extents) -> Mapping[str, Names]:
    return {}


@dataclass(frozen=True)
class Layout:
    """How the tensors of an operator lie in memory.

    Attributes:
        tensors: extents of each tensor as names of extents, row-major; inputs first, in the order of the arguments.
        views: from the extents, the tensors which the kernel sees under other extents, again as names of extents.
    """

    tensors: Mapping[str, Names]
    views: Callable[[Extents], Mapping[str, Names]] = _no_views


def _nothing(_: Extents) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class OperatorKind:
    """A family of operators that differ in shape, layout and dtype only.

    Attributes:
        name: the name on the command line and in the exported library.
        keys: shape keys that must be given, as in `-s m=64,n=64,k=64`.
        layouts: by name; the first is the default. All have the same tensors in the same order.
        slots: which type of the dtype triple (0 activation, 1 weight, 2 accumulator) each tensor has.
        channel: names of the extents of the result's channels, alone or in groups; empty: it takes no epilogue.
        constant: tensors that are known ahead of the call, such as weights.
        build: makes the TE output of an Operator and a placeholder of `TensorSpec.kernel_shape` for each operand, or an
            Expression; what an epilogue may follow is called `Operator.name_of_sum`.
        reference: the result in float64 from the extents, the inputs in float64 and the layout.
        terms: how many products an element of the result adds up at most, from the extents.
        operations: useful arithmetic operations of a call, from the extents: two for each multiplication and addition.
        summary: one line for `--help`.
        defaults: shape keys that may be left out, with their values; a string names the earlier key whose value it is.
        least: the smallest value of a shape key where that is not 1.
        derived: further extents, from those of the shape keys; raises HeronError for a shape that makes no sense.
        magnitude: bounds the rounding of floats: with each sum's rounding below `terms * epsilon` of the magnitude.
            None: the reference of the absolute inputs, right for everything linear in each input.
        scratch: elements of float64 that the reference needs besides inputs and result, from the extents.
        contents: tensors with fixed contents, from the extents and the layout, such as a matrix of ones.
        dtype: the type triple where none is given.
        strided: calls may take leading dimensions; other kinds take compact tensors only.
        subscripts: the whole operator as an einsum, where it is one; empty otherwise.
        accumulators: types that the result may have; empty: any that can accumulate.
        function: the operator as a TIR PrimFunc, where it is not made by `build`.
        source: `FILE.py:NAME` of an operator of the user's own; empty otherwise.
        digest: a hash of that file.
        stacked: the shape key of an axis along which the result is a stack: a part of it is what the operator makes of
            the same part of the operands that have the axis. So references of large tensors are computed part by part;
            empty: all at once.
        packed_by: shape keys that decide how a constant tensor is packed, by its name, where its extents do not say it.
    """

    name: str
    keys: Names
    layouts: Mapping[str, Layout]
    slots: tuple[int, ...]
    constant: frozenset[str]
    build: Callable[..., Any]
    reference: Reference
    terms: Callable[[Extents], int]
    operations: Callable[[Extents], int]
    summary: str
    channel: Names = ()
    defaults: Mapping[str, int | str] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    derived: Callable[[Extents], Mapping[str, int]] = _nothing
    magnitude: Reference | None = None
    scratch: Callable[[Extents], int] = lambda _extents: 0
    contents: Callable[[Extents, str], Mapping[str, Array]] = lambda _extents, _layout: {}
    dtype: str = "u8s8s32"
    strided: bool = False
    subscripts: str = ""
    accumulators: Names = ()
    function: Any = None
    source: str = ""
    digest: str = ""
    stacked: str = ""
    packed_by: Mapping[str, Names] = field(default_factory=dict)

    @property
    def every_key(self) -> Names:
        """All shape keys, optional ones included."""
        return (*self.keys, *self.defaults)

    @property
    def layout(self) -> str:
        """The name of the default layout."""
        return next(iter(self.layouts))

    @property
    def tensors(self) -> Mapping[str, Names]:
        """Extents of each tensor in the default layout, as names of extents."""
        return self.layouts[self.layout].tensors

    def complete(self, shape: Mapping[str, int]) -> dict[str, int]:
        """All shape keys with their values, from those that are given."""
        found = {key: shape[key] for key in self.keys}
        for key, default in self.defaults.items():
            found[key] = shape.get(key, default if isinstance(default, int) else found[default])
        return found

    def said(self, shape: Mapping[str, int]) -> dict[str, int]:
        """The shape keys that tell a completed shape: those that must be given, and what is not as by default."""
        found = {key: shape[key] for key in self.keys}
        for key, default in self.defaults.items():
            if shape[key] != (default if isinstance(default, int) else shape[default]):
                found[key] = shape[key]
        return found
