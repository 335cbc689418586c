"""Operator facts, read off the TIR: axes, tensors, affine accesses, combiner. No operator has facts written by hand."""

from heron_asp.analysis.facts import Access, Axis, BlockFacts, Finish, Parameter, Stage, Tensor
from heron_asp.analysis.read import analyse, analyse_prim_func

__all__ = [
    "Access",
    "Axis",
    "BlockFacts",
    "Finish",
    "Parameter",
    "Stage",
    "Tensor",
    "analyse",
    "analyse_prim_func",
]
