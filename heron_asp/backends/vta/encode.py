"""Instruction words and micro-op words, both ways, bit for bit those of VTA's C bit-fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import INSTRUCTION_BYTES, Configuration
from heron_asp.backends.vta.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    MicroOp,
    Opcode,
    Store,
    opcode_of,
)
from heron_asp.errors import HeronError

_KINDS: dict[Opcode, type[Instruction]] = {
    Opcode.LOAD: Load,
    Opcode.STORE: Store,
    Opcode.GEMM: Gemm,
    Opcode.FINISH: Finish,
    Opcode.ALU: Alu,
}
Uops = NDArray[np.uint32]


@dataclass(frozen=True)
class Slot:
    """Where a field lies in a word, and what it can hold.

    Attributes:
        name: the field.
        shift: its lowest bit.
        bits: its width.
        signed: two's complement; only `imm` is.
    """

    name: str
    shift: int
    bits: int
    signed: bool

    @property
    def least(self) -> int:
        """The smallest value it holds."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def most(self) -> int:
        """The largest value it holds."""
        return (1 << self.bits - self.signed) - 1


def _place(fields: Iterable[tuple[str, int]]) -> tuple[Slot, ...]:
    """As a C compiler packs bit-fields of 64-bit units: a field that would cross a unit's end starts the next one."""
    slots, position = [], 0
    for name, bits in fields:
        if position % 64 + bits > 64:
            position += 64 - position % 64
        slots.append(Slot(name, position, bits, name == "imm"))
        position += bits
    return tuple(slots)


@lru_cache(maxsize=64)
def layout(config: Configuration, opcode: Opcode) -> tuple[Slot, ...]:
    """The fields of an instruction, least significant first, `opcode` included."""
    return _place(config.fields[opcode.name])


@lru_cache(maxsize=64)
def uop_layout(config: Configuration) -> tuple[Slot, ...]:
    """The fields of a micro-op, least significant first."""
    return _place(config.uop_fields)


def overflows(instruction: Instruction, config: Configuration) -> list[tuple[str, str]]:
    """The fields whose values their bits cannot hold, each with a sentence about value and range."""
    found = []
    for slot in layout(config, opcode_of(instruction))[1:]:
        value = int(getattr(instruction, slot.name))
        if not slot.least <= value <= slot.most:
            found.append((slot.name, f"{slot.name} is {value}; its {slot.bits} bits hold {slot.least} to {slot.most}"))
    return found


def encode_instruction(instruction: Instruction, config: Configuration) -> int:
    """The 128-bit word of an instruction.

    Raises:
        HeronError: if a value does not fit its field.
    """
    opcode = opcode_of(instruction)
    word = int(opcode)
    for slot in layout(config, opcode)[1:]:
        value = int(getattr(instruction, slot.name))
        if not slot.least <= value <= slot.most:
            raise HeronError(
                f"{opcode.name}: {overflows(instruction, config)[0][1]}", "Split the instruction or its loops."
            )
        word |= (value & ((1 << slot.bits) - 1)) << slot.shift
    return word


def decode_instruction(word: int, config: Configuration) -> Instruction:
    """The instruction of a 128-bit word.

    Raises:
        HeronError: if the opcode, the memory or the ALU operation does not exist, or a bit is set that no field has.
    """
    try:
        opcode = Opcode(word & 7)
        values: dict[str, int] = {}
        rest = word
        for slot in layout(config, opcode):
            mask = (1 << slot.bits) - 1
            value = word >> slot.shift & mask
            rest &= ~(mask << slot.shift)
            values[slot.name] = value - (1 << slot.bits) if value > slot.most else value
        del values["opcode"]
        if "memory_type" in values:
            values["memory_type"] = Memory(values["memory_type"])
        if "alu_opcode" in values:
            values["alu_opcode"] = AluOp(values["alu_opcode"])
    except ValueError as error:
        raise HeronError(f"the word {word:032x} is no instruction: {error}") from error
    if rest:
        raise HeronError(
            f"the word {word:032x} is no {opcode.name}: bits {rest:#x} belong to no field",
            "Was it encoded for another configuration?",
        )
    return _KINDS[opcode](**values)


def encode_program(instructions: Sequence[Instruction], config: Configuration) -> bytes:
    """The instruction stream as it lies in memory: 16 bytes an instruction, little-endian.

    Raises:
        HeronError: if a value does not fit its field; the message gives the instruction's number.
    """
    words = bytearray()
    for number, instruction in enumerate(instructions):
        try:
            words += encode_instruction(instruction, config).to_bytes(INSTRUCTION_BYTES, "little")
        except HeronError as error:
            raise HeronError(f"instruction {number}: {error.message}", error.hint) from error
    return bytes(words)


def decode_program(words: Iterable[int], config: Configuration) -> list[Instruction]:
    """The instructions of 128-bit words, in order."""
    return [decode_instruction(word, config) for word in words]


def encode_uop(uop: MicroOp, config: Configuration) -> int:
    """The 32-bit word of a micro-op.

    Raises:
        HeronError: if an index does not fit its field.
    """
    word = 0
    for slot in uop_layout(config):
        value = getattr(uop, slot.name)
        if not 0 <= value <= slot.most:
            raise HeronError(f"micro-op: {slot.name} is {value}; its {slot.bits} bits hold 0 to {slot.most}")
        word |= value << slot.shift
    return word


def decode_uop(word: int, config: Configuration) -> MicroOp:
    """The micro-op of a 32-bit word."""
    return MicroOp(*(word >> slot.shift & slot.most for slot in uop_layout(config)))


def decode_uops(words: Uops, config: Configuration) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Destination, source and weight indices of an array of micro-op words of any shape."""
    dst, src, wgt = uop_layout(config)
    wide = words.astype(np.int64)
    return wide >> dst.shift & dst.most, wide >> src.shift & src.most, wide >> wgt.shift & wgt.most


def encode_uops(uops: Sequence[MicroOp], config: Configuration) -> Uops:
    """The words of micro-ops, as they lie in memory."""
    return np.array([encode_uop(uop, config) for uop in uops], np.uint32)
