"""From a schedule, a few numbers, to a VTA program: tiles, loads and where they sit, buffers that are filled ahead.

problem    the operator in VTA's units, its data in VTA's layouts                  problem
schedule   tiles, loop order, where loads attach, how many buffers                 schedule
kernels    which loops become hardware loops and which become micro-ops            kernels
builder    micro-ops into their memory, tokens from what instructions touch        builder
lower      the loop nest itself                                                    lower
"""

from heron_asp.backends.vta.lowering.lower import Lowered, lower
from heron_asp.backends.vta.lowering.problem import Problem, Requantise, conv2d, matmul
from heron_asp.backends.vta.lowering.schedule import Schedule

__all__ = ["Lowered", "Problem", "Requantise", "Schedule", "conv2d", "lower", "matmul"]
