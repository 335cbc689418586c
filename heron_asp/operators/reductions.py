"""Reductions along an axis as products with an operand of fixed contents, so that the same instructions serve.

    scan       y(m, n) = sum over k of x(m, k) * l(n, k), the sum of the elements before the n-th of each row; l is
               strictly lower triangular. m rows of k elements make n prefixes each; from k on they are the whole sum.
    mean       y(m) = sum over k of x(m, k) * ones(k), divided by k
    variance   y(m) = (sum of x(m, k)^2 - (sum of x(m, k))^2 / k) / k: the population's, of each row

The operands of fixed contents are constants like weights: the user packs them once, and `Operator.constants` has what
must be in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heron_asp.dtypes import DType
from heron_asp.operators.expressions import (
    Place,
    compute,
    product,
    sum_of_products,
)
from heron_asp.operators.kind import (
    ACCUMULATOR,
    ACTIVATION,
    WEIGHT,
    Array,
    Exact,
    Expression,
    Extents,
    Layout,
    OperatorKind,
)
from heron_asp.operators.operator import Operator
from heron_asp.operators.windows import volume


def _triangle(extents: Extents, _layout: str) -> dict[str, Array]:
    return {"l": np.tri(extents["n"], extents["k"], -1)}


def _scan(_extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
    prefixes: Exact = arrays[0] @ arrays[1].T
    return prefixes


def _mean_of(operator: Operator, x: Any, ones: Any) -> Expression:
    made = product(operator, x, ones, followed=True)
    count = _as(operator, operator.extents["k"])
    return replace(made, value=lambda place: made.total[place["m"]] / count)


def _mean(extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
    means: Exact = arrays[0] @ arrays[1] / extents["k"]
    return means


def _ones(extents: Extents, _layout: str) -> dict[str, Array]:
    return {"ones": np.ones(extents["k"])}


def _variance_of(operator: Operator, x: Any) -> Expression:
    """Both sums are one product: of each row with itself and with ones.

    The error relative to the variance grows with the square of mean over deviation: 2e-6 without a mean, 5e-5 at 3,
    7e-2 at 100 (rows of 777 elements of bf16, added up one after the other). Activations that are to be normalised are
    at the lower end; rows at the upper end want their mean taken off first.
    """
    from tvm import te, tirx

    extents, (spec, result) = operator.extents, operator.tensors
    one = tirx.const(_bits_of_one(spec.dtype), spec.dtype.storage)
    both = compute(
        f"{spec.name}_moments",
        {"m": extents["m"], "moment": 2, "k": extents["k"]},
        lambda place: te.if_then_else(place["moment"] == 0, x[place["m"], place["k"]], one),
    )

    def factors(place: Place) -> tuple[Any, Any]:
        return x[place["m"], place["k"]], both[place["m"], place["moment"], place["k"]]

    spatial, types = {"m": extents["m"], "moment": 2}, (spec.dtype, spec.dtype, result.dtype)
    total = sum_of_products(operator.name_of_sum(True), spatial, {"k": extents["k"]}, factors, types)
    count = _as(operator, extents["k"])

    def element(place: Place) -> Any:
        squares, plain = total[place["m"], 0], total[place["m"], 1]
        return tirx.max((squares - plain * plain / count) / count, _as(operator, 0))

    return Expression(total, {"m": extents["m"]}, element)


def _bits_of_one(dtype: DType) -> float | int:
    return int(dtype.stored(np.ones(1, dtype.numpy))[0]) if dtype.name == "bf16" else 1


def _as(operator: Operator, number: int) -> Any:
    from tvm import tirx

    return tirx.const(float(number), operator.result.dtype.storage)


def _variance(_extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
    variances: Exact = np.var(arrays[0], axis=1)
    return variances


def _variance_magnitude(extents: Extents, arrays: Sequence[Exact], _layout: str) -> Exact:
    """Of the squares, and of the squared sum, whose relative error is twice the sum's; three for its own rounding."""
    squares, total = np.square(arrays[0]).sum(axis=1), np.abs(arrays[0]).sum(axis=1)
    bound: Exact = (squares + 3 * np.square(total) / extents["k"]) / extents["k"]
    return bound


KINDS = {
    kind.name: kind
    for kind in (
        OperatorKind(
            name="scan",
            keys=("m", "n", "k"),
            layouts={"row-major": Layout({"x": ("m", "k"), "l": ("n", "k"), "y": ("m", "n")})},
            stacked="m",
            slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
            channel=("n",),
            constant=frozenset({"l"}),
            contents=_triangle,
            build=product,
            reference=_scan,
            subscripts="mk,nk->mn",
            terms=lambda extents: extents["k"],
            operations=lambda extents: 2 * volume(extents, ("m", "n", "k")),
            summary="y(m,n) = sum of the first n elements of row m of x(m,k); counted as a product",
        ),
        OperatorKind(
            name="mean",
            keys=("m", "k"),
            layouts={"row-major": Layout({"x": ("m", "k"), "ones": ("k",), "y": ("m",)})},
            stacked="m",
            slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
            constant=frozenset({"ones"}),
            contents=_ones,
            build=_mean_of,
            reference=_mean,
            terms=lambda extents: extents["k"],
            operations=lambda extents: 2 * volume(extents, ("m", "k")),
            dtype="bf16bf16f32",
            accumulators=("f32",),
            summary="y(m) = mean of row m of x(m,k)",
        ),
        OperatorKind(
            name="variance",
            keys=("m", "k"),
            layouts={"row-major": Layout({"x": ("m", "k"), "y": ("m",)})},
            stacked="m",
            slots=(ACTIVATION, ACCUMULATOR),
            constant=frozenset(),
            build=_variance_of,
            reference=_variance,
            scratch=lambda extents: 2 * volume(extents, ("m", "k")),
            magnitude=_variance_magnitude,
            terms=lambda extents: extents["k"] + 4,  # the roundings of the last stage count like those of the sums
            operations=lambda extents: 4 * volume(extents, ("m", "k")),
            dtype="bf16bf16f32",
            accumulators=("f32",),
            summary="y(m) = variance of row m of x(m,k), of the population",
        ),
    )
}
