"""Finishes a program: puts micro-ops into their memory, and derives the tokens from what instructions touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import UOP_BYTES, Configuration
from heron_asp.backends.vta.encode import Uops, encode_uops
from heron_asp.backends.vta.isa import Compute, Finish, Instruction, Load, Memory, MicroOp, Stage, stage_of
from heron_asp.backends.vta.tokens import neighbour
from heron_asp.errors import HeronError

Kernel = tuple[MicroOp, ...]


@dataclass(frozen=True)
class Access:
    """Entries of a scratchpad that an instruction reads or writes; outputs are accumulators."""

    memory: Memory
    begin: int
    end: int
    writes: bool


@dataclass
class Entry:
    """An instruction before its tokens, and for GEMM and ALU before its micro-ops have a place."""

    instruction: Instruction
    accesses: tuple[Access, ...] = ()
    kernel: Kernel | None = None


@dataclass
class Builder:
    """Collects instructions in program order.

    Args:
        config: the device.
        uop_address: byte address of the micro-ops in DRAM.
    """

    config: Configuration
    uop_address: int
    entries: list[Entry] = field(default_factory=list)

    def add(self, instruction: Instruction, *accesses: Access, kernel: Kernel | None = None) -> None:
        """Appends an instruction."""
        self.entries.append(Entry(instruction, accesses, kernel))

    def finish(self) -> tuple[list[Instruction], Uops]:
        """The program, FINISH included, and the words of its micro-ops as they must lie in DRAM.

        Raises:
            HeronError: if one kernel has more micro-ops than the memory.
        """
        kernels = list(dict.fromkeys(entry.kernel for entry in self.entries if entry.kernel is not None))
        offsets, total = {}, 0
        for kernel in kernels:
            offsets[kernel] = total
            total += len(kernel)
        placed = list(_place(self.entries, offsets, total, self.uop_address // UOP_BYTES, self.config.portable_uops))
        placed += [Entry(Load(memory_type=Memory.UOP)), Entry(Finish())]
        words = [uop for kernel in kernels for uop in kernel]
        return _with_tokens(placed, self.config), encode_uops(words, self.config)


def _place(entries: Sequence[Entry], offsets: dict[Kernel, int], total: int, base: int, room: int) -> Iterator[Entry]:
    """Loads micro-ops before they are used: all at the start if they fit, else a kernel when it is needed.

    When the memory is full, it is filled again from its beginning; the compute stage, which alone uses it, has ended
    what came before.
    """
    resident: dict[Kernel, int] = {}
    if total <= room:
        resident = dict(offsets)
        if total:
            yield Entry(_load_uops(0, base, total))
    used = total if resident else 0
    for entry in entries:
        kernel = entry.kernel
        if kernel is None:
            yield entry
            continue
        if kernel not in resident:
            if len(kernel) > room:
                raise HeronError(
                    f"a tile needs {len(kernel)} micro-ops in one sequence; every model holds {room}",
                    "Make the tile smaller along an axis that no hardware loop runs over.",
                )
            if used + len(kernel) > room:
                resident, used = {}, 0
            yield Entry(_load_uops(used, base + offsets[kernel], len(kernel)))
            resident[kernel] = used
            used += len(kernel)
        assert isinstance(entry.instruction, Compute)
        begin = resident[kernel]
        yield Entry(replace(entry.instruction, uop_bgn=begin, uop_end=begin + len(kernel)), entry.accesses)


def _load_uops(entry: int, dram: int, count: int) -> Load:
    return Load(memory_type=Memory.UOP, sram_base=entry, dram_base=dram, y_size=1, x_size=count, x_stride=count)


def _with_tokens(entries: Sequence[Entry], config: Configuration) -> list[Instruction]:
    """Orders what instructions of different stages touch in common.

    Of all that an instruction must wait for in a neighbouring stage, the latest decides; and if an earlier instruction
    of its own stage waits for that or later, nothing is left to do. What remains comes in the same order on both sides,
    so that the n-th token taken is the n-th given.
    """
    last: dict[tuple[Stage, Memory, bool], NDArray[np.int64]] = {}
    waited: dict[tuple[Stage, Stage], int] = {}
    flags: list[dict[str, int]] = [{} for _ in entries]
    latest = dict.fromkeys(Stage, -1)

    def touched(stage: Stage, memory: Memory, writes: bool) -> NDArray[np.int64]:
        return last.setdefault((stage, memory, writes), np.full(config.depth(memory), -1, np.int64))

    for number, entry in enumerate(entries):
        stage = stage_of(entry.instruction)
        for other, flag in ((neighbour(stage, "prev"), "prev"), (neighbour(stage, "next"), "next")):
            if other is None:
                continue
            need = latest[other] if number == len(entries) - 2 else -1  # the last but FINISH waits for everything
            for access in entry.accesses:
                for writes in (True, False):
                    if writes or access.writes:
                        need = max(need, int(touched(other, access.memory, writes)[access.begin : access.end].max()))
            if need > waited.get((other, stage), -1):
                waited[other, stage] = need
                flags[number][f"pop_{flag}"] = 1
                flags[need]["push_next" if flag == "prev" else "push_prev"] = 1
        for access in entry.accesses:
            touched(stage, access.memory, access.writes)[access.begin : access.end] = number
        latest[stage] = number
    return [replace(entry.instruction, **flag) for entry, flag in zip(entries, flags, strict=True)]
