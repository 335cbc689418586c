"""Words and fields, both ways, and configurations that cannot be encoded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import (
    decode_instruction,
    decode_uop,
    encode_instruction,
    encode_uop,
    layout,
    uop_layout,
)
from heron_asp.backends.vta.isa import Alu, AluOp, Finish, Gemm, Instruction, Load, Memory, MicroOp, Opcode, Store
from heron_asp.backends.vta.vectors import compare_encodings
from heron_asp.errors import HeronError
from tests.backends.vta.conftest import DATA

CONFIGS = (
    Configuration(),
    Configuration(log_block=5),
    Configuration(
        log_batch=1, log_block=3, log_uop_buff_size=14, log_inp_buff_size=14, log_wgt_buff_size=15, log_acc_buff_size=16
    ),
    Configuration(log_uop_buff_size=10, log_inp_buff_size=12, log_wgt_buff_size=16, log_acc_buff_size=15),
)
KINDS: dict[Opcode, type[Instruction]] = {
    Opcode.LOAD: Load,
    Opcode.STORE: Store,
    Opcode.GEMM: Gemm,
    Opcode.ALU: Alu,
    Opcode.FINISH: Finish,
}


@st.composite
def instructions(draw: st.DrawFn) -> tuple[Configuration, Instruction]:
    config, opcode = draw(st.sampled_from(CONFIGS)), draw(st.sampled_from(Opcode))
    values: dict[str, int] = {}
    for slot in layout(config, opcode)[1:]:
        edges = st.sampled_from((slot.least, slot.most, 0))
        values[slot.name] = draw(st.one_of(edges, st.integers(slot.least, slot.most)))
    if "memory_type" in values:
        values["memory_type"] = draw(st.sampled_from(Memory))
    if "alu_opcode" in values:
        values["alu_opcode"] = draw(st.sampled_from(AluOp))
    return config, KINDS[opcode](**values)


def test_recorded_words() -> None:
    assert compare_encodings(DATA / "encodings.json.gz") == (148, [])


@given(instructions())
@settings(max_examples=200, deadline=None)
def test_round_trip(case: tuple[Configuration, Instruction]) -> None:
    config, instruction = case
    word = encode_instruction(instruction, config)
    assert 0 <= word < 1 << 128
    assert decode_instruction(word, config) == instruction


@given(st.sampled_from(CONFIGS), st.data())
@settings(max_examples=100, deadline=None)
def test_round_trip_of_micro_ops(config: Configuration, data: st.DataObject) -> None:
    uop = MicroOp(*(data.draw(st.integers(0, slot.most)) for slot in uop_layout(config)))
    word = encode_uop(uop, config)
    assert 0 <= word < 1 << 32
    assert decode_uop(word, config) == uop


@given(st.integers(0, (1 << 128) - 1))
@settings(max_examples=200, deadline=None)
def test_every_word_decodes_to_itself_or_is_refused(word: int) -> None:
    config = CONFIGS[0]
    try:
        instruction = decode_instruction(word, config)
    except HeronError:
        return
    assert encode_instruction(instruction, config) == word


def test_fields_overlap_nowhere() -> None:
    for config in CONFIGS:
        for opcode in Opcode:
            taken = 0
            for slot in layout(config, opcode):
                mask = ((1 << slot.bits) - 1) << slot.shift
                assert not taken & mask
                assert slot.shift // 64 == (slot.shift + slot.bits - 1) // 64, "no field crosses bit 63"
                taken |= mask
            assert taken < 1 << 128


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Gemm(iter_out=16384), "GEMM: iter_out is 16384; its 14 bits hold 0 to 16383"),
        (Gemm(wgt_factor_in=1024), "GEMM: wgt_factor_in is 1024; its 10 bits hold 0 to 1023"),
        (Load(memory_type=Memory.INP, y_pad_0=16), "LOAD: y_pad_0 is 16; its 4 bits hold 0 to 15"),
        (Store(x_size=-1), "STORE: x_size is -1; its 16 bits hold 0 to 65535"),
        (Alu(alu_opcode=AluOp.ADD, imm=32768), "ALU: imm is 32768; its 16 bits hold -32768 to 32767"),
    ],
)
def test_overflow_is_refused(instruction: Instruction, message: str, config: Configuration) -> None:
    with pytest.raises(HeronError, match=message):
        encode_instruction(instruction, config)


def test_micro_op_overflow_is_refused(config: Configuration) -> None:
    with pytest.raises(HeronError, match="src_idx is 2048; its 11 bits hold 0 to 2047"):
        encode_uop(MicroOp(0, 2048), config)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (7, "no instruction"),
        (0b110 << 7, "no instruction"),
        (1 << 63, "belong to no field"),
        (5 << 44 + 64 | 4, "no instr"),
    ],
)
def test_words_that_mean_nothing_are_refused(word: int, message: str, config: Configuration) -> None:
    with pytest.raises(HeronError, match=message):
        decode_instruction(word, config)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"log_uop_buff_size": 17}, "wgt_factor_out of GEMM finds no room in the 128 bits"),
        ({"log_uop_buff_size": 10, "log_wgt_buff_size": 19}, r"a micro-op needs 11 .* = 33 bits and has 32"),
        ({"log_wgt_buff_size": 7}, "log_wgt_buff_size = 7: the memory is smaller than one of its entries"),
        ({"log_inp_buff_size": 21}, "sram_base has 16 bits"),
        ({"log_acc_width": 3, "log_wgt_width": 4}, "accumulators are narrower"),
        ({"bus_bits": 32}, "bus_bits is 32"),
        ({"log_inp_width": 2}, "log_inp_width: Input should be greater than or equal to 3"),
        ({"log_blok": 4}, "log_blok: Extra inputs are not permitted"),
        ({"log_block": "4"}, "log_block: Input should be a valid integer"),
    ],
)
def test_configurations_that_cannot_be(numbers: dict[str, object], message: str) -> None:
    with pytest.raises(HeronError, match=message):
        Configuration.from_numbers(numbers)


def test_default_configuration(config: Configuration) -> None:
    assert [config.depth(m) for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.OUT)] == [
        8192, 1024, 2048, 2048, 2048,
    ]  # fmt: skip
    assert [config.element_bytes(m) for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.OUT)] == [
        4, 256, 16, 64, 16,
    ]  # fmt: skip


def test_copies_are_validated(config: Configuration) -> None:
    assert config.depth(Memory.INP) == 2048
    assert config.model_copy(update={"log_inp_buff_size": 14}).depth(Memory.INP) == 1024
    with pytest.raises(HeronError, match="bus_bits is 7"):
        config.model_copy(update={"bus_bits": 7})
