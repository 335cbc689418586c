"""Fewer axes for the same operator: those of one step vanish, neighbours that walk through memory together are one.

A 1x1 convolution of channels-last images becomes a matrix product; the width of a window and its channels become one
axis of contiguous elements. Only the view of the memory changes, never its order; but an operand of which axes walk
through a part is made of that part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from heron_asp.analysis.facts import Access, Axis, BlockFacts, Finish, Parameter, Stage, Tensor
from heron_asp.dtypes import DTYPES
from heron_asp.tir import divides, loads, substituted, with_loads


def simplify(block: BlockFacts, windows: bool = True, roles: Mapping[str, int] | None = None) -> BlockFacts:
    """The operator with as few axes and dimensions as its tensors allow.

    Args:
        block: the operator.
        windows: whether a dimension along which windows slide may become part of another.
        roles: of each kind how many an instruction has: so many axes that can be padded stay, even if of one step.
    """
    block = _without_units(_whole(_without_unit_axes(block, roles or {})))
    while True:
        merged = next((found for pair in _pairs(block) if (found := _merged(block, *pair, windows))), None)
        if merged is None:
            return block
        block = merged


def _pairs(block: BlockFacts) -> Iterator[tuple[Axis, Axis]]:
    """Neighbours of a kind, the innermost first."""
    for outer, inner in reversed(list(pairwise(block.axes))):
        if outer.kind == inner.kind:
            yield outer, inner


# -- axes and dimensions of one step -----------------------------------------------------------------------------------


def _without_unit_axes(block: BlockFacts, roles: Mapping[str, int]) -> BlockFacts:
    """Drops axes of one step, but keeps one of each kind, and those that roles lack: the innermost first."""
    kept = {axis.name for axis in block.axes if axis.extent > 1}
    for kind in ("spatial", "reduce"):
        axes = [axis.name for axis in block.axes if axis.kind == kind]
        if kept.isdisjoint(axes):
            kept.add(axes[-1])
        for name in reversed(axes):
            walks = {_indexed(block, one) for one in axes if one in kept and not _slides(block, one, kept)}
            if len(walks) < roles.get(kind, 0) and not _slides(block, name, kept | {name}):
                kept |= {name} if _indexed(block, name) not in walks else set()
    accesses = tuple(access for access in block.accesses if access.axis in kept)
    return replace(block, axes=tuple(axis for axis in block.axes if axis.name in kept), accesses=accesses)


def _indexed(block: BlockFacts, axis: str) -> frozenset[str]:
    """The tensors that an axis walks through."""
    return frozenset(access.tensor for access in block.accesses if access.axis == axis)


def _slides(block: BlockFacts, axis: str, kept: Collection[str]) -> bool:
    """Whether an axis moves a window: in steps, or in a dimension along which another of those that are kept moves."""
    own = [access for access in block.accesses if access.axis == axis]
    return any(
        one.stride != 1 or any(other.axis in kept and other.axis != axis for other in block.of(one.tensor, one.dim))
        for one in own
    )


def _without_units(block: BlockFacts) -> BlockFacts:
    """Drops dimensions of one element."""
    for tensor in (*block.operands, block.result):
        for dim in reversed(range(len(tensor.shape))):
            if tensor.shape[dim] == 1 and len(tensor.shape) > 1 and not block.of(tensor.name, dim):
                block = _without(block, tensor.name, dim) or block
    return block


def _without(block: BlockFacts, name: str, dim: int) -> BlockFacts | None:
    """The operator with a dimension of one element less in a tensor; None where another expression needs it."""
    tensor = _tensor(block, name)
    shape = (*tensor.shape[:dim], *tensor.shape[dim + 1 :])
    offset = (*tensor.offset[:dim], *tensor.offset[dim + 1 :])
    stage = tensor.stage
    if stage is not None:
        from tvm import tirx

        variables = (*stage.variables[:dim], *stage.variables[dim + 1 :])
        stage = Stage(variables, substituted(stage.value, {stage.variables[dim]: tirx.const(0, "int32")}))
    changed = replace(tensor, shape=shape, offset=offset, stage=stage)
    accesses = tuple(
        replace(one, dim=one.dim - (one.dim > dim)) if one.tensor == name else one for one in block.accesses
    )
    block = replace(_with_tensor(block, changed), accesses=accesses)
    if name == block.result.name:
        return _with_source_without(block, dim, shape)
    return _with_parameter(block, name, shape) if tensor.stage is None else block


def _with_source_without(block: BlockFacts, dim: int, shape: tuple[int, ...]) -> BlockFacts:
    """The loads of the result, in what is made of it, with an index less."""
    if block.finish is None:
        return block
    source, stage = block.finish.source, block.finish.stage
    buffer = _buffer(source, shape, stage, source)

    def shorter(load: Any) -> Any:
        if str(load.source.name) != source:
            return load
        return buffer[[index for at, index in enumerate(load.indices) if at != dim]]

    value, variables, parameter = with_loads(stage.value, shorter), stage.variables, block.finish.parameter
    written = parameter.shape
    if len(written) == len(shape) + 1 and written[dim] == 1:  # its own dimension goes with it
        from tvm import tirx

        value = substituted(value, {variables[dim]: tirx.const(0, "int32")})
        variables = (*variables[:dim], *variables[dim + 1 :])
        parameter = replace(parameter, shape=(*written[:dim], *written[dim + 1 :]))
    return replace(block, finish=Finish(parameter, Stage(variables, value), source))


def _with_parameter(block: BlockFacts, name: str, shape: tuple[int, ...]) -> BlockFacts | None:
    """The operator with other extents of an argument; None where an expression reads it under the old ones."""
    if any(name == str(load.source.name) for stage in _stages(block) for load in loads(stage.value)):
        return None
    parameters = tuple(replace(one, shape=shape) if one.name == name else one for one in block.parameters)
    return replace(block, parameters=parameters)


def _stages(block: BlockFacts) -> Iterator[Stage]:
    yield from (operand.stage for operand in block.operands if operand.stage is not None)
    if block.finish is not None:
        yield block.finish.stage


def _tensor(block: BlockFacts, name: str) -> Tensor:
    return next(tensor for tensor in (*block.operands, block.result) if tensor.name == name)


def _with_tensor(block: BlockFacts, tensor: Tensor) -> BlockFacts:
    if tensor.name == block.result.name:
        return replace(block, result=tensor)
    return replace(block, operands=tuple(tensor if one.name == tensor.name else one for one in block.operands))


def _buffer(name: str, shape: tuple[int, ...], stage: Stage, like: str) -> Any:
    """A tensor to load from in an expression, under other extents."""
    from tvm import tirx

    dtype = next(str(load.source.dtype) for load in loads(stage.value) if str(load.source.name) == like)
    return tirx.decl_buffer(shape, dtype, name=name)


def _whole(block: BlockFacts) -> BlockFacts:
    """Crops operands along dimensions of which at most one axis walks through a part, such as rows below all windows.

    What is packed by units must begin with a unit and have nothing behind the last one.
    """
    for tensor in block.operands:
        parts = {}
        for dim, extent in enumerate(tensor.shape):
            terms = block.of(tensor.name, dim)
            steps = block.extents[terms[0].axis] if terms else 1
            if len(terms) <= 1 and all(term.stride == 1 for term in terms) and steps < extent:
                parts[dim] = steps
        if parts:
            block = _with_tensor(block, _cropped(tensor, parts))
    return block


def _cropped(tensor: Tensor, parts: Mapping[int, int]) -> Tensor:
    """A part of a tensor from where the block begins to read, as a tensor made of it; `parts` are extents."""
    from tvm import tirx
    from tvm.ir import Range
    from tvm.sym import Analyzer

    shape = tuple(parts.get(dim, extent) for dim, extent in enumerate(tensor.shape))
    offset = tuple(0 if dim in parts else tensor.start(dim) for dim in range(len(shape)))
    variables = tuple(tirx.Var(f"i{dim}", "int32") for dim in range(len(shape)))
    places = [variable + (tensor.start(dim) if dim in parts else 0) for dim, variable in enumerate(variables)]
    if tensor.stage is None:
        value = tirx.decl_buffer(tensor.shape, DTYPES[tensor.dtype].storage, name=tensor.name)[places]
    else:
        value = substituted(tensor.stage.value, dict(zip(tensor.stage.variables, places, strict=True)))
    analyzer = Analyzer()
    for variable, extent in zip(variables, shape, strict=True):
        analyzer.bind(variable, Range(0, extent))
    return replace(tensor, shape=shape, offset=offset, stage=Stage(variables, analyzer.simplify(value)))


# -- axes that walk together -------------------------------------------------------------------------------------------


def _merged(block: BlockFacts, outer: Axis, inner: Axis, windows: bool) -> BlockFacts | None:
    """The operator with two neighbouring axes as one; None where some tensor does not let them."""
    name = f"{outer.name}_{inner.name}"
    while any(one.name == name for one in block.axes):
        name += "_"
    axis = Axis(name, outer.kind, outer.extent * inner.extent)
    place = block.axes.index(outer)
    axes = (*block.axes[:place], axis, *block.axes[place + 2 :])
    changed: BlockFacts | None = replace(block, axes=axes)
    for tensor in (*block.operands, block.result):
        if changed is not None:
            changed = _merged_in(changed, tensor, outer, inner, axis, windows)
    return changed


def _merged_in(
    block: BlockFacts, tensor: Tensor, outer: Axis, inner: Axis, axis: Axis, windows: bool
) -> BlockFacts | None:
    """The operator with two axes as one in a tensor."""
    first = [access for access in block.accesses if (access.tensor, access.axis) == (tensor.name, outer.name)]
    second = [access for access in block.accesses if (access.tensor, access.axis) == (tensor.name, inner.name)]
    if not first and not second:
        return block
    if len(first) != 1 or len(second) != 1:
        return None
    ((outside,), (inside,)) = first, second
    if outside.dim == inside.dim and outside.stride == inside.stride * inner.extent:
        rest = tuple(one for one in block.accesses if one not in (outside, inside))
        return replace(block, accesses=(*rest, Access(tensor.name, inside.dim, axis.name, inside.stride)))
    alone = block.own(tensor, inner) == inside.dim
    if inside.dim != outside.dim + 1 or not alone or outside.stride != 1:
        return None
    if not windows and block.of(tensor.name, outside.dim) != [outside]:
        return None
    return _merged_dimensions(block, tensor, outside, inside, axis, inner.extent)


def _merged_dimensions(
    block: BlockFacts, tensor: Tensor, outside: Access, inside: Access, axis: Axis, extent: int
) -> BlockFacts | None:
    """The operator with two dimensions of a tensor as one, of which an axis walks through all of the inner one."""
    dim = outside.dim
    shape = (*tensor.shape[:dim], tensor.shape[dim] * extent, *tensor.shape[dim + 2 :])
    offset = (*tensor.offset[:dim], tensor.start(dim) * extent, *tensor.offset[dim + 2 :])
    accesses = []
    for one in block.accesses:
        if one in (outside, inside):
            continue
        if one.tensor == tensor.name and one.dim == dim:
            one = replace(one, stride=one.stride * extent)
        elif one.tensor == tensor.name and one.dim > dim:
            one = replace(one, dim=one.dim - 1)
        accesses.append(one)
    accesses.append(Access(tensor.name, dim, axis.name, 1))
    changed = replace(tensor, shape=shape, offset=offset)
    block = replace(block, accesses=tuple(accesses))
    if tensor.name == block.result.name:
        return _merged_finish(_with_tensor(block, changed), dim, extent, shape)
    if tensor.stage is None:
        return _with_parameter(_with_tensor(block, changed), tensor.name, shape)
    shapes = {one.name: one.shape for one in block.parameters if _read_once(block, one.name)}
    found = _merged_stage(tensor.stage, dim, extent, changed.shape, shapes)
    if found is None:
        return None
    stage, views = found
    return _with_views(_with_tensor(block, replace(changed, stage=stage)), views)


def _read_once(block: BlockFacts, name: str) -> bool:
    """Whether a single load reads an argument, so that its extents may change."""
    direct = sum(operand.name == name and operand.stage is None for operand in block.operands)
    staged = sum(str(load.source.name) == name for stage in _stages(block) for load in loads(stage.value))
    return direct + staged == 1


def _with_views(block: BlockFacts, views: Mapping[str, tuple[int, ...]]) -> BlockFacts:
    parameters = tuple(replace(one, shape=views.get(one.name, one.shape)) for one in block.parameters)
    return replace(block, parameters=parameters)


def _merged_finish(block: BlockFacts, dim: int, extent: int, shape: tuple[int, ...]) -> BlockFacts | None:
    """What is made of the result, where two dimensions of that are one: its own are one too, or None."""
    finish = block.finish
    if finish is None:
        return block
    written = finish.parameter.shape
    if len(written) <= dim + 1 or written[dim + 1] != extent:
        return None
    merged = (*written[:dim], written[dim] * extent, *written[dim + 2 :])
    shapes = {one.name: one.shape for one in block.parameters if _read_once(block, one.name)}
    rank = len(block.result.shape) + 1  # the loads of the result have the dimensions that it had
    before = (*shape[:dim], shape[dim] // extent, extent, *shape[dim + 1 :])
    assert len(before) == rank
    found = _merged_stage(finish.stage, dim, extent, merged, {**shapes, finish.source: before})
    if found is None or finish.source not in found[1]:
        return None
    stage, views = found
    parameter: Parameter = replace(finish.parameter, shape=merged)
    return replace(_with_views(block, views), finish=Finish(parameter, stage, finish.source))


def _merged_stage(
    stage: Stage, dim: int, extent: int, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Stage, dict[str, tuple[int, ...]]] | None:
    """An expression over a tensor of which two dimensions are one, and the tensors that are read under other extents.

    None where it would have to divide: what is copied then is no row of memory.

    Args:
        stage: the expression.
        dim: the outer of the two dimensions.
        extent: of the inner one.
        shape: of the tensor afterwards.
        shapes: of the tensors whose extents may change.
    """
    from tvm import tirx
    from tvm.ir import Range
    from tvm.sym import Analyzer

    variable = tirx.Var(f"{stage.variables[dim].name}_{stage.variables[dim + 1].name}", "int32")
    variables = (*stage.variables[:dim], variable, *stage.variables[dim + 2 :])
    analyzer = Analyzer()
    for one, size in zip(variables, shape, strict=True):
        analyzer.bind(one, Range(0, size))
    apart = {stage.variables[dim]: variable // extent, stage.variables[dim + 1]: variable % extent}
    views: dict[str, tuple[int, ...]] = {}

    def joined(load: Any) -> Any:
        name = str(load.source.name)
        indices = [analyzer.simplify(index) for index in load.indices]
        for at, size in enumerate(shapes.get(name, ())):
            if at > 0 and size == extent and divides(indices[at]):
                together = analyzer.simplify(indices[at - 1] * extent + indices[at])
                if not divides(together):
                    old = shapes[name]
                    views[name] = (*old[: at - 1], old[at - 1] * extent, *old[at + 1 :])
                    buffer = _buffer(name, views[name], stage, name)
                    return buffer[[*indices[: at - 1], together, *indices[at + 1 :]]]
        return load

    value = analyzer.simplify(with_loads(analyzer.simplify(substituted(stage.value, apart)), joined))
    return None if divides(value) else (Stage(variables, value), views)
