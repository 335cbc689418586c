"""From a candidate to a VTA program: tiles, loads and where they sit, buffers that are filled ahead.

problem     the operator in VTA's units, and the host's share of it               problem, entries
nest        the candidate's loops, where copies are made, how many buffers        nest
transfers   a block as transfers of two dimensions                                transfers
kernels     which loops the hardware runs and which become micro-ops              kernels
builder     micro-ops into their memory, tokens from what instructions touch      builder
lower       the program                                                           lower
"""

from heron_asp.backends.vta.lowering.lower import Lowered, lower
from heron_asp.backends.vta.lowering.nest import Nest, nest_of
from heron_asp.backends.vta.lowering.problem import Problem, problem_of

__all__ = ["Lowered", "Nest", "Problem", "lower", "nest_of", "problem_of"]
