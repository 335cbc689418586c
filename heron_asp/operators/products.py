"""Matrix products over plain row-major tensors.

A type triple names the activation, the weight and the accumulator; the weight is the operand that a network knows
ahead: B of gemm, the matrix A of gemv. batch_matmul multiplies two activations, of which the second has the second
type.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from heron_asp.operators.expressions import product
from heron_asp.operators.kind import ACCUMULATOR, ACTIVATION, WEIGHT, Exact, Extents, Layout, OperatorKind


def _matmul(_extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
    product: Exact = np.matmul(arrays[0], arrays[1])
    return product


def _depth(extents: Extents) -> int:
    return extents["k"]


def _volume(extents: Extents) -> int:
    return 2 * prod(extents.values())


KINDS = {
    kind.name: kind
    for kind in (
        OperatorKind(
            name="gemm",
            keys=("m", "n", "k"),
            layouts={"row-major": Layout({"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")})},
            stacked="m",
            slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
            channel=("n",),
            constant=frozenset({"b"}),
            build=product,
            reference=_matmul,
            terms=_depth,
            operations=_volume,
            summary="C(m,n) = A(m,k) B(k,n); B is known ahead",
            strided=True,
            subscripts="mk,kn->mn",
        ),
        OperatorKind(
            name="batch_matmul",
            keys=("batch", "m", "n", "k"),
            layouts={
                "row-major": Layout({"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")})
            },
            stacked="batch",
            slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
            channel=("n",),
            constant=frozenset(),
            build=product,
            reference=_matmul,
            terms=_depth,
            operations=_volume,
            summary="C(i,m,n) = A(i,m,k) B(i,k,n) for each i of the batch",
            strided=True,
            subscripts="bmk,bkn->bmn",
        ),
        OperatorKind(
            name="gemv",
            keys=("m", "k"),
            layouts={"row-major": Layout({"a": ("m", "k"), "x": ("k",), "y": ("m",)})},
            stacked="m",
            slots=(WEIGHT, ACTIVATION, ACCUMULATOR),
            channel=("m",),
            constant=frozenset({"a"}),
            build=product,
            reference=_matmul,
            terms=_depth,
            operations=_volume,
            summary="y(m) = A(m,k) x(k); A is known ahead",
            strided=True,
            subscripts="mk,k->m",
        ),
    )
}
