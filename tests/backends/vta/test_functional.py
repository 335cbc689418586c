"""What programs do: recorded ones, a matrix product by hand, and single instructions against loops written out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import encode_uops
from heron_asp.backends.vta.functional import Device, simulate
from heron_asp.backends.vta.isa import Alu, AluOp, Finish, Gemm, Load, Memory, MicroOp, Store
from heron_asp.backends.vta.vectors import Recorded, differences
from heron_asp.errors import HeronError
from tests.backends.vta import pieces

SMALL = Configuration(
    log_batch=1, log_block=2, log_uop_buff_size=8, log_inp_buff_size=9, log_wgt_buff_size=10, log_acc_buff_size=11
)


@pytest.mark.parametrize("programs", ["functional_programs", "timed_programs"])
def test_recorded_programs(programs: str, request: pytest.FixtureRequest) -> None:
    recorded: list[Recorded] = request.getfixturevalue(programs)
    assert len(recorded) in (40, 60)
    for program in recorded:
        image = program.before.copy()
        counters = simulate(program.instructions, image, program.config)
        assert differences(program, image) == [], program.name
        assert counters.to_json() == program.counters, program.name


def test_a_product_by_hand(config: Configuration) -> None:
    image = pieces.memory(config)
    right = pieces.expected(image)
    counters = simulate(pieces.program(), image, config)
    assert (image[pieces.OUTPUT : pieces.OUTPUT + 64].view(np.int8).reshape(4, 16) == right).all()
    assert counters.to_json() == {
        "inp_load_nbytes": 64,
        "wgt_load_nbytes": 256,
        "acc_load_nbytes": 256,
        "uop_load_nbytes": 8,
        "out_store_nbytes": 64,
        "gemm_counter": 4,
        "alu_counter": 8,
    }


def device(seed: int, uops: list[MicroOp]) -> Device:
    rng = np.random.default_rng(seed)
    machine = Device(SMALL, np.zeros(4096, np.uint8))
    for memory_type, low, high in ((Memory.INP, -128, 128), (Memory.WGT, -128, 128), (Memory.ACC, -(2**31), 2**31)):
        pad = machine.pads[memory_type]
        pad[:] = rng.integers(low, high, pad.shape)
    machine.pads[Memory.UOP][: len(uops)] = encode_uops(uops, SMALL)
    return machine


def micro_ops(most: int) -> st.SearchStrategy[list[MicroOp]]:
    index = st.integers(0, most)
    return st.lists(st.builds(MicroOp, index, index, index), min_size=1, max_size=5)


FACTORS = st.integers(0, 3)
LOOPS = {
    "iter_out": st.integers(0, 3),
    "iter_in": st.integers(1, 4),
    "dst_factor_out": FACTORS,
    "dst_factor_in": FACTORS,
    "src_factor_out": FACTORS,
    "src_factor_in": FACTORS,
}


@given(
    st.builds(Gemm, reset=st.integers(0, 1), wgt_factor_out=FACTORS, wgt_factor_in=FACTORS, **LOOPS),
    micro_ops(2),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_gemm_is_its_loops(gemm: Gemm, uops: list[MicroOp], seed: int) -> None:
    machine = device(seed, uops)
    acc = machine.pads[Memory.ACC].astype(np.int64)
    inp, wgt = (machine.pads[m].astype(np.int64) for m in (Memory.INP, Memory.WGT))
    for y in range(gemm.iter_out):
        for x in range(gemm.iter_in):
            for uop in uops:
                dst = uop.dst_idx + y * gemm.dst_factor_out + x * gemm.dst_factor_in
                src = uop.src_idx + y * gemm.src_factor_out + x * gemm.src_factor_in
                weight = uop.wgt_idx + y * gemm.wgt_factor_out + x * gemm.wgt_factor_in
                acc[dst] = 0 if gemm.reset else acc[dst] + inp[src] @ wgt[weight].T
    machine.execute(dataclasses.replace(gemm, uop_end=len(uops)))
    assert (machine.pads[Memory.ACC] == acc.astype(np.int32)).all()


OPERATIONS = {
    AluOp.MIN: min,
    AluOp.MAX: max,
    AluOp.ADD: lambda a, b: a + b,
    AluOp.MUL: lambda a, b: a * b,
    AluOp.SHR: lambda a, b: a >> b if b >= 0 else a << -b,
}


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@given(
    st.builds(Alu, alu_opcode=st.sampled_from(AluOp), use_imm=st.integers(0, 1), imm=st.integers(-15, 15), **LOOPS),
    micro_ops(9),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_alu_is_its_loops(alu: Alu, uops: list[MicroOp], seed: int) -> None:
    """Also where a step uses what another step of the instruction wrote."""
    machine = device(seed, uops)
    if alu.alu_opcode is AluOp.SHR and not alu.use_imm:
        machine.pads[Memory.ACC] >>= 27
    acc = [[int(v) for v in entry.ravel()] for entry in machine.pads[Memory.ACC]]
    operation = OPERATIONS[alu.alu_opcode]
    for y in range(alu.iter_out):
        for x in range(alu.iter_in):
            for uop in uops:
                dst = uop.dst_idx + y * alu.dst_factor_out + x * alu.dst_factor_in
                src = uop.src_idx + y * alu.src_factor_out + x * alu.src_factor_in
                second = [alu.imm] * len(acc[dst]) if alu.use_imm else list(acc[src])
                if alu.alu_opcode is AluOp.SHR and max(map(abs, second)) > 31:
                    return  # C leaves it undefined
                acc[dst] = [wrap(operation(a, b)) for a, b in zip(acc[dst], second, strict=True)]
    machine.execute(dataclasses.replace(alu, uop_end=len(uops)))
    assert (machine.pads[Memory.ACC].reshape(len(acc), -1) == np.array(acc)).all()


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9), st.tuples(*[st.integers(0, 3)] * 4))
@settings(max_examples=60, deadline=None)
def test_a_padded_load(rows: int, columns: int, stride: int, pads: tuple[int, int, int, int]) -> None:
    image = np.arange(4096, dtype=np.uint32).astype(np.uint8)
    machine = Device(Configuration(), image)
    top, bottom, left, right = pads
    machine.execute(
        Load(memory_type=Memory.INP, sram_base=5, dram_base=2, y_size=rows, x_size=columns, x_stride=stride,
             y_pad_0=top, y_pad_1=bottom, x_pad_0=left, x_pad_1=right)
    )  # fmt: skip
    elements = image.view(np.int8).reshape(-1, 16)
    block = np.stack([elements[2 + row * stride : 2 + row * stride + columns] for row in range(rows)])
    padded = np.pad(block, ((top, bottom), (left, right), (0, 0)))
    count = padded.shape[0] * padded.shape[1]
    assert (machine.pads[Memory.INP][5 : 5 + count, 0] == padded.reshape(count, 16)).all()
    assert not machine.pads[Memory.INP][5 + count :].any()
    assert machine.counters.inp_load_nbytes == rows * columns * 16


def test_a_store_cuts_to_eight_bits_and_keeps_the_gaps(config: Configuration) -> None:
    image = np.full(4096, 77, np.uint8)
    machine = Device(config, image)
    machine.pads[Memory.ACC][3:7, 0] = np.arange(4)[:, None] * 257 + 130
    machine.execute(Store(sram_base=3, dram_base=10, y_size=2, x_size=2, x_stride=3))
    right = np.full((256, 16), 77, np.uint8)
    right[[10, 11, 13, 14]] = ((np.arange(4) * 257 + 130) % 256)[:, None]
    assert (image.reshape(-1, 16) == right).all()


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Load(memory_type=Memory.INP, sram_base=2047, y_size=1, x_size=2), "entries 2047 to 2048 from sram_base 2047"),
        (
            Load(memory_type=Memory.WGT, dram_base=16, y_size=1, x_size=1),
            "reach bytes 4096 to 4352; the image has 4096",
        ),
        (Load(memory_type=Memory.ACC_8BIT, y_size=1, x_size=1), "loaded by no hardware"),
        (Store(memory_type=Memory.ACC, y_size=1, x_size=1), "memory_type is not OUT"),
        (Store(y_size=1, x_size=1, x_pad_0=1), "padding is not 0"),
        (Gemm(uop_bgn=8191, uop_end=8193, iter_out=1, iter_in=1), "uop_end is 8193"),
        (Gemm(uop_end=1, iter_out=3, iter_in=1, dst_factor_out=1024), "dst_idx and dst_factor reach entry 2048"),
        (Gemm(uop_end=1, iter_out=3, iter_in=1, wgt_factor_out=512), "reach entry 1024; WGT has 1024"),
    ],
)
def test_beyond_a_memory(instruction: Gemm, message: str, config: Configuration) -> None:
    with pytest.raises(HeronError, match=f"instruction 0: .*{message}"):
        simulate([instruction, Finish()], np.zeros(4096, np.uint8), config)


def test_stages_run_in_the_order_of_tokens_not_of_the_program(config: Configuration) -> None:
    """The program lists the loads after the instruction that waits for them."""
    program = pieces.program()
    late = [program[i] for i in (0, 1, 2, 5, 6, 7, 3, 4, 8, 9, 10)]
    image = pieces.memory(config)
    right = pieces.expected(image)
    simulate(late, image, config)
    assert (image[pieces.OUTPUT : pieces.OUTPUT + 64].view(np.int8).reshape(4, 16) == right).all()


def test_wide_numbers_are_exact() -> None:
    """16-bit inputs and weights need more than the 24 bits of a float32."""
    wide = Configuration(log_inp_width=4, log_wgt_width=4, log_inp_buff_size=15, log_wgt_buff_size=18)
    machine = Device(wide, np.zeros(64, np.uint8))
    machine.pads[Memory.INP][0], machine.pads[Memory.WGT][0] = 32767, 32767
    machine.execute(Gemm(uop_end=1, iter_out=1, iter_in=1))
    assert (machine.pads[Memory.ACC][0] == wrap(16 * 32767**2)).all()
