"""The steps of an instruction: its two hardware loops around its micro-ops, unrolled into index arrays."""

from __future__ import annotations

from dataclasses import dataclass

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
    outer = np.arange(instruction.iter_out, dtype=np.int64)[:, None, None]
    inner = np.arange(instruction.iter_in, dtype=np.int64)[None, :, None]
    dst, src, wgt = decode_uops(uops, config)

    def loops(base: Indices, factor_out: int, factor_in: int) -> Indices:
        return base + outer * factor_out + inner * factor_in

    wgt_factors = (instruction.wgt_factor_out, instruction.wgt_factor_in) if isinstance(instruction, Gemm) else (0, 0)
    return Steps(
        loops(dst, instruction.dst_factor_out, instruction.dst_factor_in),
        loops(src, instruction.src_factor_out, instruction.src_factor_in),
        loops(wgt, *wgt_factors),
    )


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
