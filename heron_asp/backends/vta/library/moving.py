"""Programs at other addresses, as the exported C moves them, and the proof that they still compute the same there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.driver import alignment
from heron_asp.backends.vta.encode import Slot, decode_program, layout
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.isa import Memory, Opcode
from heron_asp.backends.vta.library.kernel import Kernel, Words
from heron_asp.errors import InternalError
from heron_asp.measure.data import cases

_BASE = 5  # times the alignment: where a program is tried


@dataclass(frozen=True)
class Place:
    """A field of an instruction within its two words.

    Attributes:
        name: the field.
        word: 0 or 1.
        shift: its lowest bit in that word.
        mask: of its bits, at the lowest.
    """

    name: str
    word: int
    shift: int
    mask: int

    @classmethod
    def of(cls, slot: Slot) -> Place:
        """The place of a field."""
        return cls(slot.name, slot.shift // 64, slot.shift % 64, (1 << slot.bits) - 1)


@dataclass(frozen=True)
class Moves:
    """What a loader must know to move programs of a device.

    Attributes:
        opcode: the field of the instruction's kind.
        memory: the field of the memory that is loaded or stored.
        size: the field that is 0 where nothing is moved.
        address: the field that counts elements of the memory from physical address 0.
        shifts: log2 of the bytes of an element, by memory.
        alignment: what the physical address of an image must be a multiple of, a power of two.
    """

    opcode: Place
    memory: Place
    size: Place
    address: Place
    shifts: tuple[int, ...]
    alignment: int

    @classmethod
    def of(cls, config: Configuration) -> Moves:
        """Those of a configuration. Loads and stores have one format."""
        slots = {slot.name: Place.of(slot) for slot in layout(config, Opcode.LOAD)}
        stored = {slot.name: Place.of(slot) for slot in layout(config, Opcode.STORE)}
        assert slots == stored
        shifts = tuple(config.element_bytes(memory).bit_length() - 1 for memory in Memory)
        return cls(
            opcode=slots["opcode"],
            memory=slots["memory_type"],
            size=slots["x_size"],
            address=slots["dram_base"],
            shifts=shifts,
            alignment=alignment(config),
        )

    def moved(self, words: Words, base: int) -> Words:
        """Instructions whose image begins at physical address `base`, a multiple of the alignment."""
        found = words.copy()
        for row in found:
            opcode, memory, size = (
                int(row[one.word]) >> one.shift & one.mask for one in (self.opcode, self.memory, self.size)
            )
            if opcode in (Opcode.LOAD, Opcode.STORE) and size:
                row[self.address.word] += np.uint64((base >> self.shifts[memory]) << self.address.shift)
        return found


def verify(kernel: Kernel) -> None:
    """Moves a program and simulates it on all test inputs.

    Raises:
        InternalError: it is refused or wrong there.
    """
    config = kernel.lowered.problem.config
    moves = Moves.of(config)
    base = _BASE * moves.alignment
    raw = moves.moved(kernel.words, base).tobytes()
    program = decode_program((int.from_bytes(raw[at : at + 16], "little") for at in range(0, len(raw), 16)), config)
    for number, case in enumerate(cases(kernel.operator)):
        memory = np.zeros(base + kernel.lowered.size, np.uint8)
        memory[base:] = kernel.lowered.image(case.inputs)
        if number == 0 and (found := check(program, config, memory)):
            raise InternalError(f"{kernel.symbol} at address {base}: {found[0].message}")
        simulate(program, memory, config)
        wrong = case.error(kernel.lowered.result(memory[base:]).reshape(case.expected.shape))
        if wrong:
            raise InternalError(f"{kernel.symbol} at address {base}: {wrong}")
