"""What to compute: operators as tensor expressions, with their shape keys, constant tensors and reference results."""

from collections.abc import Mapping

from heron_asp.operators import convolutions, products, reductions, transposed
from heron_asp.operators.custom import from_prim_func
from heron_asp.operators.expressions import sum_of_products
from heron_asp.operators.kind import ACCUMULATOR, ACTIVATION, WEIGHT, Expression, Layout, OperatorKind, TensorSpec
from heron_asp.operators.operator import Operator, operator, parse_shape

KINDS: Mapping[str, OperatorKind] = {**products.KINDS, **convolutions.KINDS, **transposed.KINDS, **reductions.KINDS}

__all__ = [
    "ACCUMULATOR",
    "ACTIVATION",
    "KINDS",
    "WEIGHT",
    "Expression",
    "Layout",
    "Operator",
    "OperatorKind",
    "TensorSpec",
    "from_prim_func",
    "operator",
    "parse_shape",
    "sum_of_products",
]
