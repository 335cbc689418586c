"""Writes an operator down again over padded extents: as a TIR PrimFunc whose block the rules schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heron_asp.analysis import BlockFacts, Tensor
from heron_asp.analysis.product import sliced
from heron_asp.dtypes import DTYPES
from heron_asp.errors import InternalError
from heron_asp.operators.expressions import widen
from heron_asp.schedule.bfloat16 import with_bfloat16
from heron_asp.tir import substituted, with_loads


def express(
    block: BlockFacts,
    extents: Mapping[str, int] | None = None,
    innermost: str = "",
    shifts: Mapping[str, int] | None = None,
    native: bool = False,
) -> Any:
    """The operator as a PrimFunc over plain tensors.

    What an axis has beyond the extent of the operator adds nothing: an operand that it walks through is zero there. An
    operand T that is padded, or made of other tensors, comes from a block `T_pad`; what is made of the result, or left
    of it, from a block after the sum, named for the result likewise.

    Args:
        block: from `heron_asp.analysis`.
        extents: of axes that are padded.
        innermost: the axis that is innermost in the result as the block makes it; by default the one that is.
        shifts: what is added to each element of an operand T, by its name. The sum is then too large by what a block
            `U_start` makes of the other operand U, over the axes of the result that U has in their order, as a
            further argument ahead of the result: with that taken off, which `U_start` is.
        native: bf16 is TVM's own type, for machines with instructions for it; otherwise it is stored as u16.

    Raises:
        InternalError: an axis is shorter than the operator's, or is padded where it is endless.
    """
    from tvm import te

    slices = (extents or {}).get(block.slices, 1)
    if slices > 1:
        (summed,) = (axis.name for axis in block.axes if axis.kind == "reduce")
        block = sliced(block, slices, (extents or {}).get(summed, block.extents[summed]))
    for axis in block.axes:
        wanted = (extents or {}).get(axis.name, axis.extent)
        if wanted < axis.extent or (wanted > axis.extent and block.endless(axis)):
            raise InternalError(f"axis {axis.name} of {axis.extent} steps cannot have {wanted}")
    expression = _Expression(block, {**block.extents, **(extents or {})}, innermost, shifts or {})
    function = te.create_prim_func(expression.tensors())
    return with_bfloat16(function) if native else function


class _Expression:
    def __init__(
        self, block: BlockFacts, extents: Mapping[str, int], innermost: str, shifts: Mapping[str, int]
    ) -> None:
        self.block = block
        self.shifts = shifts
        self.extents = extents
        self.spatial = [axis.name for axis in block.axes if axis.kind == "spatial"]
        self.made = block.order(innermost)[: len(self.spatial)]  # the axes of the result as it is made
        self.padded = {axis.name for axis in block.axes if extents[axis.name] > axis.extent}

    def tensors(self) -> list[Any]:
        from tvm import te

        self.arguments = {
            one.name: te.placeholder(one.shape, one.storage, name=one.name) for one in self.block.parameters
        }
        operands = [self._operand(tensor) for tensor in self.block.operands]
        result = self._sum(operands)
        finished = self._finished(result)
        starts = [self._start(slot) for slot, tensor in enumerate(self.block.operands) if tensor.name in self.shifts]
        return [*self.arguments.values(), *starts, finished]

    def _operand(self, tensor: Tensor) -> Any:
        """The argument itself, or a block that makes what is read of it."""
        from tvm import te

        if tensor.stage is None and not self._is_padded(tensor):
            return self.arguments[tensor.name]
        shape, element = self._made(tensor)
        return te.compute(shape, named([f"d{dim}" for dim in range(len(shape))], element), name=f"{tensor.name}_pad")

    def _is_padded(self, tensor: Tensor) -> bool:
        return bool(self.padded & self.block.indexes(tensor.name))

    def _made(self, tensor: Tensor) -> tuple[tuple[int, ...], Callable[..., Any]]:
        """Extents of an operand as the block reads it, and its elements."""
        from tvm import tirx

        needed = tuple(self._needed(tensor, dim) for dim in range(len(tensor.shape)))
        shape = needed if self._is_padded(tensor) else tensor.shape
        storage = DTYPES[tensor.dtype].storage

        def element(*indices: Any) -> Any:
            from tvm.te import all as every
            from tvm.te import if_then_else

            value = self._element(tensor, indices)
            beyond = [
                index < extent
                for index, extent, wanted in zip(indices, tensor.shape, shape, strict=True)
                if wanted > extent
            ]
            return if_then_else(every(*beyond), value, tirx.const(0, storage)) if beyond else value

        return shape, element

    def _element(self, tensor: Tensor, indices: Sequence[Any]) -> Any:
        if tensor.stage is None:
            return self.arguments[tensor.name](*indices)
        return self._over(tensor.stage.value, dict(zip(tensor.stage.variables, indices, strict=True)), self.arguments)

    def _over(self, value: Any, by: Mapping[Any, Any], tensors: Mapping[str, Any]) -> Any:
        """An expression of other variables and tensors."""
        return with_loads(substituted(value, by), lambda load: tensors[str(load.source.name)](*load.indices))

    def _needed(self, tensor: Tensor, dim: int) -> int:
        """How far the block reads along a dimension."""
        terms = self.block.of(tensor.name, dim)
        return tensor.start(dim) + 1 + sum(term.stride * (self.extents[term.axis] - 1) for term in terms)

    def _summed(self) -> dict[str, Any]:
        from tvm import te

        return {
            axis.name: te.reduce_axis((0, self.extents[axis.name]), name=axis.name)
            for axis in self.block.axes
            if axis.kind == "reduce"
        }

    def _start(self, shifted: int) -> Any:
        """What the shift of an operand adds to each sum, taken off: a block of the other operand."""
        from tvm import te, tirx

        tensor, other = self.block.operands[shifted], self.block.operands[1 - shifted]
        accumulator, summed = DTYPES[self.block.result.dtype], self._summed()
        offset = tirx.const(-self.shifts[tensor.name], accumulator.storage)
        axes = [name for name in self.made if name in self.block.indexes(other.name)]
        _, read = self._made(other)

        def element(*indices: Any) -> Any:
            at = {**dict(zip(axes, indices, strict=True)), **summed}
            value = read(*self._indices(other, at))
            return te.sum(widen(value, DTYPES[other.dtype], accumulator) * offset, axis=list(summed.values()))

        return te.compute([self.extents[name] for name in axes], named(axes, element), name=f"{other.name}_start")

    def _sum(self, operands: Sequence[Any]) -> Any:
        from tvm import te, tirx

        summed = self._summed()
        accumulator = DTYPES[self.block.result.dtype]

        def element(*indices: Any) -> Any:
            at = {**dict(zip(self.made, indices, strict=True)), **summed}
            factors = []
            for operand, tensor in zip(operands, self.block.operands, strict=True):
                value = widen(operand(*self._indices(tensor, at)), DTYPES[tensor.dtype], accumulator)
                if tensor.name in self.shifts:
                    value = value + tirx.const(self.shifts[tensor.name], accumulator.storage)
                factors.append(value)
            return te.sum(factors[0] * factors[1], axis=list(summed.values()))

        shape = [self.extents[name] for name in self.made]
        return te.compute(shape, named(self.made, element), name=self.block.block)

    def _indices(self, tensor: Tensor, at: Mapping[str, Any]) -> list[Any]:
        from tvm import tirx

        found = []
        for dim in range(len(tensor.shape)):
            index: Any = tirx.const(tensor.start(dim), "int32")
            for term in self.block.of(tensor.name, dim):
                axis = at[term.axis]
                index = index + getattr(axis, "var", axis) * term.stride
            found.append(index)
        return found

    def _finished(self, result: Any) -> Any:
        from tvm import te

        block, name = self.block, f"{self.block.result.name}_pad"

        def place(*indices: Any) -> Any:
            at = dict(zip(self.spatial, indices, strict=True))
            return result(*(at[axis] for axis in self.made))

        if block.finish is not None:
            stage, shape = block.finish.stage, block.finish.parameter.shape
            tensors = {**self.arguments, block.finish.source: place}
            variables = [f"d{dim}" for dim in range(len(shape))]
            return te.compute(
                shape,
                named(
                    variables, lambda *i: self._over(stage.value, dict(zip(stage.variables, i, strict=True)), tensors)
                ),
                name=name,
            )
        if self.padded & block.indexes(block.result.name) or self.made != self.spatial:
            variables = [f"d{dim}" for dim in range(len(block.result.shape))]
            return te.compute(block.result.shape, named(variables, place), name=name)
        return result


def named(names: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose parameters have these names: `te.compute` calls the loops by them."""

    def called(*indices: Any) -> Any:
        return function(*indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    called.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return called
