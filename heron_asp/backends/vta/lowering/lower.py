"""From a loop nest to a program: loads where a block is missing, products, the operations after the sum, stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from heron_asp.backends.vta.config import INSTRUCTION_BYTES, UOP_BYTES
from heron_asp.backends.vta.encode import Uops
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.isa import Alu, AluOp, Gemm, Instruction, Load, Memory, MicroOp, Store
from heron_asp.backends.vta.lowering.builder import Access, Builder
from heron_asp.backends.vta.lowering.entries import Array, Entries, Span
from heron_asp.backends.vta.lowering.kernels import Loop, nests_of, sweep_of
from heron_asp.backends.vta.lowering.nest import Nest, Place
from heron_asp.backends.vta.lowering.problem import Problem
from heron_asp.backends.vta.lowering.transfers import can_pad, transfers
from heron_asp.errors import InternalError

_PAGE = 4096
_MOST_SHIFT = 15  # of an instruction: the HLS model keeps five bits of it
_PADDED_DIMS = 2  # innermost, which a transfer can pad
_OPERATIONS = {"plus": AluOp.ADD, "max": AluOp.MAX, "min": AluOp.MIN}


@dataclass(frozen=True)
class Region:
    """A tensor in DRAM.

    Attributes:
        entries: the tensor.
        address: its first byte.
        held: the indices that DRAM holds along each dimension.
    """

    entries: Entries
    address: int
    held: tuple[Span, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents in DRAM, the elements of an entry last."""
        return (*(high - low for low, high in self.held), *(extent for _, extent in self.entries.inside))

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.entries.dtype.itemsize


@dataclass(frozen=True)
class Lowered:
    """A program and where its data lie.

    Attributes:
        problem: the operator.
        instructions: the program.
        uops: words of its micro-ops.
        regions: tensors in DRAM, by copy.
        uop_address: first byte of the micro-ops.
        stream_address: first byte of the instructions, behind all data.
        size: bytes of the DRAM image.
    """

    problem: Problem
    instructions: list[Instruction]
    uops: Uops
    regions: Mapping[str, Region]
    uop_address: int
    stream_address: int
    size: int

    def image(self, inputs: Mapping[str, Array]) -> Bytes:
        """The DRAM image before the run, from the operator's inputs."""
        memory = np.zeros(self.size, np.uint8)
        parts = [(self.uop_address, np.asarray(self.uops))]
        for name, data in self.problem.operands(inputs).items():
            region = self.regions[name]
            parts.append((region.address, region.entries.pack(data, region.held)))
        for address, part in parts:
            raw = np.frombuffer(part.tobytes(), np.uint8)
            memory[address : address + len(raw)] = raw
        return memory

    def result(self, memory: Bytes) -> Array:
        """The operator's result out of the DRAM image after the run."""
        name, entries = self.problem.copy("acc")
        region = self.regions[name]
        stored = memory[region.address : region.address + region.bytes].view(entries.dtype).reshape(region.shape)
        return self.problem.result(entries.unpack(stored, self.problem.block.result.shape))


class _Ring:
    """Blocks of a copy that are held at once; the one that was filled first makes room."""

    def __init__(self, base: int, size: int, slots: int) -> None:
        self.bases = [base + slot * size for slot in range(slots)]
        self.keys: list[object] = [None] * slots
        self.following = 0

    def find(self, key: object) -> tuple[int, bool]:
        """First entry of a block, and whether it must be filled."""
        if key in self.keys:
            return self.bases[self.keys.index(key)], False
        slot, self.following = self.following, (self.following + 1) % len(self.keys)
        self.keys[slot] = key
        return self.bases[slot], True


@dataclass
class _Copy:
    """A copy while a program is made.

    Attributes:
        entries: the tensor.
        place: where its blocks are made.
        region: where it lies in DRAM.
        sizes: of a block along each dimension.
        ring: its blocks in the scratchpad.
    """

    entries: Entries
    place: Place
    region: Region
    sizes: tuple[int, ...]
    ring: _Ring

    @property
    def size(self) -> int:
        """Entries of a block."""
        return prod(self.sizes)

    @cached_property
    def moves(self) -> dict[str, int]:
        """Entries by which a step of each axis moves within a block."""
        found: dict[str, int] = {}
        for at, dim in enumerate(self.entries.dims):
            for axis, stride in dim.terms:
                found[axis] = found.get(axis, 0) + stride * prod(self.sizes[at + 1 :])
        return found

    def access(self, base: int, writes: bool) -> Access:
        """All of a block."""
        memory = Memory.ACC if self.entries.memory is Memory.OUT else self.entries.memory
        return Access(memory, base, base + self.size, writes)


class _Lowering:
    def __init__(self, problem: Problem, nest: Nest) -> None:
        self.problem, self.nest, self.config = problem, nest, problem.config
        self.regions, end = self._lay_out()
        self.uop_address = end
        self.builder = Builder(self.config, self.uop_address)
        self.copies = self._place()
        self.acc = next(copy for copy in self.copies.values() if copy.entries.memory is Memory.OUT)
        self.sums = self.acc.place.depth  # loops around a block of sums

    # -- where things lie ------------------------------------------------------------------------------------------

    def _lay_out(self) -> tuple[dict[str, Region], int]:
        regions, position = {}, _PAGE
        for name, entries in self.problem.copies.items():
            region = Region(entries, position, self._held(name, entries))
            regions[name] = region
            position += -(-region.bytes // _PAGE) * _PAGE
        return regions, position

    def _held(self, name: str, entries: Entries) -> tuple[Span, ...]:
        """What DRAM holds of each dimension: no padding where transfers can make that, else all that is read."""
        held = []
        for at, dim in enumerate(entries.dims):
            wanted = self._wanted(name, entries, at)
            if entries.memory is Memory.INP and at >= len(entries.dims) - _PADDED_DIMS and can_pad(wanted, dim.data):
                held.append(dim.data)
            else:
                held.append((min(low for low, _ in wanted), max(high for _, high in wanted)))
        return tuple(held)

    def _wanted(self, name: str, entries: Entries, at: int) -> list[Span]:
        """The indices of a dimension that each block has."""
        dim, depth = entries.dims[at], self.nest.places[name].depth
        axes = [axis for axis, _ in dim.terms]
        loops = self.nest.loops[:depth]
        ranges = [range(loop.extent) if loop.axis in axes else range(1) for loop in loops]
        steps = self.nest.steps(depth)
        return [dim.span(self.nest.first(index), steps) for index in product(*ranges)]

    def _place(self) -> dict[str, _Copy]:
        used = dict.fromkeys(Memory, 0)
        copies = {}
        for name, entries in self.problem.copies.items():
            place = self.nest.places[name]
            steps = self.nest.steps(place.depth)
            first = self.nest.first(())
            sizes = tuple(high - low for low, high in (dim.span(first, steps) for dim in entries.dims))
            blocks = prod(loop.extent for loop in self.nest.loops[: place.depth] if loop.axis in entries.axes)
            slots = min(place.slots, blocks)
            memory = Memory.ACC if entries.memory is Memory.OUT else entries.memory
            copies[name] = _Copy(entries, place, self.regions[name], sizes, _Ring(used[memory], prod(sizes), slots))
            used[memory] += prod(sizes) * slots
            if used[memory] > self.config.depth(memory):
                raise InternalError(f"{used[memory]} entries in {memory.name}, which has {self.config.depth(memory)}")
        return copies

    # -- the nest --------------------------------------------------------------------------------------------------

    def run(self) -> tuple[list[Instruction], Uops]:
        for index in product(*(range(loop.extent) for loop in self.nest.loops)):
            bases = {}
            inner = index[self.sums :]
            for name, copy in self.copies.items():
                bases[name] = self._base(copy, index)
            acc = bases[self.problem.copy("acc")[0]]
            if not any(inner):
                self._clear(acc)
            self._multiply(bases, index)
            if all(at == loop.extent - 1 for at, loop in zip(inner, self.nest.loops[self.sums :], strict=True)):
                self._finish(acc, bases, index[: self.sums])
                self._store(acc, index[: self.sums])
        return self.builder.finish()

    def _base(self, copy: _Copy, index: tuple[int, ...]) -> int:
        """The first entry of the block that is needed; it is loaded if it is not there."""
        outside = self.nest.loops[: copy.place.depth]
        key = tuple(at for at, loop in zip(index, outside, strict=False) if loop.axis in copy.entries.axes)
        base, missing = copy.ring.find(key)
        if missing and copy is not self.acc:
            first, steps = self.nest.first(index[: copy.place.depth]), self.nest.steps(copy.place.depth)
            memory = copy.entries.memory
            dram = copy.region.address // self.config.element_bytes(memory)
            for rows in transfers([dim.span(first, steps) for dim in copy.entries.dims], copy.region.held):
                load = Load(
                    memory_type=memory, sram_base=base + rows.sram, dram_base=dram + rows.dram, y_size=rows.rows,
                    x_size=rows.row, x_stride=rows.stride, y_pad_0=rows.pads[0], y_pad_1=rows.pads[1],
                    x_pad_0=rows.pads[2], x_pad_1=rows.pads[3],
                )  # fmt: skip
                end = load.sram_base + load.rows * load.row
                self.builder.add(load, Access(memory, load.sram_base, end, True))
        return base

    def _clear(self, acc: int) -> None:
        gemm = Gemm(reset=1, iter_out=1, iter_in=self.acc.size, dst_factor_in=1)
        self.builder.add(gemm, self.acc.access(acc, True), kernel=(MicroOp(acc, acc),))

    def _multiply(self, bases: Mapping[str, int], index: tuple[int, ...]) -> None:
        """The products of a tile."""
        (inp_name, _), (wgt_name, _), (acc_name, _) = (self.problem.copy(kind) for kind in ("inp", "wgt", "acc"))
        names = (acc_name, inp_name, wgt_name)
        acc, inp, wgt = (self.copies[name] for name in names)
        starts = [self._within(self.copies[name], index) + bases[name] for name in names]
        loops = self._loops
        accesses = (
            acc.access(bases[acc_name], True), inp.access(bases[inp_name], False), wgt.access(bases[wgt_name], False),
        )  # fmt: skip
        for nest, offsets in nests_of(loops, self.config.portable_uops):
            gemm = Gemm(
                iter_out=nest.outer.extent, iter_in=nest.inner.extent,
                dst_factor_out=nest.outer.dst, dst_factor_in=nest.inner.dst,
                src_factor_out=nest.outer.src, src_factor_in=nest.inner.src,
                wgt_factor_out=nest.outer.wgt, wgt_factor_in=nest.inner.wgt,
            )  # fmt: skip
            kernel = nest.micro_ops(*(start + offset for start, offset in zip(starts, offsets, strict=True)))
            self.builder.add(gemm, *accesses, kernel=kernel)

    @cached_property
    def _loops(self) -> tuple[Loop, ...]:
        """The loops of a tile, those of the sum first."""
        kinds = {axis.name: axis.kind for axis in self.problem.block.axes}
        moves = [self.copies[self.problem.copy(kind)[0]].moves for kind in ("acc", "inp", "wgt")]
        axes = sorted(self.nest.tile, key=lambda axis: kinds[axis] != "reduce")
        return tuple(
            Loop(self.nest.tile[axis], *(one.get(axis, 0) for one in moves))
            for axis in axes
            if self.nest.tile[axis] > 1
        )

    def _within(self, copy: _Copy, index: tuple[int, ...]) -> int:
        """Where the tile at an index begins within a block."""
        whole, block = self.nest.first(index), self.nest.first(index[: copy.place.depth])
        return sum(move * (whole[axis] - block[axis]) for axis, move in copy.moves.items())

    # -- after the sum ---------------------------------------------------------------------------------------------

    def _finish(self, acc: int, bases: Mapping[str, int], index: tuple[int, ...]) -> None:
        summands = {entries.tensor: name for name, entries in self.problem.summands.items()}
        for done in self.problem.chain:
            if done.operation == "add":
                name = summands[done.tensor]
                self._add(acc, name, bases[name], self._within(self.copies[name], index))
            elif done.operation == "shift":
                for part in _shifts(done.number):
                    self._immediate(acc, AluOp.SHR, part)
            else:
                self._immediate(acc, _OPERATIONS[done.operation], done.number)

    def _immediate(self, acc: int, operation: AluOp, number: int) -> None:
        alu = Alu(
            alu_opcode=operation, use_imm=1, imm=number, iter_out=1, iter_in=self.acc.size, dst_factor_in=1,
            src_factor_in=1,
        )  # fmt: skip
        self.builder.add(alu, self.acc.access(acc, True), kernel=(MicroOp(acc, acc),))

    def _add(self, acc: int, name: str, base: int, within: int) -> None:
        """Adds to a block of sums what begins within a block of a summand."""
        copy = self.copies[name]
        loops = [
            Loop(size, prod(self.acc.sizes[at + 1 :]), sum(copy.moves.get(axis, 0) for axis, _ in dim.terms))
            for at, (size, dim) in enumerate(zip(self.acc.sizes, self.acc.entries.dims, strict=True))
        ]
        nest = sweep_of(loops)
        alu = Alu(
            alu_opcode=AluOp.ADD, iter_out=nest.outer.extent, iter_in=nest.inner.extent,
            dst_factor_out=nest.outer.dst, dst_factor_in=nest.inner.dst,
            src_factor_out=nest.outer.src, src_factor_in=nest.inner.src,
        )  # fmt: skip
        kernel = nest.micro_ops(acc, base + within, 0)
        self.builder.add(alu, self.acc.access(acc, True), copy.access(base, False), kernel=kernel)

    def _store(self, acc: int, index: tuple[int, ...]) -> None:
        first, steps = self.nest.first(index), self.nest.steps(self.sums)
        dram = self.acc.region.address // self.config.element_bytes(Memory.OUT)
        for rows in transfers([dim.span(first, steps) for dim in self.acc.entries.dims], self.acc.region.held):
            begin = acc + rows.sram
            store = Store(
                sram_base=begin, dram_base=dram + rows.dram, y_size=rows.rows, x_size=rows.row, x_stride=rows.stride
            )
            self.builder.add(store, Access(Memory.ACC, begin, begin + rows.rows * rows.row, False))


def _shifts(shift: int) -> Sequence[int]:
    """A shift as steps that every model does alike."""
    if shift <= _MOST_SHIFT:
        return [shift] if shift else []
    return [_MOST_SHIFT, *_shifts(shift - _MOST_SHIFT)]


def lower(problem: Problem, nest: Nest) -> Lowered:
    """Makes the program of a loop nest.

    Raises:
        HeronError: a transfer has no room in its fields.
        InternalError: blocks find no room in their memories, which the constraints should have seen to.
    """
    lowering = _Lowering(problem, nest)
    instructions, uops = lowering.run()
    stream = lowering.uop_address + -(-len(uops) * UOP_BYTES // _PAGE) * _PAGE
    size = stream + -(-len(instructions) * INSTRUCTION_BYTES // _PAGE) * _PAGE
    return Lowered(problem, instructions, uops, lowering.regions, lowering.uop_address, stream, size)
