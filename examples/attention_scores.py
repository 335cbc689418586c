"""An operator of one's own: the scores of attention, straight from projections in which heads lie side by side.

    score(b, h, i, j) = sum over d of q(b, i, h, d) * k(b, j, h, d)

Neither a plain product nor a convolution: the heads are no outer dimension of the operands.

    heron-asp tune examples/attention_scores.py:scores -s batch=1,rows=128,columns=128,heads=12,depth=64 -t zen4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from heron_asp.operators import (
    ACCUMULATOR,
    ACTIVATION,
    WEIGHT,
    Expression,
    Layout,
    Operator,
    OperatorKind,
    sum_of_products,
)


def _expression(operator: Operator, q: Any, k: Any) -> Expression:
    axes = {"batch": "batch", "head": "heads", "row": "rows", "column": "columns"}
    spatial = {axis: operator.extents[key] for axis, key in axes.items()}

    def factors(at: dict[str, Any]) -> tuple[Any, Any]:
        return (
            q[at["batch"], at["row"], at["head"], at["depth"]],
            k[at["batch"], at["column"], at["head"], at["depth"]],
        )

    depth = {"depth": operator.extents["depth"]}
    return Expression(sum_of_products("scores", spatial, depth, factors, operator.types), spatial)


def _reference(_extents: Mapping[str, int], arrays: Sequence[np.ndarray], _layout: str) -> np.ndarray:
    return np.einsum("bihd,bjhd->bhij", *arrays, optimize=True)


scores = OperatorKind(
    name="attention_scores",
    keys=("batch", "rows", "columns", "heads", "depth"),
    layouts={
        "heads-inside": Layout(
            {
                "q": ("batch", "rows", "heads", "depth"),
                "k": ("batch", "columns", "heads", "depth"),
                "scores": ("batch", "heads", "rows", "columns"),
            }
        )
    },
    slots=(ACTIVATION, WEIGHT, ACCUMULATOR),
    constant=frozenset(),
    build=_expression,
    reference=_reference,
    terms=lambda extents: extents["depth"],
    operations=lambda extents: 2 * prod(extents.values()),
    summary="attention scores of projections whose heads lie side by side",
)
