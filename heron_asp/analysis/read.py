"""Reads an operator off its TIR: a block that adds up products, what makes its operands, what is made of its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heron_asp.analysis.facts import Access, Axis, BlockFacts, Finish, Parameter, Stage, Tensor
from heron_asp.analysis.merge import simplify
from heron_asp.analysis.product import as_product
from heron_asp.dtypes import DTYPES
from heron_asp.errors import HeronError
from heron_asp.operators import Operator
from heron_asp.tir import loads, substituted, with_loads

_SPATIAL, _REDUCE = 0, 2  # tvm.tirx.IterVar


def analyse(
    operator: Operator, windows: bool = True, roles: Mapping[str, int] | None = None, *, product: bool = False
) -> BlockFacts:
    """Reads an operator's facts off its TIR.

    Args:
        operator: what to compute.
        windows: whether a dimension along which windows slide may become part of another, such as the channels'.
        roles: of each kind how many an instruction has, where nothing but an instruction can run an operator.
        product: as a batch of matrix products, see `as_product`.

    Raises:
        HeronError: the TIR is not one block that adds up products of two elements at affine indices, with expressions
            of single elements before and after it.
    """
    block = analyse_prim_func(operator.prim_func(), operator.constant)
    if product:
        return as_product(block)
    return (
        block if operator.strided else simplify(block, windows, roles)
    )  # rows that may be any distance apart stay as they are


def analyse_prim_func(function: Any, constant: frozenset[str]) -> BlockFacts:
    """Reads the facts of a PrimFunc; `constant` names the arguments that are known ahead."""
    blocks = _blocks(function)
    sums = [block for block in blocks if any(int(one.iter_type) == _REDUCE for one in block.iter_vars)]
    if len(sums) != 1:
        names = ", ".join(block.name_hint for block in sums) or "none of " + ", ".join(b.name_hint for b in blocks)
        raise HeronError(
            f"the operator has {len(sums)} blocks that add up: {names}",
            "one sum of products is supported; blocks of single elements may stand before and after it",
        )
    (block,) = sums
    at = blocks.index(block)
    before = _composed(blocks[:at])
    reader = _Reader(block, before, [str(one.name) for one in function.params])
    finish = _finish(blocks[at + 1 :], block.body.buffer)
    written = finish.parameter.name if finish else block.body.buffer.name
    inputs = [_parameter(one) for one in function.params if one.name != written]
    if written not in {one.name for one in function.params}:
        raise HeronError(f"the operator writes {written}, which is none of its arguments")
    return reader.facts(tuple(inputs), constant, finish)


def _blocks(function: Any) -> list[Any]:
    """All blocks under the root, in order."""
    from tvm import s_tir, tirx

    body = function.body.block.body
    found = []
    for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        inner = statement
        while isinstance(inner, tirx.For):
            inner = inner.body
        if not isinstance(inner, s_tir.SBlockRealize):
            raise HeronError("the operator has a statement that is no block in a nest of loops")
        block = inner.block
        if not isinstance(block.body, tirx.BufferStore):
            raise HeronError(f"block '{block.name_hint}': its body is not one assignment")
        found.append(block)
    return found


def _parameter(buffer: Any) -> Parameter:
    return Parameter(str(buffer.name), str(buffer.dtype), _extents(buffer))


def _extents(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)


# -- expressions of single elements ------------------------------------------------------------------------------------


def _composed(blocks: list[Any]) -> dict[str, Stage]:
    """What each block makes of arguments: what reads another block's tensor reads through it."""
    made: dict[str, Stage] = {}
    for block in blocks:
        stage = _stage(block)
        made[str(block.body.buffer.name)] = Stage(stage.variables, _inlined(stage.value, made))
    return made


def _stage(block: Any) -> Stage:
    """A block that writes each element of a tensor once."""
    variables = tuple(iterator.var for iterator in block.iter_vars)
    indices = list(block.body.indices)
    in_order = len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))
    if not in_order or any(int(iterator.iter_type) != _SPATIAL for iterator in block.iter_vars):
        raise HeronError(
            f"block '{block.name_hint}': it does not write the elements of its tensor one by one, in order"
        )
    return Stage(variables, block.body.value)


def _inlined(value: Any, made: Mapping[str, Stage]) -> Any:
    """An expression with the loads of some tensors replaced by what these are made of."""

    def replace(load: Any) -> Any:
        stage = made.get(str(load.source.name))
        return (
            load if stage is None else substituted(stage.value, dict(zip(stage.variables, load.indices, strict=True)))
        )

    return with_loads(value, replace)


def _finish(blocks: list[Any], source: Any) -> Finish | None:
    """What the blocks after the sum make of its result."""
    if not blocks:
        return None
    made: dict[str, Stage] = {}
    for block in blocks:
        stage = _stage(block)
        made[str(block.body.buffer.name)] = Stage(stage.variables, _inlined(stage.value, made))
    last = blocks[-1].body.buffer
    return Finish(_parameter(last), made[str(last.name)], str(source.name))


# -- the sum of products -----------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Reads the block that adds up products."""

    block: Any
    before: dict[str, Stage]
    arguments: list[str]

    def facts(self, parameters: tuple[Parameter, ...], constant: frozenset[str], finish: Finish | None) -> BlockFacts:
        """All that the rules know of it."""
        store = self.block.body
        axes = [self._axis(iterator) for iterator in self.block.iter_vars]
        operands: list[Tensor] = []
        accesses: list[Access] = []
        for load, dtype in self._factors(store):
            operand, terms = self._operand(load, dtype, axes, [one.name for one in operands])
            operands.append(operand)
            accesses += terms
        name = str(store.buffer.name)
        offset, terms = self._affine(name, store.indices, axes)
        result = Tensor(name, self._dtype_of(store.buffer), _extents(store.buffer), offset)
        ordered = self._in_order(result, terms, axes)
        known = {operand.name for operand in operands if self._reads(operand) <= constant}
        return BlockFacts(
            str(self.block.name_hint),
            ordered,
            tuple(operands),
            result,
            (*accesses, *terms),
            frozenset(known),
            parameters,
            finish,
        )

    def _axis(self, iterator: Any) -> Axis:
        kinds = {_SPATIAL: "spatial", _REDUCE: "reduce"}
        name = str(iterator.var.name).removeprefix("v_")
        if int(iterator.iter_type) not in kinds:
            raise HeronError(f"block '{self.block.name_hint}': axis {name} is neither spatial nor a reduction")
        return Axis(name, kinds[int(iterator.iter_type)], int(iterator.dom.extent))

    def _operand(self, load: Any, dtype: str, axes: list[Axis], taken: list[str]) -> tuple[Tensor, list[Access]]:
        """A factor; one that is made of a single argument has its name."""
        source = str(load.source.name)
        stage = self.before.get(source)
        if stage is None and source not in self.arguments:
            raise HeronError(f"block '{self.block.name_hint}' reads {source}, which nothing has written")
        reads = _names(stage.value) if stage is not None else {source}
        name = next(iter(reads)) if len(reads) == 1 else source
        if name in taken:  # a product of a tensor with itself: one of the two is made of it, element by element
            name = source if source not in (*taken, *self.arguments) else f"{source}_again"
            stage = stage or _same(load)
        offset, terms = self._affine(name, load.indices, axes)
        return Tensor(name, dtype, _extents(load.source), offset, stage), terms

    def _reads(self, operand: Tensor) -> set[str]:
        return _names(operand.stage.value) if operand.stage is not None else {operand.name}

    def _in_order(self, result: Tensor, terms: list[Access], axes: list[Axis]) -> tuple[Axis, ...]:
        """The axes in the order of the result's dimensions, of which each has one."""
        by_name = {axis.name: axis for axis in axes}
        found = []
        for dim, extent in enumerate(result.shape):
            on = [term for term in terms if term.dim == dim]
            plain = (
                len(on) == 1 and on[0].stride == 1 and result.start(dim) == 0 and by_name[on[0].axis].extent == extent
            )
            if not plain:
                raise HeronError(
                    f"block '{self.block.name_hint}': dimension {dim} of {result.name} is not one axis, all of it",
                    "let the block write its sums in order, and a block after it put them in their places",
                )
            found.append(by_name[on[0].axis])
        if len(set(found)) != len(found) or len(found) != sum(axis.kind == "spatial" for axis in axes):
            raise HeronError(
                f"block '{self.block.name_hint}': each of its spatial axes must be a dimension of the result"
            )
        return (*found, *(axis for axis in axes if axis.kind == "reduce"))

    def _affine(self, tensor: str, indices: Any, axes: list[Axis]) -> tuple[tuple[int, ...], list[Access]]:
        """Where an index begins along each dimension, and its terms."""
        from tvm.sym import detect_linear_equation

        variables = [iterator.var for iterator in self.block.iter_vars]
        offset, terms = [], []
        for dim, index in enumerate(indices):
            coefficients = list(detect_linear_equation(index, variables))
            if not coefficients:
                raise HeronError(
                    f"block '{self.block.name_hint}': index {dim} of {tensor} ({index}) is not affine",
                    "let a block before it make a tensor in which it is",
                )
            *strides, start = (int(one) for one in coefficients)
            if start < 0 or min(strides, default=0) < 0:
                raise HeronError(
                    f"block '{self.block.name_hint}': index {dim} of {tensor} ({index}) begins or walks below 0",
                    "let a block before it pad or flip the tensor",
                )
            offset.append(start)
            terms += [
                Access(tensor, dim, axis.name, stride) for axis, stride in zip(axes, strides, strict=True) if stride
            ]
        return tuple(offset), terms

    def _factors(self, store: Any) -> Iterator[tuple[Any, str]]:
        """The two loads whose product is added up, each with its element type."""
        from tvm.ir.prim import expr as prim

        value = store.value
        if isinstance(value, prim.Add) and isinstance(value.b, prim.Mul):
            loads = [self._element(value.b.a), self._element(value.b.b)]
            if all(loads):
                yield from (load for load in loads if load)
                return
        raise HeronError(
            f"block '{self.block.name_hint}' is not a sum of products of two elements: {value}",
            "the combiner must be accumulator + widen(x) * widen(y)",
        )

    def _element(self, expression: Any) -> tuple[Any, str] | None:
        """The load under a widening, and the type of its elements (bf16: the upper half of a float32)."""
        from tvm.ir.prim import expr as prim

        while isinstance(expression, prim.Cast):
            expression = expression.value
        if hasattr(expression, "indices"):
            return expression, self._dtype_of(expression.source)
        if getattr(getattr(expression, "op", None), "name", "") == "tirx.reinterpret":
            shifted = expression.args[0]
            if isinstance(shifted, prim.LShift) and int(shifted.b) == 16 and isinstance(shifted.a, prim.Cast):
                load = shifted.a.value
                if hasattr(load, "indices") and str(load.source.dtype) == DTYPES["bf16"].storage:
                    return load, "bf16"
        return None

    def _dtype_of(self, buffer: Any) -> str:
        for dtype in DTYPES.values():
            if dtype.storage == str(buffer.dtype) and dtype.name != "bf16":
                return dtype.name
        raise HeronError(f"tensor {buffer.name} has the element type {buffer.dtype}", f"supported: {', '.join(DTYPES)}")


def _names(value: Any) -> set[str]:
    """Names of the tensors that an expression reads."""
    return {str(load.source.name) for load in loads(value)}


def _same(load: Any) -> Stage:
    """A tensor made of another, element by element."""
    from tvm import tirx

    variables = tuple(tirx.Var(f"i{dim}", "int32") for dim in range(len(load.indices)))
    return Stage(variables, load.source[variables])
