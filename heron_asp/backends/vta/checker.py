"""Refuses programs that some device would not run as meant, before anything runs.

A program is accepted only if its words can be encoded, every address lies inside its memory, every stage ends in every
interleaving, all data are ordered by tokens, no step uses a result that is still in the pipeline, and it keeps to what
the functional simulator, the RTL and the HLS model of VTA agree on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import overflows
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.hazards import check_data
from heron_asp.backends.vta.isa import (
    Alu,
    AluOp,
    Compute,
    Finish,
    Instruction,
    Load,
    Memory,
    Stage,
    Store,
    Transfer,
    stage_of,
)
from heron_asp.backends.vta.tokens import MOST_TOKENS, MOST_WAITING, Waits, describe_stuck, follow, held_up
from heron_asp.backends.vta.violation import Rule, Violation, called, violation
from heron_asp.errors import HeronError

_SHIFT = 15  # the HLS model keeps five signed bits of a shift
_PHYSICAL = 1 << 32

Reason = tuple[Rule, str, str]  # rule, field, sentence


def check(
    instructions: Sequence[Instruction], config: Configuration, memory: Bytes, waits: Waits | None = None
) -> list[Violation]:
    """What is wrong with a program, most basic first; empty if it may run.

    Data are followed only if all instructions are right one by one and the tokens lead to the end.

    Args:
        instructions: the program.
        config: the device.
        memory: the DRAM image before the run: its size bounds addresses, its micro-ops are read. Not changed.
        waits: what `tokens.follow` says of it, if that is known.
    """
    found = [
        violation(rule, instructions, number, field, reason)
        for number, instruction in enumerate(instructions)
        for rule, field, reason in _alone(instruction, config, len(memory))
    ]
    waits = waits or follow(instructions)
    found += _ending(instructions)
    found += _tokens(instructions, waits)
    if not found:
        found += _finishes_last(instructions, waits)
        found += check_data(instructions, config, memory, waits)
    return found


def require_valid(instructions: Sequence[Instruction], config: Configuration, memory: Bytes) -> None:
    """Refuses a program that `check` objects to.

    Raises:
        HeronError: with the first three violations.
    """
    if found := check(instructions, config, memory):
        more = f"\n(and {len(found) - 3} more)" if len(found) > 3 else ""
        raise HeronError("the program is refused:\n" + "\n".join(v.message for v in found[:3]) + more)


def _alone(instruction: Instruction, config: Configuration, size: int) -> Iterator[Reason]:
    """What is wrong with an instruction by itself."""
    for field, reason in overflows(instruction, config):
        yield Rule.FIELD, field, reason
    match instruction:
        case Load():
            yield from _load(instruction, config)
            yield from _transfer(instruction, config, size)
        case Store():
            yield from _store(instruction)
            yield from _transfer(instruction, config, size)
        case Compute():
            yield from _loops(instruction, config)
            if isinstance(instruction, Alu):
                yield from _alu(instruction)
        case Finish():
            for field in ("pop_prev", "pop_next", "push_prev", "push_next"):
                if getattr(instruction, field):
                    yield Rule.TOKEN, field, f"{field} is set; let a transfer with x_size 0 before it carry the token"


def _load(load: Load, config: Configuration) -> Iterator[Reason]:
    name = load.memory_type.name
    if load.memory_type in (Memory.OUT, Memory.ACC_8BIT):
        yield Rule.PORTABLE, "memory_type", f"memory_type is {name}, which the hardware cannot load"
    elif not load.x_size:
        return
    elif load.memory_type is Memory.UOP:
        if load.y_size != 1 or load.padded:
            field = "y_size" if load.y_size != 1 else _padding(load)
            yield (
                Rule.PORTABLE,
                field,
                f"{field} is {getattr(load, field)}; micro-ops are loaded as one row without padding",
            )
        if (end := load.sram_base + load.x_size) > config.portable_uops:
            yield (
                Rule.PORTABLE,
                "sram_base",
                f"sram_base {load.sram_base} and x_size {load.x_size} fill micro-op entries up to {end - 1}; "
                f"the RTL has {config.portable_uops}",
            )
    elif load.memory_type is Memory.WGT and load.padded:
        field = _padding(load)
        yield Rule.PORTABLE, field, f"{field} is {getattr(load, field)}; the HLS model ignores the padding of weights"


def _padding(transfer: Transfer) -> str:
    return next(f for f in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1") if getattr(transfer, f))


def _store(store: Store) -> Iterator[Reason]:
    if store.memory_type is not Memory.OUT:
        yield Rule.PORTABLE, "memory_type", f"memory_type is {store.memory_type.name}; only OUT can be stored"
    if store.x_size and store.padded:
        field = _padding(store)
        yield Rule.PORTABLE, field, f"{field} is {getattr(store, field)}; a STORE has no padding"


def _transfer(transfer: Transfer, config: Configuration, size: int) -> Iterator[Reason]:
    if not transfer.x_size:
        return
    if not transfer.y_size:
        yield (
            Rule.PORTABLE,
            "y_size",
            f"y_size is 0 with x_size {transfer.x_size}; hardware counts rows down from there",
        )
        return
    entries, depth = transfer.rows * transfer.row, config.depth(transfer.memory_type)
    if transfer.sram_base + entries > depth:
        yield (
            Rule.RANGE,
            "sram_base",
            f"sram_base {transfer.sram_base} with {transfer.rows} rows of {transfer.row} ends at entry "
            f"{transfer.sram_base + entries - 1}; {transfer.memory_type.name} has {depth}",
        )
    last = transfer.dram_base + (transfer.y_size - 1) * transfer.x_stride + transfer.x_size
    end = last * config.element_bytes(transfer.memory_type)
    if end > min(size, _PHYSICAL):
        yield (
            Rule.RANGE,
            "dram_base",
            f"dram_base {transfer.dram_base}, y_size {transfer.y_size}, x_size {transfer.x_size}, x_stride "
            f"{transfer.x_stride} end at byte {end} of DRAM; it has {min(size, _PHYSICAL)}",
        )


def _loops(compute: Compute, config: Configuration) -> Iterator[Reason]:
    for field in ("iter_out", "iter_in"):
        if getattr(compute, field) < 1:
            yield Rule.PORTABLE, field, f"{field} is {getattr(compute, field)}; hardware does not skip an empty loop"
    if compute.uop_end <= compute.uop_bgn:
        yield (
            Rule.PORTABLE,
            "uop_end",
            f"uop_end is {compute.uop_end} and uop_bgn {compute.uop_bgn}; hardware does not skip an empty sequence",
        )
    if compute.uop_end > config.depth(Memory.UOP):
        yield (
            Rule.RANGE,
            "uop_end",
            f"uop_end is {compute.uop_end}; the micro-op memory has {config.depth(Memory.UOP)} entries",
        )


def _alu(alu: Alu) -> Iterator[Reason]:
    if alu.alu_opcode is AluOp.MUL:
        yield Rule.PORTABLE, "alu_opcode", "alu_opcode is MUL, which the RTL and the HLS model do not have"
    if alu.alu_opcode is AluOp.SHR:
        if not alu.use_imm:
            yield Rule.PORTABLE, "use_imm", "use_imm is 0 for SHR; models disagree about shifts by a register"
        elif not -_SHIFT <= alu.imm <= _SHIFT:
            yield (
                Rule.PORTABLE,
                "imm",
                f"imm is {alu.imm} for SHR; the HLS model keeps five signed bits: shift by at most {_SHIFT}, or twice",
            )


def _ending(program: Sequence[Instruction]) -> Iterator[Violation]:
    ends = [number for number, instruction in enumerate(program) if isinstance(instruction, Finish)]
    if not ends:
        message = "the program has no FINISH; its last instruction must have this opcode"
        yield Violation(Rule.TOKEN, -1, "opcode", message)
    elif ends[0] != len(program) - 1:
        yield violation(Rule.TOKEN, program, ends[0], "opcode", "opcode is FINISH, but instructions follow")


def _tokens(program: Sequence[Instruction], waits: Waits) -> Iterator[Violation]:
    for number, flag in waits.without_queue:
        stage = stage_of(program[number]).name.lower()
        side = "before" if flag.endswith("prev") else "after"
        yield violation(Rule.TOKEN, program, number, flag, f"{flag} is set; no stage comes {side} the {stage} stage")
    for (number, flags), message in zip(waits.stuck.values(), describe_stuck(program, waits), strict=True):
        yield Violation(Rule.DEADLOCK, number, flags[0], message)
    if waits.stuck:
        return
    if (late := held_up(program)) is not None:
        stage = stage_of(program[late]).name.lower()
        reason = (
            f"its opcode is for the {stage} stage, where {MOST_WAITING} instructions wait already; "
            "what they wait for stands behind it"
        )
        yield violation(Rule.DEADLOCK, program, late, "opcode", reason)
    for (giver, taker), (count, number) in waits.left.items():
        flag = "push_next" if taker > giver else "push_prev"
        reason = (
            f"{flag} gives the {taker.name.lower()} stage a token that nobody takes "
            f"({count} left in all): the next program would start with it"
        )
        yield violation(Rule.TOKEN, program, number, flag, reason)
    for (giver, taker), (count, number) in waits.most.items():
        if count > MOST_TOKENS:
            flag = "push_next" if taker > giver else "push_prev"
            reason = f"{flag} can give token {count} while none is taken; the RTL counts to {MOST_TOKENS}"
            yield violation(Rule.TOKEN, program, number, flag, reason)


def _finishes_last(program: Sequence[Instruction], waits: Waits) -> Iterator[Violation]:
    """FINISH ends the program although other stages still work."""
    finish = len(program) - 1
    for stage in (Stage.LOAD, Stage.STORE):
        numbers = [number for number, instruction in enumerate(program) if stage_of(instruction) is stage]
        if numbers and not waits.precedes(len(numbers) - 1, stage, finish):
            flag = "push_next" if stage is Stage.LOAD else "push_prev"
            reason = f"{flag} is not waited for before {called(program, finish)}, which may end the program first"
            yield violation(Rule.ORDER, program, numbers[-1], flag, reason)
