"""Matrix products over plain row-major tensors.

A type triple names the activation, the weight and the accumulator; the weight is the operand that a network knows
ahead: B of gemm, the matrix A of gemv. batch_matmul multiplies two activations, of which the second has the second
type.
"""

from __future__ import annotations

from typing import Any

from heron_asp.dtypes import DType
from heron_asp.operators.operator import OperatorKind, Shape, TensorSpec

_ACTIVATION, _WEIGHT, _ACCUMULATOR = 0, 1, 2


def widen(element: Any, dtype: DType, accumulator: DType) -> Any:
    """An element as the accumulator's type: what every intrinsic that multiplies narrow elements does first."""
    from tvm import tirx

    if dtype.name == "bf16":  # the upper half of a float32
        bits = tirx.shift_left(tirx.Cast("uint32", element), tirx.const(16, "uint32"))
        return tirx.reinterpret("float32", bits).astype(accumulator.storage)
    return element.astype(accumulator.storage)


def _gemm(a: Any, b: Any, *, shape: Shape, result: TensorSpec, types: list[DType]) -> Any:
    from tvm import te

    k_axis = te.reduce_axis((0, shape["k"]), name="k")
    return te.compute(
        result.shape,
        lambda m, n: te.sum(
            widen(a[m, k_axis], types[0], result.dtype) * widen(b[k_axis, n], types[1], result.dtype), axis=k_axis
        ),
        name=result.name,
    )


def _batch_matmul(a: Any, b: Any, *, shape: Shape, result: TensorSpec, types: list[DType]) -> Any:
    from tvm import te

    k_axis = te.reduce_axis((0, shape["k"]), name="k")
    return te.compute(
        result.shape,
        lambda batch, m, n: te.sum(
            widen(a[batch, m, k_axis], types[0], result.dtype) * widen(b[batch, k_axis, n], types[1], result.dtype),
            axis=k_axis,
        ),
        name=result.name,
    )


def _gemv(a: Any, x: Any, *, shape: Shape, result: TensorSpec, types: list[DType]) -> Any:
    from tvm import te

    k_axis = te.reduce_axis((0, shape["k"]), name="k")
    return te.compute(
        result.shape,
        lambda m: te.sum(
            widen(a[m, k_axis], types[0], result.dtype) * widen(x[k_axis], types[1], result.dtype), axis=k_axis
        ),
        name=result.name,
    )


KINDS = {
    kind.name: kind
    for kind in (
        OperatorKind(
            name="gemm",
            keys=("m", "n", "k"),
            tensors={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
            slots=(_ACTIVATION, _WEIGHT, _ACCUMULATOR),
            constant=frozenset({"b"}),
            subscripts="mk,kn->mn",
            build=_gemm,
            summary="C(m,n) = A(m,k) B(k,n); B is known ahead",
        ),
        OperatorKind(
            name="batch_matmul",
            keys=("batch", "m", "n", "k"),
            tensors={"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")},
            slots=(_ACTIVATION, _WEIGHT, _ACCUMULATOR),
            constant=frozenset(),
            subscripts="bmk,bkn->bmn",
            build=_batch_matmul,
            summary="C(i,m,n) = A(i,m,k) B(i,k,n) for each i of the batch",
        ),
        OperatorKind(
            name="gemv",
            keys=("m", "k"),
            tensors={"a": ("m", "k"), "x": ("k",), "y": ("m",)},
            slots=(_WEIGHT, _ACTIVATION, _ACCUMULATOR),
            constant=frozenset({"a"}),
            subscripts="mk,k->m",
            build=_gemv,
            summary="y(m) = A(m,k) x(k); A is known ahead",
        ),
    )
}
