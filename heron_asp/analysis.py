"""Operator facts, read off the TIR: axes, tensors, affine accesses, combiner. No operator has facts written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heron_asp.dtypes import DTYPES
from heron_asp.errors import HeronError
from heron_asp.operators import Operator
from heron_asp.terms import Term, fact

_SPATIAL, _REDUCE = 0, 2  # tvm.tirx.IterVar
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
class Tensor:
    """A tensor as the block sees it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class BlockFacts:
    """What the rules know of an operator.

    Attributes:
        block: name of the reduction block.
        axes: outermost first.
        operands: tensors that are multiplied, in the order of the product.
        result: the tensor that is written.
        accesses: affine index terms of all tensors.
        constant: names of tensors that are known ahead.
    """

    block: str
    axes: tuple[Axis, ...]
    operands: tuple[Tensor, ...]
    result: Tensor
    accesses: tuple[Access, ...]
    constant: frozenset[str]

    def facts(self) -> list[Term]:
        """The operator as facts of `rules/core/interface.lp`."""
        return list(self._facts())

    def _facts(self) -> Iterator[Term]:
        yield fact("block", self.block)
        for axis in self.axes:
            yield fact("axis", self.block, axis.name, axis.kind, axis.extent)
        for slot, tensor in enumerate(self.operands):
            yield fact("operand", self.block, slot, tensor.name)
        yield fact("result", self.block, self.result.name)
        for tensor in (*self.operands, self.result):
            yield fact("tensor", tensor.name, tensor.dtype)
            pitch = 1
            for dim in reversed(range(len(tensor.shape))):
                yield fact("pitch", tensor.name, dim, min(pitch, _SATURATED))
                pitch *= tensor.shape[dim]
        for access in self.accesses:
            yield fact("access", self.block, access.tensor, access.dim, access.axis, access.stride)
        for name in sorted(self.constant):
            yield fact("constant", name)


def analyse(operator: Operator) -> BlockFacts:
    """Reads an operator's facts off its TIR.

    Raises:
        HeronError: the TIR is not one block that adds up products of two elements at affine indices.
    """
    return analyse_prim_func(operator.prim_func(), operator.constant)


def analyse_prim_func(function: Any, constant: frozenset[str]) -> BlockFacts:
    """Reads the facts of a PrimFunc with one reduction block; `constant` names the tensors that are known ahead."""
    from tvm import tirx

    block = _only_block(function)
    name = block.name_hint
    store = block.body
    if not isinstance(store, tirx.BufferStore):
        raise HeronError(f"block '{name}': its body is not one assignment")
    iterators = {iterator.var: iterator for iterator in block.iter_vars}
    axes = tuple(_axis(name, iterator) for iterator in block.iter_vars)
    names = [axis.name for axis in axes]
    factors = _factors(name, store)
    operands: list[Tensor] = []
    accesses: list[Access] = []
    for load, dtype in factors:
        tensor = Tensor(load.source.name, dtype, _extents(load.source))
        operands.append(tensor)
        accesses += _affine(name, tensor.name, load.indices, list(iterators), names)
    result = Tensor(store.buffer.name, _dtype_of(store.buffer), _extents(store.buffer))
    accesses += _affine(name, result.name, store.indices, list(iterators), names)
    known = {tensor.name for tensor in operands}
    return BlockFacts(name, axes, tuple(operands), result, tuple(accesses), frozenset(constant & known))


def _only_block(function: Any) -> Any:
    from tvm import s_tir, tirx

    body = function.body.block.body
    while isinstance(body, tirx.For):
        body = body.body
    if not isinstance(body, s_tir.SBlockRealize):
        raise HeronError("the operator has more than one block", "one reduction block is supported")
    return body.block


def _axis(block: str, iterator: Any) -> Axis:
    kinds = {_SPATIAL: "spatial", _REDUCE: "reduce"}
    if int(iterator.iter_type) not in kinds:
        raise HeronError(f"block '{block}': axis {iterator.var.name} is neither spatial nor a reduction")
    return Axis(iterator.var.name.removeprefix("v_"), kinds[int(iterator.iter_type)], int(iterator.dom.extent))


def _extents(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)


def _dtype_of(buffer: Any) -> str:
    for dtype in DTYPES.values():
        if dtype.storage == str(buffer.dtype) and dtype.name != "bf16":
            return dtype.name
    raise HeronError(f"tensor {buffer.name} has the element type {buffer.dtype}", f"supported: {', '.join(DTYPES)}")


def _factors(block: str, store: Any) -> list[tuple[Any, str]]:
    """The two loads whose product is added up, each with its element type."""
    from tvm.ir.prim import expr as prim

    value = store.value
    if isinstance(value, prim.Add) and isinstance(value.b, prim.Mul):
        loads = [_element(value.b.a), _element(value.b.b)]
        if all(loads):
            return [load for load in loads if load]
    raise HeronError(
        f"block '{block}' is not a sum of products of two elements: {value}",
        "the combiner must be accumulator + widen(x) * widen(y)",
    )


def _element(expression: Any) -> tuple[Any, str] | None:
    """The load under a widening, and the type of its elements (bf16: the upper half of a float32)."""
    from tvm.ir.prim import expr as prim

    while isinstance(expression, prim.Cast):
        expression = expression.value
    if hasattr(expression, "indices"):
        return expression, _dtype_of(expression.source)
    if getattr(getattr(expression, "op", None), "name", "") == "tirx.reinterpret":
        shifted = expression.args[0]
        if isinstance(shifted, prim.LShift) and int(shifted.b) == 16 and isinstance(shifted.a, prim.Cast):
            load = shifted.a.value
            if hasattr(load, "indices") and str(load.source.dtype) == DTYPES["bf16"].storage:
                return load, "bf16"
    return None


def _affine(block: str, tensor: str, indices: Any, variables: list[Any], names: list[str]) -> Iterator[Access]:
    from tvm.sym import detect_linear_equation

    for dim, index in enumerate(indices):
        coefficients = list(detect_linear_equation(index, variables))
        if not coefficients:
            raise HeronError(f"block '{block}': index {dim} of {tensor} ({index}) is not affine")
        for axis, coefficient in zip(names, coefficients, strict=False):
            if int(coefficient) != 0:
                yield Access(tensor, dim, axis, int(coefficient))
