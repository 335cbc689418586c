"""Follows the data of a program: reads of what nothing wrote, stages that race, steps that use what is not yet written.

Two instructions of different stages that touch the same entry, one of them writing, must be ordered by tokens in every
run. One pass suffices: for each entry it is enough to know the last instruction of each stage that wrote or read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import decode_uops
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.isa import (
    Alu,
    Compute,
    Gemm,
    Instruction,
    Load,
    Memory,
    Stage,
    Store,
    Transfer,
    carries_only_tokens,
    stage_of,
)
from heron_asp.backends.vta.tokens import Waits
from heron_asp.backends.vta.uops import Indices, Steps, least_distance, reads_source, steps_of
from heron_asp.backends.vta.violation import Rule, Violation, called, violation

_PIPELINE = 2  # steps after which a result can be used on every model
_NEVER, _LOADED, _RESET, _COMPUTED = range(4)  # what wrote an accumulator last
_WROTE = {_NEVER: "nothing wrote", _LOADED: "a LOAD wrote last", _RESET: "a GEMM with reset wrote last"}

Entries = slice | Indices


class _Data:
    """State of one pass: who touched each entry last, as the place of an instruction in its stage; -1 for nobody."""

    def __init__(self, program: Sequence[Instruction], config: Configuration, memory: Bytes, waits: Waits) -> None:
        self.program = program
        self.config = config
        self.memory = memory
        self.waits = waits
        self.numbers = {stage: [n for n, i in enumerate(program) if stage_of(i) is stage] for stage in Stage}

        def nobody(memory_type: Memory) -> NDArray[np.int64]:
            return np.full(config.depth(memory_type), -1, np.int64)

        self.written = {memory_type: nobody(memory_type) for memory_type in (Memory.INP, Memory.WGT, Memory.ACC)}
        self.read = {memory_type: nobody(memory_type) for memory_type in (Memory.INP, Memory.WGT, Memory.ACC)}
        self.kind = np.zeros(config.depth(Memory.ACC), np.int8)
        self.uops = np.zeros(config.depth(Memory.UOP), np.uint32)
        self.uop_written = np.zeros(config.depth(Memory.UOP), bool)

    def follow(self) -> Iterator[Violation]:
        for number in self.waits.order:
            instruction = self.program[number]
            if carries_only_tokens(instruction):
                continue
            match instruction:
                case Load():
                    yield from self._load(number, instruction)
                case Store():
                    yield from self._store(number, instruction)
                case Gemm() | Alu():
                    yield from self._compute(number, instruction)

    def _load(self, number: int, load: Load) -> Iterator[Violation]:
        entries = slice(load.sram_base, load.sram_base + load.rows * load.row)
        if load.memory_type is Memory.UOP:
            begin = load.dram_base * 4
            self.uops[entries] = self.memory[begin : begin + load.x_size * 4].view("<u4")
            self.uop_written[entries] = True
        elif load.memory_type is Memory.ACC:
            yield from self._write_acc(number, entries, _LOADED, "sram_base")
        else:
            reason = f"sram_base overwrites {load.memory_type.name} entry"
            reader = self.read[load.memory_type][entries]
            yield from self._unordered(number, Stage.COMPUTE, reader, entries, "pop_next", reason, "reads")
            self.written[load.memory_type][entries] = self.waits.position[number]

    def _store(self, number: int, store: Store) -> Iterator[Violation]:
        entries = slice(store.sram_base, store.sram_base + store.y_size * store.x_size)
        kinds = self.kind[entries]
        if (wrong := np.flatnonzero(kinds != _COMPUTED)).size:
            first = int(wrong[0])
            kind = int(kinds[first])
            rule = Rule.UNWRITTEN if kind == _NEVER else Rule.PORTABLE
            reason = f"sram_base reaches entry {store.sram_base + first}, which {_WROTE[kind]}; "
            reason += "outputs are what GEMM without reset or ALU wrote last (ADD 0 does)"
            yield violation(rule, self.program, number, "sram_base", reason)
        writer = self.written[Memory.ACC][entries]
        reason = "sram_base reads accumulator entry"
        yield from self._unordered(number, Stage.COMPUTE, writer, entries, "pop_prev", reason, "writes")
        self.read[Memory.ACC][entries] = self.waits.position[number]

    def _compute(self, number: int, compute: Gemm | Alu) -> Iterator[Violation]:
        sequence = slice(compute.uop_bgn, compute.uop_end)
        if not self.uop_written[sequence].all():
            first = compute.uop_bgn + int(np.flatnonzero(~self.uop_written[sequence])[0])
            reason = f"uop_bgn and uop_end span micro-op {first}, which no LOAD wrote"
            yield violation(Rule.UNWRITTEN, self.program, number, "uop_bgn", reason)
            return
        uops = self.uops[sequence]
        steps = steps_of(compute, uops, self.config)
        found = list(self._bounds(number, compute, steps))
        yield from found
        if found:
            return
        yield from self._pipeline(number, compute, steps)
        dst = np.unique(steps.dst)
        if isinstance(compute, Alu):
            yield from self._alu(number, compute, steps, dst)
        elif not compute.reset:
            yield from self._known(number, "dst_idx", dst)
            yield from self._read_operand(number, Memory.INP, "src_idx", np.unique(steps.src))
            yield from self._read_operand(number, Memory.WGT, "wgt_idx", np.unique(steps.wgt))
        reset = isinstance(compute, Gemm) and compute.reset
        yield from self._write_acc(number, dst, _RESET if reset else _COMPUTED, "dst_idx")

    def _alu(self, number: int, alu: Alu, steps: Steps, dst: Indices) -> Iterator[Violation]:
        yield from self._known(number, "dst_idx", dst)
        if not alu.use_imm:
            yield from self._known(number, "src_idx", np.unique(steps.src))
        elif (steps.src != steps.dst).any():
            at = tuple(int(i[0]) for i in np.nonzero(steps.src != steps.dst))
            reason = (
                f"src_idx leads to entry {int(steps.src[at])} where dst_idx leads to {int(steps.dst[at])}; "
                "the RTL takes an immediate operation's operand from the source, other models from the destination"
            )
            yield violation(Rule.PORTABLE, self.program, number, "src_idx", reason)
        weights = decode_uops(self.uops[alu.uop_bgn : alu.uop_end], self.config)[2]
        if weights.any():
            reason = (
                f"wgt_idx is {int(weights.max())} in a micro-op; the RTL takes it as upper bits of an ALU's src_idx"
            )
            yield violation(Rule.PORTABLE, self.program, number, "wgt_idx", reason)

    def _bounds(self, number: int, compute: Compute, steps: Steps) -> Iterator[Violation]:
        used = [("dst", steps.dst, Memory.ACC)]
        if reads_source(compute):
            used.append(("src", steps.src, Memory.INP if isinstance(compute, Gemm) else Memory.ACC))
            if isinstance(compute, Gemm):
                used.append(("wgt", steps.wgt, Memory.WGT))
        for name, indices, memory_type in used:
            if (most := int(indices.max())) >= self.config.depth(memory_type):
                reason = (
                    f"{name}_factor_out and {name}_factor_in lead to entry {most}; "
                    f"{memory_type.name} has {self.config.depth(memory_type)}"
                )
                yield violation(Rule.RANGE, self.program, number, f"{name}_factor_out", reason)

    def _pipeline(self, number: int, compute: Compute, steps: Steps) -> Iterator[Violation]:
        if isinstance(compute, Gemm) and compute.reset:
            return  # nothing is read
        dst = steps.dst.ravel()
        uses = [("dst_idx", dst)]
        if isinstance(compute, Alu) and not compute.use_imm:
            uses.append(("src_idx", steps.src.ravel()))
        for field, used in uses:
            if distance := least_distance(dst, used, _PIPELINE):
                reason = (
                    f"{field} leads to an entry that was written {distance} step{'s' if distance > 1 else ''} before; "
                    f"at least {_PIPELINE} other steps must lie between"
                )
                yield violation(Rule.HAZARD, self.program, number, field, reason)

    def _known(self, number: int, field: str, entries: Indices) -> Iterator[Violation]:
        if (unknown := entries[self.kind[entries] == _NEVER]).size:
            reason = f"{field} leads to accumulator entry {int(unknown[0])}, which nothing wrote"
            yield violation(Rule.UNWRITTEN, self.program, number, field, reason)

    def _read_operand(self, number: int, memory_type: Memory, field: str, entries: Indices) -> Iterator[Violation]:
        writer = self.written[memory_type][entries]
        if (writer < 0).any():
            reason = f"{field} leads to {memory_type.name} entry {int(entries[writer < 0][0])}, which no LOAD wrote"
            yield violation(Rule.UNWRITTEN, self.program, number, field, reason)
        reason = f"{field} reads {memory_type.name} entry"
        yield from self._unordered(number, Stage.LOAD, writer, entries, "pop_prev", reason, "writes")
        self.read[memory_type][entries] = self.waits.position[number]

    def _write_acc(self, number: int, entries: Entries, kind: int, field: str) -> Iterator[Violation]:
        reader = self.read[Memory.ACC][entries]
        reason = f"{field} overwrites accumulator entry"
        yield from self._unordered(number, Stage.STORE, reader, entries, "pop_next", reason, "reads")
        self.written[Memory.ACC][entries] = self.waits.position[number]
        self.kind[entries] = kind

    def _unordered(
        self, number: int, stage: Stage, places: Indices, entries: Entries, flag: str, reason: str, verb: str
    ) -> Iterator[Violation]:
        """Objects if the latest of `places` of `stage` does not surely end before instruction `number` starts."""
        latest = int(places.argmax())
        place = int(places[latest])
        if place < 0 or self.waits.precedes(place, stage, number):
            return
        entry = entries.start + latest if isinstance(entries, slice) else int(entries[latest])
        other = called(self.program, self.numbers[stage][place])
        reason = f"{reason} {entry}, which {other} {verb}, and no token orders them; {flag} must wait for it"
        yield violation(Rule.ORDER, self.program, number, flag, reason)


def _extent(transfer: Transfer, config: Configuration) -> tuple[int, int]:
    """First byte in DRAM and one past the last."""
    size = config.element_bytes(transfer.memory_type)
    last = transfer.dram_base + (transfer.y_size - 1) * transfer.x_stride + transfer.x_size
    return transfer.dram_base * size, last * size


def _rows(transfer: Transfer, config: Configuration) -> NDArray[np.int64]:
    """First byte in DRAM of each row."""
    size = config.element_bytes(transfer.memory_type)
    return (transfer.dram_base + np.arange(transfer.y_size, dtype=np.int64) * transfer.x_stride) * size


def _touch(first: Transfer, second: Transfer, config: Configuration) -> bool:
    """Whether two transfers share a byte of DRAM."""
    ones, others = _rows(first, config), _rows(second, config)
    one_size, other_size = (t.x_size * config.element_bytes(t.memory_type) for t in (first, second))
    following = np.searchsorted(others, ones, side="right")
    before = others[np.maximum(following - 1, 0)]
    after = others[np.minimum(following, len(others) - 1)]
    overlaps_before = (before <= ones) & (before + other_size > ones)
    overlaps_after = (after >= ones) & (after < ones + one_size)
    return bool((overlaps_before | overlaps_after).any())


def _dram(program: Sequence[Instruction], config: Configuration, waits: Waits) -> Iterator[Violation]:
    """Loads of what the program stores, or stores over what it loads, must be ordered; micro-ops must not be stored."""
    moving = [n for n in waits.order if isinstance(program[n], Transfer) and not carries_only_tokens(program[n])]
    transfers = {n: t for n in moving if isinstance(t := program[n], Transfer)}
    stores = [n for n in moving if isinstance(program[n], Store)]
    if not stores:
        return
    extents = np.array([_extent(transfers[n], config) for n in stores])
    rank = {number: place for place, number in enumerate(waits.order)}
    for number, transfer in transfers.items():
        if isinstance(transfer, Store):
            continue
        begin, end = _extent(transfer, config)
        for hit in np.flatnonzero((extents[:, 0] < end) & (extents[:, 1] > begin)):
            store = stores[int(hit)]
            if not _touch(transfer, transfers[store], config):
                continue
            if transfer.memory_type is Memory.UOP:
                reason = (
                    f"dram_base reads micro-ops that {called(program, store)} stores; they cannot be checked beforehand"
                )
                yield violation(Rule.ORDER, program, number, "dram_base", reason)
                continue
            first, second = sorted((number, store), key=lambda n: rank[n])
            if not waits.precedes(waits.position[first], stage_of(program[first]), second):
                reason = f"dram_base meets memory that {called(program, store)} stores, and no token orders them"
                yield violation(Rule.ORDER, program, number, "dram_base", reason)


def check_data(
    program: Sequence[Instruction], config: Configuration, memory: Bytes, waits: Waits
) -> Iterator[Violation]:
    """What is wrong with the data of a program whose instructions are right one by one and whose stages all end."""
    yield from _dram(program, config, waits)
    yield from _Data(program, config, memory, waits).follow()
