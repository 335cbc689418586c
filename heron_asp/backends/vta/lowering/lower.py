"""The loop nest of a schedule, walked tile by tile: loads where a block is missing, products, requantising, stores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from heron_asp.backends.vta.config import UOP_BYTES
from heron_asp.backends.vta.encode import Uops
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.isa import Alu, AluOp, Gemm, Instruction, Load, Memory, MicroOp, Store
from heron_asp.backends.vta.lowering.builder import Access, Builder
from heron_asp.backends.vta.lowering.kernels import Loop, nests_of
from heron_asp.backends.vta.lowering.problem import Array, Problem
from heron_asp.backends.vta.lowering.schedule import Schedule
from heron_asp.errors import HeronError

_PAGE = 4096
_MOST = 65535  # of a 16-bit field
_MOST_SHIFT = 15

Span = tuple[int, int]  # from, up to


@dataclass(frozen=True)
class Lowered:
    """A program and where its data lie.

    Attributes:
        problem: the operator.
        instructions: the program.
        uops: words of its micro-ops.
        addresses: first bytes of input, weights, bias, uops, output and instructions in the DRAM image.
        size: bytes of the image.
    """

    problem: Problem
    instructions: list[Instruction]
    uops: Uops
    addresses: dict[str, int]
    size: int

    def image(self, data: Array, weights: Array, bias: Array | None = None) -> Bytes:
        """The DRAM image before the run; arrays as the problem's pack functions take them."""
        memory = np.zeros(self.size, np.uint8)
        parts = {
            "input": self.problem.pack_input(data),
            "weights": self.problem.pack_weights(weights),
            "uops": self.uops,
        }
        if bias is not None:
            parts["bias"] = self.problem.pack_bias(bias)
        for name, part in parts.items():
            raw = np.frombuffer(part.tobytes(), np.uint8)
            memory[self.addresses[name] : self.addresses[name] + len(raw)] = raw
        return memory

    def output(self, memory: Bytes) -> Array:
        """The result out of the DRAM image after the run."""
        begin = self.addresses["output"]
        kind = np.dtype(f"<i{self.problem.config.out_bits // 8}")
        return self.problem.unpack_output(memory[begin : begin + self.problem.output_bytes].view(kind))


class _Ring:
    """Blocks of a memory that are held at once; the one loaded first makes room."""

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


class _Lowering:
    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule, self.config = problem, schedule, problem.config
        self.counts = {a: -(-problem.extents[a] // schedule.tile(a, problem)) for a in schedule.order}
        self.addresses, self.size = self._lay_out()
        self.builder = Builder(self.config, self.addresses["uops"])
        bias = problem.extents["o"] if problem.requantise.bias else 0
        self.rings = {
            memory: self._ring(memory, bias if memory is Memory.ACC else 0)
            for memory in (Memory.INP, Memory.WGT, Memory.ACC)
        }

    def _lay_out(self) -> tuple[dict[str, int], int]:
        extents, config = self.problem.extents, self.config
        pixels = self.problem.in_height * self.problem.in_width
        sizes = {
            "input": extents["i"] * pixels * config.element_bytes(Memory.INP),
            "weights": extents["o"] * extents["i"] * self.problem.taps * config.element_bytes(Memory.WGT),
            "bias": extents["o"] * config.element_bytes(Memory.ACC),
            "output": self.problem.output_bytes,
            "uops": 0,  # last, since their number is not known yet
        }
        addresses, position = {}, _PAGE
        for name, size in sizes.items():
            addresses[name] = position
            position += -(-size // _PAGE) * _PAGE
        return addresses, position

    # --- blocks ---

    def span(self, axis: str, index: int) -> Span:
        tile = self.schedule.tile(axis, self.problem)
        return index * tile, min((index + 1) * tile, self.problem.extents[axis])

    def block(self, memory: Memory, axis: str, at: dict[str, int]) -> Span:
        """What a block covers of an axis: a tile, or all of it if the axis's loop stands inside."""
        if axis in self.schedule.fixed(memory):
            return self.span(axis, at[axis])
        return 0, self.problem.extents[axis]

    def _ring(self, memory: Memory, base: int) -> _Ring:
        first = dict.fromkeys(self.schedule.order, 0)  # no other block is larger
        size, slots = self._block_size(memory, first), self.schedule.slots(memory)
        slots = min(slots, int(np.prod([self.counts[axis] for axis in self.schedule.fixed(memory)])))
        if base + size * slots > self.config.depth(memory):
            kept = f" beside {base} for the bias" if base else ""
            raise HeronError(
                f"the schedule holds {slots} blocks of {size} entries in {memory.name}{kept}; "
                f"it has {self.config.depth(memory)}",
                "Make tiles smaller, load further inside, or hold fewer blocks.",
            )
        return _Ring(base, size, slots)

    def _block_size(self, memory: Memory, at: dict[str, int]) -> int:
        """Entries of a block."""
        if memory is Memory.ACC:
            tile = [self.schedule.tile(axis, self.problem) for axis in ("o", "h", "w")]
            inside = [self.counts[axis] for axis in ("o", "h", "w") if axis not in self.schedule.fixed(memory)]
            return int(np.prod(tile + inside))
        channels = self.block(memory, "i", at)
        if memory is Memory.WGT:
            outputs = self.block(memory, "o", at)
            return (outputs[1] - outputs[0]) * (channels[1] - channels[0]) * self.problem.taps
        rows, columns = self.inputs("h", at), self.inputs("w", at)
        return (channels[1] - channels[0]) * (rows[1] - rows[0]) * (columns[1] - columns[0])

    def inputs(self, axis: str, at: dict[str, int]) -> Span:
        """Rows (h) or columns (w) of the input that a block needs, counted from the first one that is not padding."""
        begin, end = self.block(Memory.INP, axis, at)
        problem = self.problem
        taps = problem.kernel[0 if axis == "h" else 1]
        return begin * problem.stride - problem.pad, (end - 1) * problem.stride - problem.pad + taps

    # --- instructions ---

    def run(self) -> tuple[list[Instruction], Uops]:
        if self.problem.requantise.bias:
            count = self.problem.extents["o"]
            dram = self.addresses["bias"] // self.config.element_bytes(Memory.ACC)
            load = Load(memory_type=Memory.ACC, dram_base=dram, y_size=1, x_size=count, x_stride=count)
            self.builder.add(load, Access(Memory.ACC, 0, count, True))
        for index in product(*(range(self.counts[axis]) for axis in self.schedule.order)):
            self._tile(dict(zip(self.schedule.order, index, strict=True)))
        return self.builder.finish()

    def _tile(self, at: dict[str, int]) -> None:
        bases = {}
        for memory, fill in ((Memory.INP, self._load_inputs), (Memory.WGT, self._load_weights)):
            bases[memory], missing = self.rings[memory].find(tuple(at[axis] for axis in self.schedule.fixed(memory)))
            if missing:
                fill(bases[memory], at)
        acc, size = self._accumulators(at)
        if at["i"] == 0:
            self._reset(acc, size, at)
        self._multiply(acc, bases[Memory.INP], bases[Memory.WGT], at)
        if at["i"] == self.counts["i"] - 1:
            self._requantise(acc, size)
            self._store(acc, at)

    def _accumulators(self, at: dict[str, int]) -> tuple[int, int]:
        """First entry and number of entries of a tile's accumulators."""
        fixed = self.schedule.fixed(Memory.ACC)
        base, _ = self.rings[Memory.ACC].find(tuple(at[axis] for axis in fixed))
        number = 0
        for axis in ("o", "h", "w"):
            if axis not in fixed:
                number = number * self.counts[axis] + at[axis]
        tile = int(np.prod([self.schedule.tile(axis, self.problem) for axis in ("o", "h", "w")]))
        spans = [self.span(axis, at[axis]) for axis in ("o", "h", "w")]
        return base + number * tile, int(np.prod([end - begin for begin, end in spans]))

    def _load_inputs(self, base: int, at: dict[str, int]) -> None:
        problem = self.problem
        first, end = self.block(Memory.INP, "i", at)
        dram = self.addresses["input"] // self.config.element_bytes(Memory.INP)
        if problem.channels_last:
            rows = self.block(Memory.INP, "h", at)
            row = problem.extents["i"]
            self._load(Memory.INP, base, dram + rows[0] * row + first, rows[1] - rows[0], end - first, row)
            return
        rows, columns = self.inputs("h", at), self.inputs("w", at)
        top, bottom = max(0, -rows[0]), max(0, rows[1] - problem.in_height)
        left, right = max(0, -columns[0]), max(0, columns[1] - problem.in_width)
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        area = problem.in_height * problem.in_width
        start = dram + first * area + (rows[0] + top) * problem.in_width + columns[0] + left
        whole = not (top or bottom or left or right) and width == problem.in_width
        if whole and max(area, height * width) <= _MOST:
            self._load(Memory.INP, base, start, end - first, height * width, area)
            return
        for block in range(end - first):
            self._load(
                Memory.INP, base + block * height * width, start + block * area,
                height - top - bottom, width - left - right, problem.in_width, (top, bottom, left, right),
            )  # fmt: skip

    def _load_weights(self, base: int, at: dict[str, int]) -> None:
        taps = self.problem.taps
        outputs, inputs = self.block(Memory.WGT, "o", at), self.block(Memory.WGT, "i", at)
        stride = self.problem.extents["i"] * taps
        dram = self.addresses["weights"] // self.config.element_bytes(Memory.WGT)
        start = dram + outputs[0] * stride + inputs[0] * taps
        self._load(Memory.WGT, base, start, outputs[1] - outputs[0], (inputs[1] - inputs[0]) * taps, stride)

    def _load(
        self,
        memory: Memory,
        sram: int,
        dram: int,
        rows: int,
        row: int,
        stride: int,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """One load, or one a row where the stride has no place in its field."""
        if rows > 1 and stride > _MOST:
            for number in range(rows):
                self._load(memory, sram + number * row, dram + number * stride, 1, row, row)
            return
        load = Load(
            memory_type=memory, sram_base=sram, dram_base=dram, y_size=rows, x_size=row,
            x_stride=stride if rows > 1 else row, y_pad_0=pads[0], y_pad_1=pads[1], x_pad_0=pads[2], x_pad_1=pads[3],
        )  # fmt: skip
        self.builder.add(load, Access(memory, sram, sram + load.rows * load.row, True))

    def _reset(self, acc: int, size: int, at: dict[str, int]) -> None:
        """Zero, plus the bias."""
        whole = Access(Memory.ACC, acc, acc + size, True)
        kernel = (MicroOp(acc, acc),)
        self.builder.add(Gemm(reset=1, iter_out=1, iter_in=size, dst_factor_in=1), whole, kernel=kernel)
        if not self.problem.requantise.bias:
            return
        begin, end = self.span("o", at["o"])
        blocks, pixels = end - begin, size // (end - begin)
        block, pixel = (1, blocks) if self.problem.channels_last else (pixels, 1)
        add = Alu(
            alu_opcode=AluOp.ADD,
            iter_out=blocks,
            iter_in=pixels,
            dst_factor_out=block,
            dst_factor_in=pixel,
            src_factor_out=1,
        )
        self.builder.add(add, whole, kernel=(MicroOp(acc, begin),))

    def _multiply(self, acc: int, inp: int, wgt: int, at: dict[str, int]) -> None:
        loops, (src, weight) = self._loops(at)
        spans = {axis: self.span(axis, at[axis]) for axis in ("o", "h", "w", "i")}
        size = int(np.prod([end - begin for axis, (begin, end) in spans.items() if axis != "i"]))
        accesses = (
            Access(Memory.ACC, acc, acc + size, True),
            Access(Memory.INP, inp, inp + self._block_size(Memory.INP, at), False),
            Access(Memory.WGT, wgt, wgt + self._block_size(Memory.WGT, at), False),
        )
        for nest, (_, more_src, more_wgt) in nests_of(loops):
            gemm = Gemm(
                iter_out=nest.outer.extent, iter_in=nest.inner.extent,
                dst_factor_out=nest.outer.dst, dst_factor_in=nest.inner.dst,
                src_factor_out=nest.outer.src, src_factor_in=nest.inner.src,
                wgt_factor_out=nest.outer.wgt, wgt_factor_in=nest.inner.wgt,
            )  # fmt: skip
            kernel = nest.micro_ops(acc, inp + src + more_src, wgt + weight + more_wgt)
            self.builder.add(gemm, *accesses, kernel=kernel)

    def _loops(self, at: dict[str, int]) -> tuple[list[Loop], tuple[int, int]]:
        """The loops of a tile, and where it begins inside the input and the weight block."""
        problem = self.problem
        spans = {axis: self.span(axis, at[axis]) for axis in ("o", "h", "w", "i")}
        extent = {axis: end - begin for axis, (begin, end) in spans.items()}
        inputs = self.block(Memory.INP, "i", at)
        rows, columns = self.inputs("h", at), self.inputs("w", at)
        width = columns[1] - columns[0]
        if problem.channels_last:
            row = column = inputs[1] - inputs[0]
            channel, out, pixel_row, pixel = 1, 1, extent["o"], extent["o"]
        else:
            row, column, channel = width, 1, (rows[1] - rows[0]) * width
            out, pixel_row, pixel = extent["h"] * extent["w"], extent["w"], 1
        weights = self.block(Memory.WGT, "i", at)
        outputs = self.block(Memory.WGT, "o", at)
        weight_row = (weights[1] - weights[0]) * problem.taps
        first_row = spans["h"][0] * problem.stride - problem.pad - rows[0]
        first_column = spans["w"][0] * problem.stride - problem.pad - columns[0]
        src = (spans["i"][0] - inputs[0]) * channel + first_row * row + first_column * column
        wgt = (spans["o"][0] - outputs[0]) * weight_row + (spans["i"][0] - weights[0]) * problem.taps
        loops = [
            Loop(extent["i"], 0, channel, problem.taps),
            Loop(problem.kernel[0], 0, row, problem.kernel[1]),
            Loop(problem.kernel[1], 0, column, 1),
            Loop(extent["o"], out, 0, weight_row),
            Loop(extent["h"], pixel_row, problem.stride * row, 0),
            Loop(extent["w"], pixel, problem.stride * column, 0),
        ]
        return loops, (src, wgt)

    def _requantise(self, acc: int, size: int) -> None:
        quantise = self.problem.requantise
        steps = [(AluOp.SHR, part) for part in _shifts(quantise.shift)]
        steps += [(AluOp.MAX, quantise.low), (AluOp.MIN, quantise.high)]
        whole = Access(Memory.ACC, acc, acc + size, True)
        for operation, immediate in steps:
            alu = Alu(
                alu_opcode=operation,
                use_imm=1,
                imm=immediate,
                iter_out=1,
                iter_in=size,
                dst_factor_in=1,
                src_factor_in=1,
            )
            self.builder.add(alu, whole, kernel=(MicroOp(acc, acc),))

    def _store(self, acc: int, at: dict[str, int]) -> None:
        problem = self.problem
        spans = {axis: self.span(axis, at[axis]) for axis in ("o", "h", "w")}
        o, h, w = (spans[axis][1] - spans[axis][0] for axis in ("o", "h", "w"))
        dram = self.addresses["output"] // self.config.element_bytes(Memory.OUT)
        if problem.channels_last:
            row = problem.extents["o"]
            self._store_rows(acc, dram + spans["h"][0] * row + spans["o"][0], h, o, row)
            return
        area = problem.height * problem.width
        start = dram + spans["o"][0] * area + spans["h"][0] * problem.width + spans["w"][0]
        if w == problem.width and area <= _MOST:
            self._store_rows(acc, start, o, h * w, area)
            return
        for block in range(o):
            self._store_rows(acc + block * h * w, start + block * area, h, w, problem.width)

    def _store_rows(self, acc: int, dram: int, rows: int, row: int, stride: int) -> None:
        if rows > 1 and stride > _MOST:
            for number in range(rows):
                self._store_rows(acc + number * row, dram + number * stride, 1, row, row)
            return
        store = Store(sram_base=acc, dram_base=dram, y_size=rows, x_size=row, x_stride=stride if rows > 1 else row)
        self.builder.add(store, Access(Memory.ACC, acc, acc + rows * row, False))


def _shifts(shift: int) -> list[int]:
    """A shift as steps that every model does alike."""
    if shift <= _MOST_SHIFT:
        return [shift] if shift else []
    return [_MOST_SHIFT, *_shifts(shift - _MOST_SHIFT)]


def lower(problem: Problem, schedule: Schedule) -> Lowered:
    """Makes the program of a schedule.

    Raises:
        HeronError: if blocks or micro-ops find no room in their memories.
    """
    lowering = _Lowering(problem, schedule)
    instructions, uops = lowering.run()
    addresses, position = dict(lowering.addresses), lowering.size
    position += -(-len(uops) * UOP_BYTES // _PAGE) * _PAGE
    addresses["instructions"] = position
    position += -(-len(instructions) * 16 // _PAGE) * _PAGE
    return Lowered(problem, instructions, uops, addresses, position)
