"""A small program that every model runs alike, for tests to break: 4 x 16 times 16 x 16, plus bias, shifted, stored."""

from __future__ import annotations

import numpy as np

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import encode_uops
from heron_asp.backends.vta.isa import Alu, AluOp, Finish, Gemm, Instruction, Load, Memory, MicroOp, Store

UOPS, INPUTS, WEIGHTS, BIAS, OUTPUT, SIZE = 4096, 8192, 12288, 16384, 20480, 24576
ROWS = 4
# instruction numbers
UOP, LOAD_BIAS, RESET, LOAD_INP, LOAD_WGT, GEMM, ADD, SHIFT, STORE, WAIT, FINISH = range(11)


def program() -> list[Instruction]:
    loops = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": ROWS}
    alu = loops | {"dst_factor_in": 1, "src_factor_in": 1}
    return [
        Load(memory_type=Memory.UOP, dram_base=UOPS // 4, y_size=1, x_size=2, x_stride=2),
        Load(memory_type=Memory.ACC, sram_base=8, dram_base=BIAS // 64, y_size=1, x_size=4, x_stride=4),
        Gemm(**loops, reset=1, dst_factor_in=1),
        Load(memory_type=Memory.INP, dram_base=INPUTS // 16, y_size=2, x_size=2, x_stride=2),
        Load(memory_type=Memory.WGT, dram_base=WEIGHTS // 256, y_size=1, x_size=1, x_stride=1, push_next=1),
        Gemm(**loops, dst_factor_in=1, src_factor_in=1, pop_prev=1),
        Alu(**(alu | {"uop_bgn": 1, "uop_end": 2}), alu_opcode=AluOp.ADD),
        Alu(**alu, alu_opcode=AluOp.SHR, use_imm=1, imm=3, push_next=1),
        Store(dram_base=OUTPUT // 16, y_size=2, x_size=2, x_stride=2, pop_prev=1, push_prev=1),
        Load(memory_type=Memory.UOP, pop_next=1),
        Finish(),
    ]


def memory(config: Configuration, uops: tuple[MicroOp, ...] = (MicroOp(0), MicroOp(0, 8))) -> np.ndarray:
    """The image: micro-op 0 starts everything at entry 0, micro-op 1 adds what lies 8 entries further."""
    rng = np.random.default_rng(1)
    image = np.zeros(SIZE, np.uint8)
    words = encode_uops(uops, config).view(np.uint8)
    image[UOPS : UOPS + len(words)] = words
    image[INPUTS : INPUTS + 64] = rng.integers(0, 256, 64)
    image[WEIGHTS : WEIGHTS + 256] = rng.integers(0, 256, 256)
    image[BIAS : BIAS + 256] = rng.integers(-5000, 5000, 64).astype("<i4").view(np.uint8)
    return image


def expected(image: np.ndarray) -> np.ndarray:
    """What the program stores, computed by NumPy alone."""
    inputs = image[INPUTS : INPUTS + 64].view(np.int8).reshape(4, 16).astype(np.int64)
    weights = image[WEIGHTS : WEIGHTS + 256].view(np.int8).reshape(16, 16).astype(np.int64)
    bias = image[BIAS : BIAS + 256].view("<i4").reshape(4, 16).astype(np.int64)
    return ((inputs @ weights.T + bias) >> 3).astype(np.int8)
