"""What to compute: operators as tensor expressions, with their shape keys, constant tensors and reference results."""

from collections.abc import Mapping

from heron_asp.operators import convolutions, products, reductions, transposed
from heron_asp.operators.kind import Layout, OperatorKind, TensorSpec
from heron_asp.operators.operator import Operator, operator, parse_shape

KINDS: Mapping[str, OperatorKind] = {**products.KINDS, **convolutions.KINDS, **transposed.KINDS, **reductions.KINDS}

__all__ = ["KINDS", "Layout", "Operator", "OperatorKind", "TensorSpec", "operator", "parse_shape"]
