"""Why a program is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heron_asp.backends.vta.isa import Instruction, opcode_of


class Rule(StrEnum):
    """What a program breaks."""

    FIELD = "field"  # a value that its bits cannot hold
    RANGE = "range"  # an address beyond a scratchpad or DRAM
    DEADLOCK = "deadlock"  # a stage waits for ever
    TOKEN = "token"  # a token goes nowhere, stays behind, or is one too many  # noqa: S105 - no password
    ORDER = "order"  # two stages touch the same data and no token orders them
    HAZARD = "hazard"  # a step uses a result that is still in the pipeline
    UNWRITTEN = "unwritten"  # an entry is read that nothing wrote
    PORTABLE = "portable"  # public models of the device disagree


@dataclass(frozen=True)
class Violation:
    """One reason to refuse a program.

    Attributes:
        rule: what is broken.
        number: the instruction, counted from 0; -1 for the program as a whole.
        field: its field that is wrong.
        message: a sentence that names both.
    """

    rule: Rule
    number: int
    field: str
    message: str


def violation(rule: Rule, program: Sequence[Instruction], number: int, field: str, reason: str) -> Violation:
    """A violation by one instruction; `reason` is the sentence without the instruction."""
    return Violation(rule, number, field, f"{called(program, number)}: {reason}")


def called(program: Sequence[Instruction], number: int) -> str:
    """How messages call an instruction."""
    return f"instruction {number} ({opcode_of(program[number]).name})"
