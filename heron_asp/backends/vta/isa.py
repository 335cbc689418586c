"""Instructions and micro-ops as values. Fields carry the names and the units of VTA's hw_spec.h.

Every instruction has four token flags. Stages stand in the order load, compute, store: `prev`, `next` are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Opcode(IntEnum):
    """Bits 2:0 of every instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class Memory(IntEnum):
    """What a LOAD writes or a STORE reads."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


class AluOp(IntEnum):
    """What an ALU instruction computes; SHR shifts left by a negative number."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


class Stage(IntEnum):
    """The three units that run side by side, each in program order."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What all instructions share: the tokens taken before and given after.

    Attributes:
        pop_prev: wait for a token of the stage before.
        pop_next: wait for a token of the stage after.
        push_prev: give the stage before a token when done.
        push_next: give the stage after a token when done.
    """

    pop_prev: int = 0
    pop_next: int = 0
    push_prev: int = 0
    push_next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Instruction):
    """A two-dimensional transfer. Everything but the paddings' zeros is counted in elements of `memory_type`.

    Attributes:
        memory_type: the scratchpad.
        sram_base: first entry in the scratchpad, which is written or read without gaps.
        dram_base: first element in DRAM: the byte address divided by the element's bytes.
        y_size: rows in DRAM.
        x_size: elements of a row; 0 makes the instruction a carrier of tokens only.
        x_stride: from one row in DRAM to the next.
        y_pad_0: rows of zeros written before the first row.
        y_pad_1: rows of zeros written after the last row.
        x_pad_0: zeros written before each row.
        x_pad_1: zeros written after each row.
    """

    memory_type: Memory
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0

    @property
    def rows(self) -> int:
        """Rows of the scratchpad block, padding included."""
        return self.y_pad_0 + self.y_size + self.y_pad_1

    @property
    def row(self) -> int:
        """Entries of one row of the scratchpad block, padding included."""
        return self.x_pad_0 + self.x_size + self.x_pad_1

    @property
    def padded(self) -> bool:
        """Whether any zeros are written."""
        return bool(self.y_pad_0 or self.y_pad_1 or self.x_pad_0 or self.x_pad_1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Transfer):
    """DRAM to scratchpad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Transfer):
    """Scratchpad to DRAM; accumulators are cut to the width of an output. Has no padding."""

    memory_type: Memory = Memory.OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Instruction):
    """Two hardware loops around the micro-ops `uop_bgn <= u < uop_end`, innermost.

    Attributes:
        reset: GEMM writes zeros instead of accumulating; ALU ignores it.
        uop_bgn: first micro-op.
        uop_end: one past the last micro-op.
        iter_out: extent of the outer loop.
        iter_in: extent of the inner loop.
        dst_factor_out: added to the destination index a step of the outer loop, in accumulator entries.
        dst_factor_in: the same for the inner loop.
        src_factor_out: added to the source index: input entries for GEMM, accumulator entries for ALU.
        src_factor_in: the same for the inner loop.
    """

    reset: int = 0
    uop_bgn: int = 0
    uop_end: int = 0
    iter_out: int = 0
    iter_in: int = 0
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0

    @property
    def steps(self) -> int:
        """Micro-ops executed."""
        return self.iter_out * self.iter_in * max(0, self.uop_end - self.uop_bgn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Compute):
    """acc[dst] += inp[src] (batch x block) times the transpose of wgt[wgt] (block x block).

    Attributes:
        wgt_factor_out: added to the weight index a step of the outer loop.
        wgt_factor_in: the same for the inner loop.
    """

    wgt_factor_out: int = 0
    wgt_factor_in: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu(Compute):
    """acc[dst] = op(acc[dst], imm or acc[src]), element by element.

    Attributes:
        alu_opcode: the operation.
        use_imm: the second operand is `imm`.
        imm: a signed 16-bit number.
    """

    alu_opcode: AluOp
    use_imm: int = 0
    imm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Instruction):
    """Ends the program when the compute stage gets to it."""


@dataclass(frozen=True, slots=True)
class MicroOp:
    """The indices of one step before the loops' factors are added.

    Attributes:
        dst_idx: accumulator entry that is written.
        src_idx: input entry (GEMM) or accumulator entry (ALU) that is read.
        wgt_idx: weight entry; 0 for ALU, which some models read as upper bits of the source.
    """

    dst_idx: int
    src_idx: int = 0
    wgt_idx: int = 0


def opcode_of(instruction: Instruction) -> Opcode:
    """The opcode of an instruction."""
    match instruction:
        case Load():
            return Opcode.LOAD
        case Store():
            return Opcode.STORE
        case Gemm():
            return Opcode.GEMM
        case Alu():
            return Opcode.ALU
        case Finish():
            return Opcode.FINISH
    raise TypeError(f"{type(instruction).__name__} is no instruction")


def stage_of(instruction: Instruction) -> Stage:
    """The stage that executes an instruction: micro-ops and accumulators are loaded by the compute stage."""
    if isinstance(instruction, Load):
        return Stage.LOAD if instruction.memory_type in (Memory.INP, Memory.WGT) else Stage.COMPUTE
    return Stage.STORE if isinstance(instruction, Store) else Stage.COMPUTE


def carries_only_tokens(instruction: Instruction) -> bool:
    """Whether an instruction moves and computes nothing: a transfer whose `x_size` is 0."""
    return isinstance(instruction, Transfer) and instruction.x_size == 0
