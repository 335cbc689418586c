"""What to compute: operators as tensor expressions, with their shape keys, constant tensors and reference results."""

from heron_asp.operators.operator import Operator, OperatorKind, TensorSpec, operator, parse_shape
from heron_asp.operators.products import KINDS

__all__ = ["KINDS", "Operator", "OperatorKind", "TensorSpec", "operator", "parse_shape"]
