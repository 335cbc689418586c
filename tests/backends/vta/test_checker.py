"""Every reason to refuse a program, by a program that only it is wrong with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heron_asp.backends.vta.checker import check, require_valid
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.isa import AluOp, Finish, Gemm, Instruction, Load, Memory, MicroOp, Store
from heron_asp.backends.vta.vectors import Recorded
from heron_asp.backends.vta.violation import Rule
from heron_asp.errors import HeronError
from tests.backends.vta import pieces as p

Change = Callable[[list[Instruction]], list[Instruction] | None]


def put(number: int, **values: Any) -> Change:
    """Changes fields of an instruction."""

    def change(program: list[Instruction]) -> None:
        program[number] = replace(program[number], **values)

    return change


def swap(*order: int) -> Change:
    return lambda program: [program[number] for number in order]


def test_recorded_programs_pass(functional_programs: list[Recorded], timed_programs: list[Recorded]) -> None:
    for program in functional_programs + timed_programs:
        assert check(program.instructions, program.config, program.before) == [], program.name


def test_the_small_program_passes(config: Configuration) -> None:
    require_valid(p.program(), config, p.memory(config))


REFUSED: list[tuple[str, Change, Rule, int, str, str]] = [
    # fields
    ("iter", put(p.GEMM, iter_out=16384), Rule.FIELD, p.GEMM, "iter_out", "iter_out is 16384; its 14 bits"),
    ("imm", put(p.SHIFT, imm=-32769, alu_opcode=AluOp.ADD), Rule.FIELD, p.SHIFT, "imm", "hold -32768 to 32767"),
    ("pad", put(p.LOAD_INP, x_pad_1=16), Rule.FIELD, p.LOAD_INP, "x_pad_1", "x_pad_1 is 16"),
    # addresses
    ("sram", put(p.LOAD_INP, sram_base=2045), Rule.RANGE, p.LOAD_INP, "sram_base", "entry 2048; INP has 2048"),
    ("sram pad", put(p.LOAD_INP, sram_base=2040, y_pad_1=3), Rule.RANGE, p.LOAD_INP, "sram_base", "5 rows of 2"),
    ("dram", put(p.LOAD_WGT, dram_base=96), Rule.RANGE, p.LOAD_WGT, "dram_base", "byte 24832 of DRAM; it has 24576"),
    ("dram rows", put(p.STORE, x_stride=300), Rule.RANGE, p.STORE, "dram_base", "x_stride 300 end at byte"),
    ("dst", put(p.GEMM, dst_factor_in=1024), Rule.RANGE, p.GEMM, "dst_factor_out", "lead to entry 3072; ACC has 2048"),
    ("src", put(p.GEMM, src_factor_in=700), Rule.RANGE, p.GEMM, "src_factor_out", "lead to entry 2100; INP"),
    ("wgt", put(p.GEMM, wgt_factor_in=512), Rule.RANGE, p.GEMM, "wgt_factor_out", "lead to entry 1536; WGT has 1024"),
    ("alu src", put(p.ADD, src_factor_in=700), Rule.RANGE, p.ADD, "src_factor_out", "lead to entry 2108; ACC"),
    ("uops", put(p.GEMM, uop_end=8193), Rule.RANGE, p.GEMM, "uop_end", "uop_end is 8193; the micro-op memory"),
    # tokens
    ("dropped push", put(p.LOAD_WGT, push_next=0), Rule.DEADLOCK, p.GEMM, "pop_prev", "compute stage waits for ever"),
    ("crossed", put(p.LOAD_INP, pop_next=1), Rule.DEADLOCK, p.LOAD_INP, "pop_next", "pop_next (from compute)"),
    ("dropped pop", put(p.GEMM, pop_prev=0), Rule.TOKEN, p.LOAD_WGT, "push_next", "token that nobody takes"),
    ("no stage", put(p.LOAD_INP, push_prev=1), Rule.TOKEN, p.LOAD_INP, "push_prev", "no stage comes before the load"),
    ("no stage after", put(p.STORE, pop_next=1), Rule.TOKEN, p.STORE, "pop_next", "no stage comes after the store"),
    ("finish", put(p.FINISH, push_prev=1), Rule.TOKEN, p.FINISH, "push_prev", "x_size 0 before it carry the token"),
    ("no end", lambda program: program[:-1], Rule.TOKEN, -1, "opcode", "the program has no FINISH"),
    ("early end", lambda program: [*program, Finish()], Rule.TOKEN, p.FINISH, "opcode", "instructions follow"),
    # order
    (
        "unfinished store",
        lambda x: [*x[:p.STORE], replace(x[p.STORE], push_prev=0), *x[p.WAIT + 1 :]],
        Rule.ORDER, p.STORE, "push_prev", "FINISH), which may end the program first",
    ),
    (
        "unfinished load",
        lambda x: [*x[:p.STORE], Load(memory_type=Memory.INP, y_size=1, x_size=1), *x[p.STORE:]],
        Rule.ORDER, p.STORE, "push_next", "may end the program first",
    ),
    (
        "race on inputs",
        swap(p.UOP, p.LOAD_BIAS, p.RESET, p.LOAD_WGT, p.LOAD_INP, *range(p.GEMM, p.FINISH + 1)),
        Rule.ORDER, p.GEMM, "pop_prev", "src_idx reads INP entry 0, which instruction 4 (LOAD) writes, and no token",
    ),
    (
        "race on outputs",
        lambda x: [*x[:p.ADD], replace(x[p.ADD], push_next=1), replace(x[p.SHIFT], push_next=0), *x[p.STORE:]],
        Rule.ORDER, p.STORE, "pop_prev", "reads accumulator entry 0, which instruction 7 (ALU) writes",
    ),
    (
        "overwritten before it is stored",
        lambda x: [*x[:p.WAIT], Gemm(uop_end=1, iter_out=1, iter_in=1, reset=1), *x[p.WAIT:]],
        Rule.ORDER, p.WAIT, "pop_next", "overwrites accumulator entry 0, which instruction 8 (STORE) reads",
    ),
    (
        "overwritten before it is read",
        lambda x: [
            *x[:p.STORE],
            Load(memory_type=Memory.INP, y_size=1, x_size=1, push_next=1),
            *x[p.STORE:p.WAIT], replace(x[p.WAIT], pop_prev=1), *x[p.FINISH:],
        ],
        Rule.ORDER, p.STORE, "pop_next", "overwrites INP entry 0, which instruction 5 (GEMM) reads",
    ),
    (
        "race in DRAM",
        lambda x: [
            *x[: p.STORE],
            Load(memory_type=Memory.INP, sram_base=9, dram_base=p.OUTPUT // 16 + 3, y_size=1, x_size=1, push_next=1),
            *x[p.STORE : p.WAIT],
            replace(x[p.WAIT], pop_prev=1),
            *x[p.FINISH :],
        ],
        Rule.ORDER,
        p.STORE,
        "dram_base",
        "memory that instruction 9 (STORE) stores, and no token orders them",
    ),
    (
        "stored micro-ops",
        put(p.STORE, dram_base=p.UOPS // 16),
        Rule.ORDER, p.UOP, "dram_base", "reads micro-ops that instruction 8 (STORE) stores",
    ),
    # pipeline
    ("gemm", put(p.GEMM, dst_factor_in=0), Rule.HAZARD, p.GEMM, "dst_idx", "that was written 1 step before"),
    ("alu", put(p.SHIFT, dst_factor_in=0, src_factor_in=0), Rule.HAZARD, p.SHIFT, "dst_idx", "written 1 step before"),
    (
        "two steps",
        put(p.GEMM, iter_out=2, iter_in=2, dst_factor_out=0, src_factor_out=2),
        Rule.HAZARD, p.GEMM, "dst_idx", "that was written 2 steps before; at least 2 other steps",
    ),
    # what nothing wrote
    ("no inputs", put(p.GEMM, src_factor_in=2), Rule.UNWRITTEN, p.GEMM, "src_idx", "INP entry 4, which no LOAD wrote"),
    ("no weights", put(p.GEMM, wgt_factor_in=1), Rule.UNWRITTEN, p.GEMM, "wgt_idx", "WGT entry 1, which no LOAD wrote"),
    ("lost reset", put(p.RESET, iter_in=3), Rule.UNWRITTEN, p.GEMM, "dst_idx", "accumulator entry 3, which nothing"),
    ("no bias", put(p.ADD, src_factor_in=3), Rule.UNWRITTEN, p.ADD, "src_idx", "accumulator entry 14, which nothing"),
    ("no micro-op", put(p.GEMM, uop_end=3), Rule.UNWRITTEN, p.GEMM, "uop_bgn", "span micro-op 2, which no LOAD wrote"),
    ("no output", put(p.STORE, sram_base=4), Rule.UNWRITTEN, p.STORE, "sram_base", "entry 4, which nothing wrote"),
    # where public models disagree
    ("store of a load", put(p.STORE, sram_base=8), Rule.PORTABLE, p.STORE, "sram_base", "which a LOAD wrote last"),
    (
        "store of a reset",
        lambda x: [*x[:p.GEMM], replace(x[p.RESET], pop_prev=1, push_next=1), *x[p.STORE:]],
        Rule.PORTABLE, 6, "sram_base", "which a GEMM with reset wrote last",
    ),
    ("imm source", put(p.SHIFT, src_factor_in=0), Rule.PORTABLE, p.SHIFT, "src_idx", "RTL takes an immediate"),
    ("shift", put(p.SHIFT, imm=16), Rule.PORTABLE, p.SHIFT, "imm", "imm is 16 for SHR"),
    ("shift left", put(p.SHIFT, imm=-16), Rule.PORTABLE, p.SHIFT, "imm", "imm is -16 for SHR"),
    ("shift by register", put(p.ADD, alu_opcode=AluOp.SHR), Rule.PORTABLE, p.ADD, "use_imm", "use_imm is 0 for SHR"),
    ("multiply", put(p.ADD, alu_opcode=AluOp.MUL), Rule.PORTABLE, p.ADD, "alu_opcode", "alu_opcode is MUL"),
    (
        "8 bit load",
        put(p.LOAD_BIAS, memory_type=Memory.ACC_8BIT),
        Rule.PORTABLE, p.LOAD_BIAS, "memory_type", "memory_type is ACC_8BIT",
    ),
    ("another store", put(p.STORE, memory_type=Memory.ACC), Rule.PORTABLE, p.STORE, "memory_type", "is ACC; only OUT"),
    ("padded store", put(p.STORE, x_pad_0=1), Rule.PORTABLE, p.STORE, "x_pad_0", "a STORE has no padding"),
    ("padded weights", put(p.LOAD_WGT, y_pad_1=1), Rule.PORTABLE, p.LOAD_WGT, "y_pad_1", "padding of weights"),
    ("rows of micro-ops", put(p.UOP, y_size=2), Rule.PORTABLE, p.UOP, "y_size", "as one row without padding"),
    ("padded micro-ops", put(p.UOP, x_pad_0=1), Rule.PORTABLE, p.UOP, "x_pad_0", "as one row without padding"),
    ("far micro-ops", put(p.UOP, sram_base=2047), Rule.PORTABLE, p.UOP, "sram_base", "the RTL has 2048"),
    ("no rows", put(p.LOAD_INP, y_size=0), Rule.PORTABLE, p.LOAD_INP, "y_size", "y_size is 0 with x_size 2"),
    ("empty loop", put(p.GEMM, iter_in=0), Rule.PORTABLE, p.GEMM, "iter_in", "does not skip an empty loop"),
    ("empty sequence", put(p.GEMM, uop_end=0), Rule.PORTABLE, p.GEMM, "uop_end", "does not skip an empty sequence"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "rule", "number", "field", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(change: Change, rule: Rule, number: int, field: str, text: str, config: Configuration) -> None:
    program = p.program()
    changed = change(program)
    program = program if changed is None else changed
    found = check(program, config, p.memory(config))
    matching = [v for v in found if (v.rule, v.number, v.field) == (rule, number, field)]
    assert matching, found
    assert text in matching[0].message
    if number >= 0:
        assert matching[0].message.startswith(f"instruction {number} (")
    with pytest.raises(HeronError, match="the program is refused:"):
        require_valid(program, config, p.memory(config))


def test_weight_index_of_an_alu_micro_op(config: Configuration) -> None:
    found = check(p.program(), config, p.memory(config, (MicroOp(0), MicroOp(0, 8, 1))))
    assert [(v.number, v.field) for v in found] == [(p.ADD, "wgt_idx")]


def test_source_of_a_register_operation_in_the_pipeline(config: Configuration) -> None:
    program = p.program()
    program[p.ADD] = replace(program[p.ADD], src_factor_in=1)
    found = check(program, config, p.memory(config, (MicroOp(0), MicroOp(1, 0))))
    assert (Rule.HAZARD, p.ADD, "src_idx") in [(v.rule, v.number, v.field) for v in found]


def test_more_tokens_than_the_hardware_counts(config: Configuration) -> None:
    give, take = Load(memory_type=Memory.INP, push_next=1), Load(memory_type=Memory.UOP, pop_prev=1)
    assert check([give] * 255 + [take] * 255 + [Finish()], config, np.zeros(64, np.uint8)) == []
    found = check([give] * 256 + [take] * 256 + [Finish()], config, np.zeros(64, np.uint8))
    assert [(v.rule, v.number, v.field) for v in found] == [(Rule.TOKEN, 255, "push_next")]
    assert "can give token 256 while none is taken; the RTL counts to 255" in found[0].message


def test_tokens_in_an_order_keep_the_count_low(config: Configuration) -> None:
    """The load stage waits for the compute stage, so at most one token lies about."""
    rounds = [
        Load(memory_type=Memory.INP, push_next=1, pop_next=1),
        Load(memory_type=Memory.UOP, pop_prev=1, push_prev=1),
    ]
    program = [
        Load(memory_type=Memory.UOP, push_prev=1),
        *rounds * 300,
        Load(memory_type=Memory.INP, pop_next=1, push_next=1),
    ]
    program += [Load(memory_type=Memory.UOP, pop_prev=1), Finish()]
    assert check(program, config, np.zeros(64, np.uint8)) == []


@pytest.mark.parametrize(("stride", "races"), [(8, False), (4, False), (5, True), (6, True), (7, True)])
def test_overlap_in_dram_is_found_by_rows_not_by_extents(stride: int, races: bool, config: Configuration) -> None:
    """A store into the gaps between loaded rows is in nobody's way."""
    program = p.program()
    other = Load(
        memory_type=Memory.INP, sram_base=9, dram_base=p.OUTPUT // 16, y_size=3, x_size=2, x_stride=8, push_next=1
    )
    program[p.STORE] = replace(program[p.STORE], dram_base=p.OUTPUT // 16 + 2, y_size=2, x_stride=stride)
    program[p.WAIT] = replace(program[p.WAIT], pop_prev=1)
    program.insert(p.STORE, other)
    assert [v.field for v in check(program, config, p.memory(config))] == ["dram_base"] * races


def test_a_store_that_a_load_waits_for(config: Configuration) -> None:
    """Two programs after one another, the second reading what the first stored."""
    first = p.program()[:-1]
    first[p.WAIT] = replace(first[p.WAIT], push_prev=1)
    again = [
        Load(memory_type=Memory.INP, dram_base=p.OUTPUT // 16, y_size=1, x_size=4, x_stride=4, pop_next=1, push_next=1),
        Load(memory_type=Memory.UOP, pop_prev=1),
        Finish(),
    ]
    assert check(first + again, config, p.memory(config)) == []
    first[p.WAIT] = replace(first[p.WAIT], push_prev=0)
    again[0] = replace(again[0], pop_next=0)
    found = check(first + again, config, p.memory(config))
    races = {(v.rule, v.number, v.field) for v in found}
    assert {(Rule.ORDER, len(first), "dram_base"), (Rule.ORDER, len(first), "pop_next")} <= races


def test_a_store_is_not_checked_for_tokens_only(config: Configuration) -> None:
    program = p.program()
    program.insert(p.STORE, Store(x_pad_0=3, y_size=9))
    assert check(program, config, p.memory(config)) == []
