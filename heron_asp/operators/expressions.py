"""Parts of tensor expressions that operators share: zero padding, the sum of products, elements of a type.

A *place* says where in the operator an expression stands: an index expression by axis name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from heron_asp.dtypes import DType
from heron_asp.operators.kind import ACCUMULATOR, Expression, Names, TensorSpec
from heron_asp.operators.operator import Operator

Place: TypeAlias = dict[str, Any]


def widen(element: Any, dtype: DType, accumulator: DType) -> Any:
    """An element as the accumulator's type: what every intrinsic that multiplies narrow elements does first."""
    from tvm import tirx

    if dtype.name == "bf16":  # the upper half of a float32
        bits = tirx.shift_left(tirx.Cast("uint32", element), tirx.const(16, "uint32"))
        return tirx.reinterpret("float32", bits).astype(accumulator.storage)
    return element.astype(accumulator.storage)


def compute(name: str, axes: Mapping[str, int], element: Callable[[Place], Any]) -> Any:
    """A tensor with an element at each place; `axes` are the extents by name."""
    from tvm import te

    return te.compute(
        tuple(axes.values()),
        lambda *indices: element(dict(zip(axes, indices, strict=True))),
        name=name,
        varargs_names=list(axes),
    )


def sum_of_products(
    name: str,
    spatial: Mapping[str, int],
    reduced: Mapping[str, int],
    factors: Callable[[Place], tuple[Any, Any]],
    types: tuple[DType, DType, DType],
) -> Any:
    """The one reduction of an operator: accumulator + widen(left) * widen(right).

    Args:
        name: of the tensor.
        spatial: extents of its axes by name.
        reduced: extents of the axes that are summed over.
        factors: the two elements that are multiplied at a place.
        types: of the two elements and of the sum.
    """
    from tvm import te

    summed = {axis: te.reduce_axis((0, extent), name=axis) for axis, extent in reduced.items()}

    def element(place: Place) -> Any:
        left, right = factors(place | summed)
        product = widen(left, types[0], types[2]) * widen(right, types[1], types[2])
        return te.sum(product, axis=list(summed.values()))

    return compute(name, spatial, element)


def padded(tensor: Any, spec: TensorSpec, axes: Names, windows: Mapping[str, tuple[int, int]]) -> Any:
    """The tensor with zeros around it where that is needed, otherwise the tensor itself.

    Args:
        tensor: what is padded.
        spec: what it is called.
        axes: names of its dimensions.
        windows: by dimension, how many zeros stand before it (negative: how much is left out) and the new extent.
    """
    from tvm import te, tirx

    old = dict(zip(axes, spec.kernel_shape, strict=True))
    if all(before == 0 and extent <= old[axis] for axis, (before, extent) in windows.items()):
        return tensor
    new = {axis: windows[axis][1] if axis in windows else extent for axis, extent in old.items()}

    def element(place: Place) -> Any:
        inside = []
        for axis, (before, extent) in windows.items():
            inside += [place[axis] >= before] if before > 0 else []
            inside += [place[axis] < before + old[axis]] if extent > before + old[axis] else []
            place[axis] = place[axis] - before
        value = tensor[tuple(place[axis] for axis in axes)]
        return te.if_then_else(tirx.all(*inside), value, tirx.const(0, tensor.dtype)) if inside else value

    return compute(f"{spec.name}_pad", new, element)


def product(operator: Operator, *inputs: Any, followed: bool = False) -> Expression:
    """The operator whose result is a sum over all axes that the result does not have, as in an einsum.

    `followed`: a further stage makes the result.
    """
    axes, extents, result = operator.axes, operator.extents, operator.result
    spatial = {axis: extents[axis] for axis in axes[result.name]}
    reduced = {axis: extents[axis] for spec in operator.operands for axis in axes[spec.name] if axis not in spatial}

    def factors(place: Place) -> tuple[Any, Any]:
        left, right = (
            tensor[tuple(place[axis] for axis in axes[spec.name])]
            for tensor, spec in zip(inputs, operator.operands, strict=True)
        )
        return left, right

    name = operator.name_of_sum(followed)
    return Expression(sum_of_products(name, spatial, reduced, factors, operator.types), spatial)


def finished(operator: Operator, made: Any, further: Mapping[str, Any]) -> Any:
    """The result: the sum of products, or a last stage that reads it.

    Args:
        operator: whose result it is.
        made: from `OperatorKind.build`.
        further: the tensors of its epilogue by name.
    """
    if not isinstance(made, Expression):  # the tensor itself
        made = Expression(made, {axis: operator.extents[axis] for axis in operator.axes[operator.result.name]})
    expression: Expression = made
    if expression.value is None and not operator.epilogue:
        return expression.total

    def element(place: Place) -> Any:
        at = dict(zip(operator.axes[operator.result.name], place.values(), strict=True))
        elements = {
            name: tensor[tuple(at[axis] for axis in operator.axes[name]) or (0,)] for name, tensor in further.items()
        }
        value = expression.value(dict(place)) if expression.value else expression.total[tuple(place.values())]
        for step in operator.epilogue:
            value = step.express(value, elements, operator.types[ACCUMULATOR])
        return value

    return compute(operator.result.name, expression.axes, element)
