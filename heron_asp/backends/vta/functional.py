"""What a program does to memory, and the counters of VTA's own simulator.

Instructions are executed one after another in an order that respects the tokens; a program that is right gives the same
result in every such order (`checker` finds those that are not). The micro-op loops of an instruction are one NumPy
expression. Semantics are those of VTA's functional simulator, including where hardware differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.isa import (
    Alu,
    AluOp,
    Compute,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
    carries_only_tokens,
    opcode_of,
)
from heron_asp.backends.vta.tokens import order_of
from heron_asp.backends.vta.uops import Indices, Steps, reads_source, steps_of
from heron_asp.errors import HeronError

Bytes = NDArray[np.uint8]
_MOST_STEPS = 1 << 16  # of one NumPy expression, to bound its memory
_INTEGERS = {8: np.int8, 16: np.int16, 32: np.int32}


@dataclass
class Counters:
    """What VTA's simulator counts: bytes moved without padding, and micro-op steps (GEMM without those of a reset)."""

    inp_load_nbytes: int = 0
    wgt_load_nbytes: int = 0
    acc_load_nbytes: int = 0
    uop_load_nbytes: int = 0
    out_store_nbytes: int = 0
    gemm_counter: int = 0
    alu_counter: int = 0

    def to_json(self) -> dict[str, int]:
        """A JSON object with VTA's names."""
        return asdict(self)


class Device:
    """The scratchpads of a device and a DRAM image.

    Args:
        config: the device.
        memory: the DRAM image, changed in place; byte i has physical address i.
    """

    def __init__(self, config: Configuration, memory: Bytes) -> None:
        self.config = config
        self.memory = memory
        self.counters = Counters()
        self.acc_type = np.dtype(_INTEGERS[config.acc_bits])
        self.types = {
            Memory.UOP: np.dtype(np.uint32),
            Memory.INP: np.dtype(_INTEGERS[1 << config.log_inp_width]),
            Memory.WGT: np.dtype(_INTEGERS[1 << config.log_wgt_width]),
            Memory.ACC: self.acc_type,
            Memory.OUT: np.dtype(_INTEGERS[config.out_bits]),
        }
        shapes = {
            Memory.UOP: (),
            Memory.INP: (config.batch, config.block),
            Memory.WGT: (config.block, config.block),
            Memory.ACC: (config.batch, config.block),
        }
        exact = _exact_type(config)
        self.pads: dict[Memory, NDArray[Any]] = {
            memory_type: np.zeros(
                (config.depth(memory_type), *shape),
                exact if memory_type in (Memory.INP, Memory.WGT) else self.types[memory_type],
            )
            for memory_type, shape in shapes.items()
        }

    def execute(self, instruction: Instruction) -> None:
        """Executes one instruction; tokens are not looked at.

        Raises:
            HeronError: if it reaches beyond a scratchpad or the image, or is of a kind that is not simulated.
        """
        if carries_only_tokens(instruction):
            return
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm() | Alu():
                self._compute(instruction)

    def _rows(self, transfer: Load | Store, item: np.dtype[np.generic]) -> NDArray[np.generic]:
        """The DRAM side of a transfer: a view of (y_size, items of a row)."""
        size = self.config.element_bytes(transfer.memory_type)
        base, stride = transfer.dram_base * size, transfer.x_stride * size
        end = base + (transfer.y_size - 1) * stride + transfer.x_size * size
        if transfer.y_size < 1 or end > len(self.memory):
            raise HeronError(
                f"{opcode_of(transfer).name}: dram_base {transfer.dram_base}, y_size {transfer.y_size}, "
                f"x_size {transfer.x_size}, x_stride {transfer.x_stride} reach bytes {base} to {end}; "
                f"the image has {len(self.memory)}"
            )
        return np.lib.stride_tricks.as_strided(
            self.memory[base : base + 1], (transfer.y_size, transfer.x_size * size), (stride, 1)
        )

    def _entries(self, transfer: Load | Store) -> slice:
        begin, end = transfer.sram_base, transfer.sram_base + transfer.rows * transfer.row
        if end > self.config.depth(transfer.memory_type):
            raise HeronError(
                f"{opcode_of(transfer).name} {transfer.memory_type.name}: entries {begin} to {end - 1} from sram_base "
                f"{begin}; the scratchpad has {self.config.depth(transfer.memory_type)}"
            )
        return slice(begin, end)

    def _load(self, load: Load) -> None:
        if load.memory_type not in self.pads:
            raise HeronError(
                f"LOAD {load.memory_type.name}: memory_type is loaded by no hardware",
                "Load UOP, INP, WGT or ACC.",
            )
        pad, item = self.pads[load.memory_type], self.types[load.memory_type]
        entry = pad.shape[1:]
        rows = np.ascontiguousarray(self._rows(load, item)).view(item.newbyteorder("<"))
        block = np.zeros((load.rows, load.row, *entry), pad.dtype)
        block[load.y_pad_0 : load.y_pad_0 + load.y_size, load.x_pad_0 : load.x_pad_0 + load.x_size] = rows.reshape(
            load.y_size, load.x_size, *entry
        )
        pad[self._entries(load)] = block.reshape(-1, *entry)
        name = f"{load.memory_type.name.lower()}_load_nbytes"
        setattr(self.counters, name, getattr(self.counters, name) + rows.nbytes)

    def _store(self, store: Store) -> None:
        if store.memory_type != Memory.OUT:
            raise HeronError(f"STORE {store.memory_type.name}: memory_type is not OUT", "Only OUT can be stored.")
        if store.padded:
            raise HeronError("STORE: a padding is not 0", "Padding exists for LOAD only.")
        item = self.types[Memory.OUT]
        rows = self._rows(store, item)
        block = self.pads[Memory.ACC][self._entries(store)].astype(item.newbyteorder("<"))
        for row, values in zip(
            rows, block.reshape(store.y_size, -1), strict=True
        ):  # rows may overlap: the later one stays
            row[:] = values.view(np.uint8)
        self.counters.out_store_nbytes += rows.size

    def _compute(self, instruction: Gemm | Alu) -> None:
        if isinstance(instruction, Alu):
            self.counters.alu_counter += instruction.steps
        elif not instruction.reset:
            self.counters.gemm_counter += instruction.steps
        if not instruction.steps:
            return
        if instruction.uop_end > self.config.depth(Memory.UOP):
            raise HeronError(
                f"{opcode_of(instruction).name}: uop_end is {instruction.uop_end}; "
                f"the micro-op memory has {self.config.depth(Memory.UOP)} entries"
            )
        uops = self.pads[Memory.UOP][instruction.uop_bgn : instruction.uop_end].astype(np.uint32)
        steps = steps_of(instruction, uops, self.config)
        self._bound(instruction, "dst", steps.dst, Memory.ACC)
        if isinstance(instruction, Alu):
            if reads_source(instruction):
                self._bound(instruction, "src", steps.src, Memory.ACC)
            self._alu(instruction, steps)
        elif instruction.reset:
            self.pads[Memory.ACC][steps.dst] = 0
        else:
            self._bound(instruction, "src", steps.src, Memory.INP)
            self._bound(instruction, "wgt", steps.wgt, Memory.WGT)
            self._gemm(instruction, steps)

    def _bound(self, instruction: Compute, name: str, indices: Indices, memory: Memory) -> None:
        if (most := int(indices.max())) >= self.config.depth(memory):
            raise HeronError(
                f"{opcode_of(instruction).name}: {name}_idx and {name}_factor reach entry {most}; "
                f"{memory.name} has {self.config.depth(memory)}"
            )

    def _gemm(self, gemm: Gemm, steps: Steps) -> None:
        """Steps that share a weight become the rows of one product: the loops along which the weight index stays."""
        batched = (gemm.wgt_factor_out != 0, gemm.wgt_factor_in != 0)
        chunk = max(1, _MOST_STEPS // (steps.dst.shape[1] * steps.dst.shape[2]))
        for begin in range(0, gemm.iter_out, chunk):
            dst, src, wgt = (a[begin : begin + chunk] for a in (steps.dst, steps.src, steps.wgt))
            axes = [axis for axis in (0, 1) if batched[axis]] + [2] + [axis for axis in (0, 1) if not batched[axis]]
            kept = sum(batched) + 1
            dst, src, wgt = (a.transpose(axes) for a in (dst, src, wgt))
            shape = dst.shape
            weights = self.pads[Memory.WGT][wgt.reshape(*shape[:kept], -1)[..., 0].ravel()]
            groups = len(weights)
            inputs = self.pads[Memory.INP][src.reshape(groups, -1)]
            products = np.matmul(inputs.reshape(groups, -1, self.config.block), weights.transpose(0, 2, 1))
            self._accumulate(dst.reshape(-1), products.reshape(dst.size, self.config.batch, self.config.block))

    def _accumulate(self, dst: Indices, products: NDArray[np.generic]) -> None:
        """acc[dst] += products, where an entry may occur many times; sums wrap as those of the hardware do."""
        acc, terms = self.pads[Memory.ACC], products.astype(np.int64).astype(self.acc_type)
        if self._distinct(dst):
            acc[dst] += terms
            return
        order = np.argsort(dst, kind="stable")
        ordered = dst[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        acc[ordered[starts]] += np.add.reduceat(terms[order], starts, axis=0, dtype=self.acc_type)

    def _alu(self, alu: Alu, steps: Steps) -> None:
        acc, dst, src = self.pads[Memory.ACC], steps.dst.ravel(), steps.src.ravel()
        used = dst if alu.use_imm else src
        for begin, end in [(0, len(dst))] if self._distinct(dst, used) else _independent(dst, used):
            here = dst[begin:end]
            second = np.int64(alu.imm) if alu.use_imm else acc[src[begin:end]].astype(np.int64)
            acc[here] = _apply(alu.alu_opcode, acc[here].astype(np.int64), second).astype(self.acc_type)

    def _distinct(self, dst: Indices, used: Indices | None = None) -> bool:
        """Whether no step writes or uses what an earlier one wrote."""
        steps = np.arange(len(dst))
        stamps = np.full(self.config.depth(Memory.ACC), len(dst))
        stamps[dst] = steps
        if not (stamps[dst] == steps).all():
            return False
        return used is None or used is dst or bool((stamps[used] >= steps).all())


def _exact_type(config: Configuration) -> type[np.generic]:
    """The type whose matrix products are exact for inputs and weights; floats are much faster than integers."""
    bits = (1 << config.log_inp_width) + (1 << config.log_wgt_width) - 2 + config.log_block
    if bits <= 24:
        return np.float32
    return np.float64 if bits <= 53 else np.int64


def _independent(dst: Indices, used: Indices) -> list[tuple[int, int]]:
    """Cuts steps into runs, none of which uses or writes again what it wrote."""
    count = len(dst)
    last = _last_write(dst, dst) if dst is used else np.maximum(_last_write(dst, dst), _last_write(dst, used))
    cuts, begin = [], 0
    writes = last.tolist()
    for step, write in enumerate(writes):
        if write >= begin:
            cuts.append((begin, step))
            begin = step
    return [*cuts, (begin, count)]


def _last_write(dst: Indices, used: Indices) -> Indices:
    """For each step the latest earlier step that wrote the entry it uses, -1 if none did."""
    count = len(dst)
    keys = np.sort(dst * count + np.arange(count))
    found = np.searchsorted(keys, used * count + np.arange(count)) - 1
    hit = keys[np.maximum(found, 0)]
    return np.where((found >= 0) & (hit // count == used), hit % count, -1)


def _apply(operation: AluOp, first: NDArray[np.int64], second: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
    match operation:
        case AluOp.MIN:
            return np.minimum(first, second)
        case AluOp.MAX:
            return np.maximum(first, second)
        case AluOp.ADD:
            return first + second
        case AluOp.MUL:
            return first * second
        case AluOp.SHR:
            right, left = np.clip(second, 0, 31), np.clip(np.negative(second), 0, 31)
            return np.where(np.asarray(second) >= 0, first >> right, first << left)


def simulate(
    instructions: Sequence[Instruction], memory: Bytes, config: Configuration, order: Sequence[int] | None = None
) -> Counters:
    """Runs a program on a DRAM image.

    Args:
        instructions: the program.
        memory: the DRAM image, changed in place; byte i has physical address i.
        config: the device. Scratchpads start as zeros; no program should read what it did not write.
        order: in which they run, if that is known: `Waits.order`.

    Raises:
        HeronError: if a stage waits for ever, or an instruction reaches beyond a scratchpad or the image.
    """
    device = Device(config, memory)
    for number in order if order is not None else order_of(instructions):
        try:
            device.execute(instructions[number])
        except HeronError as error:
            raise HeronError(f"instruction {number}: {error.message}", error.hint) from error
    return device.counters
