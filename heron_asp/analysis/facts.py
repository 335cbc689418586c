"""What the rules know of an operator, and what it takes to write it down again over other extents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from heron_asp.analysis.finish import Done, chain_of, summand_dims
from heron_asp.dtypes import DTYPES
from heron_asp.terms import Term, fact
from heron_asp.tir import bounds_of, loads

_SATURATED = 2**30  # larger strides are all alike to the rules, and clingo's integers have 32 bits


@dataclass(frozen=True)
class Axis:
    """A loop of the block: its name, `spatial` or `reduce`, and its extent."""

    name: str
    kind: str
    extent: int


@dataclass(frozen=True)
class Access:
    """One term of an affine index: dimension `dim` of a tensor moves by `stride` for each step of an axis."""

    tensor: str
    dim: int
    axis: str
    stride: int


@dataclass(frozen=True)
class Parameter:
    """An argument of the operator as the kernel sees it: its name, how elements are stored, its extents."""

    name: str
    storage: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """An expression for each element of a tensor, such as its zero padding.

    Attributes:
        variables: TIR variables, one a dimension.
        value: a TIR expression of them.
    """

    variables: tuple[Any, ...]
    value: Any

    def rows(self, dim: int) -> tuple[int, int | None] | None:
        """The first index along a dimension at which elements are not all zero, and the first at which they are again.

        None where the expression does not say it: it is then no padding with zeros, or none behind.
        """
        return bounds_of(self.value, self.variables[dim])


@dataclass(frozen=True)
class Tensor:
    """A tensor as the block sees it.

    Attributes:
        name: of the argument that it is, or that it is made of.
        dtype: element type.
        shape: extents.
        offset: where the block begins to read, along each dimension.
        stage: how it is made of arguments; None where it is one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...] = ()
    stage: Stage | None = field(default=None, compare=False)

    def start(self, dim: int) -> int:
        """Where the block begins to read along a dimension."""
        return self.offset[dim] if self.offset else 0


@dataclass(frozen=True)
class Finish:
    """What is made of the block's result: a final argument, element by element.

    Attributes:
        parameter: the argument that is written.
        stage: its elements; loads of `source` are of the block's result.
        source: name of the block's result in the expression.
    """

    parameter: Parameter
    stage: Stage = field(compare=False)
    source: str

    @property
    def in_place(self) -> bool:
        """Whether each element is made of the block's result at the same place."""
        from tvm_ffi import structural_equal

        own = [load for load in loads(self.stage.value) if str(load.source.name) == self.source]
        return all(
            len(load.indices) == len(self.stage.variables)
            and all(map(structural_equal, load.indices, self.stage.variables))
            for load in own
        )

    @property
    def in_turn(self) -> bool:
        """Whether each element is made of one sum: a dimension of each for a dimension of what is written, or of 0."""
        from tvm.ir.prim import expr as prim
        from tvm_ffi import structural_equal

        own = [load.indices for load in loads(self.stage.value) if str(load.source.name) == self.source]
        moving = [index for index in own[0] if not (isinstance(index, prim.IntImm) and int(index.value) == 0)]
        return (
            len(moving) == len(self.stage.variables)
            and all(any(structural_equal(one, index) for index in moving) for one in self.stage.variables)
            and all(structural_equal(one, other) for place in own for one, other in zip(place, own[0], strict=True))
        )


@dataclass(frozen=True)
class BlockFacts:
    """What the rules know of an operator.

    Attributes:
        block: name of the reduction block.
        axes: outermost first: those of the result in the order of its dimensions, then those that are summed.
        operands: tensors that are multiplied, in the order of the product.
        result: the tensor that the block writes.
        accesses: affine index terms of all tensors.
        constant: names of tensors that are known ahead.
        parameters: the arguments that are read, in their order.
        finish: what is made of the result; None where the result is the last argument.
        slices: an axis of one step, of which there may be more: as many parts of the sum, each added up by itself, and
            all together only for what is made of the result. Empty: there is none.
    """

    block: str
    axes: tuple[Axis, ...]
    operands: tuple[Tensor, ...]
    result: Tensor
    accesses: tuple[Access, ...]
    constant: frozenset[str]
    parameters: tuple[Parameter, ...] = ()
    finish: Finish | None = None
    slices: str = ""

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis."""
        return {axis.name: axis.extent for axis in self.axes}

    @cached_property
    def chain(self) -> tuple[Done, ...]:
        """What is done to each sum before it is stored, in order."""
        return chain_of(self)

    @cached_property
    def summands(self) -> dict[str, tuple[int, ...]]:
        """The tensors that are added to the sums, and the dimensions of the result that theirs follow, or -1."""
        return summand_dims(self)

    @property
    def stored(self) -> str:
        """The element type of what is stored in the end."""
        if self.finish is None:
            return self.result.dtype
        return _dtype(self.finish.parameter.storage)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each axis."""
        return {axis.name: axis.kind for axis in self.axes}

    @property
    def read_by_stages(self) -> set[str]:
        """The arguments of which other tensors are made."""
        stages = [tensor.stage for tensor in self.operands] + [self.finish.stage if self.finish else None]
        return {str(load.source.name) for stage in stages if stage is not None for load in loads(stage.value)}

    def border(self, tensor: Tensor, dim: int) -> tuple[int, int] | None:
        """The first and the last but one index along a dimension at which an operand is not all zero padding."""
        found = tensor.stage.rows(dim) if tensor.stage is not None else None
        if found is None:
            return None
        low, high = found[0], tensor.shape[dim] if found[1] is None else min(found[1], tensor.shape[dim])
        return (low, high) if low > 0 or high < tensor.shape[dim] else None

    @cached_property
    def useful_share(self) -> float:
        """Which part of the products is not with zero padding."""
        share = 1.0
        for tensor in self.operands:
            for dim in range(len(tensor.shape)):
                rows = self.border(tensor, dim)
                if rows is not None:
                    index = np.array([tensor.start(dim)])
                    for term in self.of(tensor.name, dim):
                        index = np.add.outer(index, term.stride * np.arange(self.extents[term.axis]))
                    share *= float(np.mean((index >= rows[0]) & (index < rows[1])))
        return share

    def _grain(self, tensor: Tensor, dim: int) -> int:
        """In each run of so many elements along a dimension, from where a window begins, all are padding or none is."""
        steps = [one.stride for one in self.of(tensor.name, dim) if self.kinds[one.axis] == "spatial"]
        return gcd(*(row - tensor.start(dim) for row in self.border(tensor, dim) or ()), *steps)

    def order(self, innermost: str = "") -> list[str]:
        """The loops of the block, where it makes its result with an axis innermost."""
        spatial = [axis.name for axis in self.axes if axis.kind == "spatial"]
        spatial.sort(key=lambda name: name == innermost)
        return [*spatial, *(axis.name for axis in self.axes if axis.kind == "reduce")]

    def of(self, tensor: str, dim: int) -> list[Access]:
        """The index terms of a dimension of a tensor."""
        return [access for access in self.accesses if (access.tensor, access.dim) == (tensor, dim)]

    def indexes(self, tensor: str) -> set[str]:
        """The axes that a tensor depends on."""
        return {access.axis for access in self.accesses if access.tensor == tensor}

    def own(self, tensor: Tensor, axis: Axis) -> int | None:
        """The dimension that an axis walks through by itself, all of it; None if there is none."""
        for dim, extent in enumerate(tensor.shape):
            if self.of(tensor.name, dim) == [Access(tensor.name, dim, axis.name, 1)]:
                return dim if extent == axis.extent and tensor.start(dim) == 0 else None
        return None

    def endless(self, axis: Axis) -> bool:
        """Whether the sum would go on beyond the extent of an axis: no operand ends there, so that none is zero."""
        return axis.kind == "reduce" and all(self.own(tensor, axis) is None for tensor in self.operands)

    def facts(self) -> list[Term]:
        """The operator as facts of `rules/core/interface.lp`."""
        return list(self._facts())

    def _facts(self) -> Iterator[Term]:
        yield fact("block", self.block)
        for axis in self.axes:
            yield fact("axis", self.block, axis.name, axis.kind, axis.extent)
            if self.endless(axis):
                yield fact("endless", self.block, axis.name)
        for slot, tensor in enumerate(self.operands):
            yield fact("operand", self.block, slot, tensor.name)
            if tensor.stage is not None:
                yield fact("staged", self.block, tensor.name)
            for dim in range(len(tensor.shape)):
                if self.border(tensor, dim) is not None:
                    yield fact("bordered", self.block, tensor.name, dim, self._grain(tensor, dim))
        if self.slices:
            yield fact("slices", self.block, self.slices)
        yield fact("result", self.block, self.result.name)
        if self.finish is not None:
            yield fact("staged", self.block, self.result.name)
            if not self.finish.in_place:
                yield fact("rearranged", self.block, self.result.name)
            if self.finish.in_turn:
                yield fact("in_turn", self.block, self.result.name)
                yield from self._written(self.finish)
        yield fact("stored", self.block, self.stored)
        for position, done in enumerate(self.chain):
            yield fact("finish", self.block, position, done.operation, done.number)
        yield from self._summands()
        for tensor in (*self.operands, self.result):
            yield from _lies(tensor.name, tensor.dtype, tensor.shape)
        for access in self.accesses:
            yield fact("access", self.block, access.tensor, access.dim, access.axis, access.stride)
        for name in sorted(self.constant):
            yield fact("constant", name)

    def _written(self, finish: Finish) -> Iterator[Term]:
        """Which axis each dimension of what is written moves with."""
        from tvm_ffi import structural_equal

        place = next(load.indices for load in loads(finish.stage.value) if str(load.source.name) == finish.source)
        for dim, variable in enumerate(finish.stage.variables):
            at = next(at for at, index in enumerate(place) if structural_equal(index, variable))
            (term,) = self.of(self.result.name, at)
            yield fact("written", self.block, dim, term.axis)

    def _summands(self) -> Iterator[Term]:
        for name, dims in self.summands.items():
            parameter = next(one for one in self.parameters if one.name == name)
            yield from _lies(name, _dtype(parameter.storage), parameter.shape)
            yield fact("summand", self.block, name)
            for dim, place in enumerate(dims):
                if place < 0:
                    continue
                axis = next(one.axis for one in self.accesses if (one.tensor, one.dim) == (self.result.name, place))
                yield fact("follows", self.block, name, dim, axis)


def _lies(name: str, dtype: str, shape: tuple[int, ...]) -> Iterator[Term]:
    """How a tensor lies in memory."""
    yield fact("tensor", name, dtype)
    pitch = 1
    for dim in reversed(range(len(shape))):
        yield fact("pitch", name, dim, min(pitch, _SATURATED))
        pitch *= shape[dim]


def _dtype(storage: str) -> str:
    """The element type of an argument; bf16, which is stored as u16, is none of what is done to sums."""
    return next(one.name for one in DTYPES.values() if one.storage == storage)
