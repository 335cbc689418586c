"""Small operations on TIR expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.errors import InternalError

Array = npt.NDArray[Any]


def substituted(value: Any, by: Mapping[Any, Any]) -> Any:
    """An expression with some of its variables replaced."""
    import tvm_ffi
    from tvm import tirx

    pairs = list(by.items())

    def replace(variable: Any) -> Any:
        return next((new for old, new in pairs if variable.same_as(old)), variable)

    return tvm_ffi.structural_map(value, [(tirx.Var, replace)])


def with_loads(value: Any, replace: Callable[[Any], Any]) -> Any:
    """An expression with each load of a tensor replaced."""
    import tvm_ffi
    from tvm.ir.expr import TensorLoad

    return tvm_ffi.structural_map(value, [(TensorLoad, replace)])


def loads(value: Any) -> list[Any]:
    """The loads of tensors in an expression."""
    import tvm_ffi
    from tvm.ir.expr import TensorLoad

    found: list[Any] = []
    tvm_ffi.structural_walk(value, [(TensorLoad, found.append)])
    return found


def divides(value: Any) -> bool:
    """Whether an expression has a quotient or a remainder of integers."""
    import tvm_ffi
    from tvm.ir.prim import expr as prim

    found: list[Any] = []
    tvm_ffi.structural_walk(value, [(kind, found.append) for kind in (prim.FloorDiv, prim.FloorMod)])
    return bool(found)


def bounds_of(value: Any, variable: Any) -> tuple[int, int | None] | None:
    """Bounds of a variable outside of which an expression is zero: `if_then_else(low <= variable < high, ..., 0)`.

    `high` is None where it is not bounded there; the whole is where it is not bounded at all.
    """
    from tvm.ir.prim import expr as prim

    if getattr(getattr(value, "op", None), "name", "") != "prim.if_then_else":
        return None
    condition, _, otherwise = value.args
    if not isinstance(otherwise, prim.IntImm | prim.FloatImm) or float(otherwise.value) != 0.0:
        return None
    lows, highs = [], []
    for term in _conjunction(condition):
        if isinstance(term, prim.LE) and isinstance(term.a, prim.IntImm) and term.b.same_as(variable):
            lows.append(int(term.a))
        elif isinstance(term, prim.LT) and isinstance(term.b, prim.IntImm) and term.a.same_as(variable):
            highs.append(int(term.b))
        elif isinstance(term, prim.EQ) and isinstance(term.b, prim.IntImm) and term.a.same_as(variable):
            lows.append(int(term.b))  # as TVM writes it where only one is left
            highs.append(int(term.b) + 1)
    return (max([0, *lows]), min(highs, default=None)) if lows or highs else None


def _conjunction(condition: Any) -> list[Any]:
    from tvm.ir.prim import expr as prim

    if isinstance(condition, prim.And):
        return [*_conjunction(condition.a), *_conjunction(condition.b)]
    return [condition]


def evaluated(value: Any, variables: Mapping[Any, Array], tensors: Mapping[str, Array]) -> Array:
    """An expression's values in numpy, for arrays of values of its variables, which broadcast.

    Args:
        value: integers and comparisons, loads of tensors, choices between them.
        variables: their values.
        tensors: what is loaded from, by name.

    Raises:
        InternalError: the expression has an operation that is not known here.
    """
    from tvm.ir.prim import expr as prim

    def of(one: Any) -> Any:
        for variable, values in variables.items():
            if one.same_as(variable):
                return values
        if isinstance(one, prim.IntImm):
            return np.asarray(int(one.value))
        if hasattr(one, "indices"):
            tensor = tensors[str(one.source.name)]
            places = (of(index) for index in one.indices)  # a choice leaves out what is beyond the tensor
            return tensor[tuple(np.clip(place, 0, size - 1) for place, size in zip(places, tensor.shape, strict=True))]
        if getattr(getattr(one, "op", None), "name", "") == "prim.if_then_else":
            return np.where(*(of(argument) for argument in one.args))
        if isinstance(one, prim.Cast):
            return of(one.value).astype(str(one.ty))
        function = _FUNCTIONS.get(type(one).__name__)
        if function is None:
            raise InternalError(f"{one}: {type(one).__name__} is no operation that is known here")
        return function(of(one.a), of(one.b)) if hasattr(one, "b") else function(of(one.a))

    values: Array = of(value)
    return values


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum,
    "FloorDiv": np.floor_divide, "FloorMod": np.mod, "RShift": np.right_shift, "LShift": np.left_shift,
    "BitwiseXor": np.bitwise_xor, "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
    "GT": np.greater, "GE": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not,
}  # fmt: skip
