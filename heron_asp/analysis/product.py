"""Any operator as a batch of matrix products, for matrix units behind a memory that is filled element by element.

Axes of the result fall into rows, which only the first operand has, columns, which only the second has, and a batch,
which is all else; sums are over one axis. Neighbours in the result that are of one sort become one axis, so that the
result lies in memory as before; operands become matrices, each element of which is made of an element of the operator's
own: of an image, the window that a row of the product sees. (Chellapilla 2006 calls that an unrolled convolution, most
others im2col; here it is never more in memory than the tile that is copied.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any

from heron_asp.analysis.facts import Access, Axis, BlockFacts, Finish, Parameter, Stage, Tensor
from heron_asp.analysis.merge import simplify
from heron_asp.dtypes import DTYPES
from heron_asp.tir import substituted, with_loads

SLICES, BATCH, ROWS, COLUMNS, SUM = _ORDER = "slices", "batch", "rows", "columns", "sum"  # outermost first


@dataclass(frozen=True)
class _Fused:
    """An axis of the product, and the operator's axes that it walks through, outermost first."""

    axis: Axis
    sort: str
    parts: tuple[Axis, ...]

    def places(self, variable: Any) -> dict[str, Any]:
        """Where each of the operator's axes stands at a step of this one."""
        found, inner = {}, 1
        for part in reversed(self.parts):
            outermost = part is self.parts[0]
            found[part.name] = variable // inner if outermost else variable // inner % part.extent
            inner *= part.extent
        return found


def as_product(block: BlockFacts) -> BlockFacts:
    """The operator as a batch of matrix products; its operands and its result come from, and go through, stages.

    A first axis of a single step stands for slices of the sum, see `sliced`. The sums are made batch by batch, row by
    row; what is written has the operator's order. There is always an axis of rows and one of columns: of one step, and
    no dimension of what is written, where the operator has none.
    """
    block = simplify(block, windows=False)
    runs = _told_apart([_Fused(Axis("slice", "spatial", 1), SLICES, ()), *_fused(block)])
    fused = sorted(runs, key=lambda one: _ORDER.index(one.sort))
    axes = tuple(one.axis for one in fused)
    product = replace(block, axes=axes, accesses=())
    operands = [_operand(block, tensor, fused) for tensor in block.operands]
    spatial = [one for one in fused if one.axis.kind == "spatial"]
    result = replace(block.result, shape=tuple(one.axis.extent for one in spatial), offset=())
    written = [Access(result.name, dim, one.axis.name, 1) for dim, one in enumerate(spatial)]
    accesses = [access for _, own in operands for access in own]
    return replace(
        product,
        operands=tuple(tensor for tensor, _ in operands),
        result=result,
        accesses=(*accesses, *written),
        finish=_finish(block, runs, spatial, result),
        slices=runs[0].axis.name,
    )


def sliced(block: BlockFacts, slices: int, steps: int) -> BlockFacts:
    """The operator with its sum in slices, each of so many steps: what is beyond the end is zero."""
    from tvm import tirx

    summed = next(axis for axis in block.axes if axis.kind == "reduce")
    extents = {block.slices: slices, summed.name: steps}
    axes = tuple(replace(axis, extent=extents.get(axis.name, axis.extent)) for axis in block.axes)

    def operand(tensor: Tensor) -> Tensor:
        assert tensor.stage is not None
        dims = [block.of(tensor.name, dim)[0].axis for dim in range(len(tensor.shape))]
        variables = dict(zip(dims, tensor.stage.variables, strict=True))
        step = variables[block.slices] * steps + variables[summed.name]
        moved = {variables[summed.name]: step, variables[block.slices]: tirx.const(0, "int32")}
        value = substituted(tensor.stage.value, moved)
        if slices * steps > summed.extent:
            zero = tirx.const(0, DTYPES[tensor.dtype].storage)
            value = tirx.if_then_else(step < summed.extent, value, zero)
        shape = tuple(extents.get(name, size) for name, size in zip(dims, tensor.shape, strict=True))
        return replace(tensor, shape=shape, stage=Stage(tensor.stage.variables, value))

    assert block.finish is not None
    shape = (slices, *block.result.shape[1:])
    sums = tirx.decl_buffer(shape, DTYPES[block.result.dtype].storage, name=block.finish.source)

    def together(load: Any) -> Any:
        if str(load.source.name) != block.finish.source:  # type: ignore[union-attr]
            return load
        parts = [sums[[tirx.const(number, "int32"), *list(load.indices)[1:]]] for number in range(slices)]
        return sum(parts[1:], start=parts[0])

    stage = Stage(block.finish.stage.variables, with_loads(block.finish.stage.value, together))
    return replace(
        block,
        axes=axes,
        operands=tuple(map(operand, block.operands)),
        result=replace(block.result, shape=shape),
        finish=replace(block.finish, stage=stage),
    )


def _told_apart(runs: Sequence[_Fused]) -> list[_Fused]:
    """The axes with a name of its own for each; one of the operator's keeps its name."""
    taken = {one.axis.name for one in runs if len(one.parts) == 1}
    found = []
    for one in runs:
        name = one.axis.name
        while len(one.parts) != 1 and name in taken:
            name += "_"
        taken.add(name)
        found.append(replace(one, axis=replace(one.axis, name=name)))
    return found


def _fused(block: BlockFacts) -> list[_Fused]:
    """The axes of the product: runs of one sort of the result's axes, then the sum."""
    spatial = [axis for axis in block.axes if axis.kind == "spatial"]
    reduced = tuple(axis for axis in block.axes if axis.kind == "reduce")
    first, second = (block.indexes(tensor.name) for tensor in block.operands)

    def sort(axis: Axis) -> str:
        if (axis.name in first) == (axis.name in second):
            return BATCH
        return ROWS if axis.name in first else COLUMNS

    if block.finish is not None and not block.finish.in_place:  # its sums may lie in any order
        spatial.sort(key=lambda axis: _ORDER.index(sort(axis)))
    runs = [(kind, tuple(run)) for kind, run in groupby(spatial, sort)]
    longest = {
        kind: max((run for one, run in runs if one == kind), key=lambda run: prod(axis.extent for axis in run))
        for kind in {kind for kind, _ in runs}
    }
    found = [_run(kind if longest[kind] is run else BATCH, run) for kind, run in runs]
    for kind in (ROWS, COLUMNS):
        if kind not in longest:
            found.append(_Fused(Axis({ROWS: "row", COLUMNS: "column"}[kind], "spatial", 1), kind, ()))
    return [*found, _run(SUM, reduced)]


def _run(sort: str, run: Sequence[Axis]) -> _Fused:
    name = "_".join(axis.name for axis in run)
    return _Fused(Axis(name, run[0].kind, prod(axis.extent for axis in run)), sort, tuple(run))


def _operand(block: BlockFacts, tensor: Tensor, fused: Sequence[_Fused]) -> tuple[Tensor, list[Access]]:
    """An operand as a matrix of a batch, each element made of one of the operator's."""
    from tvm import tirx

    has = block.indexes(tensor.name)
    dims = [one for one in fused if _walks(block, tensor, one, has)]
    dims.sort(key=lambda one: _pitch(block, tensor, one), reverse=True)
    variables = tuple(tirx.Var(f"d{dim}", "int32") for dim in range(len(dims)))
    places: dict[str, Any] = {}
    for one, variable in zip(dims, variables, strict=True):
        places |= one.places(variable)
    index = [
        sum((places[term.axis] * term.stride for term in block.of(tensor.name, dim)), start=tensor.start(dim))
        for dim in range(len(tensor.shape))
    ]
    shape = tuple(one.axis.extent for one in dims)
    if tensor.stage is None:
        value = tirx.decl_buffer(tensor.shape, DTYPES[tensor.dtype].storage, name=tensor.name)[index]
    else:
        value = substituted(tensor.stage.value, dict(zip(tensor.stage.variables, index, strict=True)))
    made = replace(tensor, shape=shape, offset=(), stage=Stage(variables, _simplified(value, variables, shape)))
    return made, [Access(tensor.name, dim, one.axis.name, 1) for dim, one in enumerate(dims)]


def _walks(block: BlockFacts, tensor: Tensor, one: _Fused, has: set[str]) -> bool:
    """Whether an operand has a dimension for an axis of the product, be it one of a single step."""
    if one.sort == SLICES:
        return True
    if not one.parts:
        return one.sort == (ROWS if tensor is block.operands[0] else COLUMNS)
    return any(part.name in has for part in one.parts)


def _pitch(block: BlockFacts, tensor: Tensor, one: _Fused) -> tuple[bool, int, int]:
    """How far the innermost part of an axis walks in memory: what walks least is the innermost dimension.

    Batches are outside: a tile holds one of their steps.
    """
    last = next((part for part in reversed(one.parts) if part.name in block.indexes(tensor.name)), None)
    if last is None:
        return one.sort == SLICES, 1 << 62, 0
    step = 0
    for dim in range(len(tensor.shape)):
        inner = prod(tensor.shape[dim + 1 :])
        step += sum(term.stride * inner for term in block.of(tensor.name, dim) if term.axis == last.name)
    return one.sort == BATCH, step, one.axis.kind == "spatial"


def _finish(block: BlockFacts, runs: Sequence[_Fused], spatial: Sequence[_Fused], result: Tensor) -> Finish:
    """What is written, with a dimension for each run of the operator's axes, made of the sums at the same place.

    Where the operator's own stage moves sums to other places it stays as it is, and reads the product's.
    """
    from tvm import tirx

    source = block.finish.source if block.finish is not None else block.result.name
    sums = tirx.decl_buffer(result.shape, DTYPES[result.dtype].storage, name=source)

    def moved(load: Any) -> Any:
        if str(load.source.name) != source:
            return load
        by_axis = dict(zip([axis.name for axis in block.axes if axis.kind == "spatial"], load.indices, strict=True))
        return sums[[_step(one, by_axis) for one in spatial]]

    if block.finish is not None and not block.finish.in_place:
        stage = block.finish.stage
        value = _simplified(with_loads(stage.value, moved), stage.variables, block.finish.parameter.shape)
        return replace(block.finish, stage=Stage(stage.variables, value))
    written = [one for one in runs if one.parts and one.axis.kind == "spatial"]
    variables = tuple(tirx.Var(f"d{dim}", "int32") for dim in range(len(written)))
    shape = tuple(one.axis.extent for one in written)
    at: dict[str, Any] = {}
    for one, variable in zip(written, variables, strict=True):
        at |= one.places(variable)
    order = [axis.name for axis in block.axes if axis.kind == "spatial"]
    name = f"{block.result.name}_out"
    while name in {one.name for one in block.parameters}:
        name += "_"
    parameter = Parameter(name, DTYPES[block.result.dtype].storage, shape)
    if block.finish is None:
        own: Mapping[str, Any] = {part.name: at[part.name] for one in written for part in one.parts}
        value = sums[[_step(one, own) for one in spatial]]
    else:
        stage, parameter = block.finish.stage, replace(block.finish.parameter, shape=shape)
        value = substituted(stage.value, {one: at[name] for one, name in zip(stage.variables, order, strict=True)})
        value = with_loads(value, moved)
    return Finish(parameter, Stage(variables, _simplified(value, variables, shape)), source)


def _step(one: _Fused, places: Mapping[str, Any]) -> Any:
    """The step of an axis of the product at a place of the operator."""
    step: Any = 0
    for part in one.parts:
        step = step * part.extent + places[part.name]
    return step


def _simplified(value: Any, variables: Sequence[Any], shape: Sequence[int]) -> Any:
    from tvm.ir import Range
    from tvm.sym import Analyzer

    analyzer = Analyzer()
    for variable, extent in zip(variables, shape, strict=True):
        analyzer.bind(variable, Range(0, extent))
    return analyzer.simplify(value)
