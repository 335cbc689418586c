"""The steps of an instruction: its two hardware loops around its micro-ops, unrolled into index arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import Uops, decode_uops
from heron_asp.backends.vta.isa import Alu, Compute, Gemm

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """Scratchpad indices of every step, each an array of shape (iter_out, iter_in, micro-ops), executed in C order.

    Attributes:
        dst: accumulator entries written.
        src: input entries (GEMM) or accumulator entries (ALU) read.
        wgt: weight entries read; the micro-ops' own for ALU, which reads none.
    """

    dst: Indices
    src: Indices
    wgt: Indices


def steps_of(instruction: Compute, uops: Uops, config: Configuration) -> Steps:
    """The steps of a GEMM or ALU instruction.

    Args:
        instruction: its loops.
        uops: the words of its micro-ops, from `uop_bgn` up to `uop_end`.
        config: the device.
    """
    dst, src, wgt = decode_uops(uops, config)
    extents = (instruction.iter_out, instruction.iter_in)
    wgt_factors = (instruction.wgt_factor_out, instruction.wgt_factor_in) if isinstance(instruction, Gemm) else (0, 0)
    return Steps(
        dst + _grid(*extents, instruction.dst_factor_out, instruction.dst_factor_in),
        src + _grid(*extents, instruction.src_factor_out, instruction.src_factor_in),
        wgt + _grid(*extents, *wgt_factors),
    )


@lru_cache(maxsize=512)
def _grid(outer: int, inner: int, factor_out: int, factor_in: int) -> Indices:
    """What the loops add to an index; the tiles of a program share it."""
    steps = np.arange(outer, dtype=np.int64)[:, None, None], np.arange(inner, dtype=np.int64)[None, :, None]
    grid: Indices = steps[0] * factor_out + steps[1] * factor_in
    grid.flags.writeable = False
    return grid


def least_distance(written: Indices, used: Indices, most: int) -> int:
    """The least number of steps, 1 to `most`, from a step to a later one that uses what it wrote; 0 if there is none.

    Args:
        written: the entry that each step writes, in order of execution.
        used: the entry that each step uses; as long as `written`.
        most: distances above are not looked for.
    """
    for distance in range(1, most + 1):
        if bool((written[:-distance] == used[distance:]).any()):
            return distance
    return 0


def reads_source(instruction: Compute) -> bool:
    """Whether the micro-ops' sources are read: GEMM without reset, ALU without an immediate."""
    return (
        not instruction.reset
        if isinstance(instruction, Gemm)
        else isinstance(instruction, Alu) and not instruction.use_imm
    )
