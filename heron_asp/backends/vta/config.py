"""The numbers of a VTA device, and what follows from them: element sizes, depths, the bits of every field."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heron_asp.backends.vta.isa import Memory
from heron_asp.errors import HeronError

INSTRUCTION_BYTES = 16
UOP_BYTES = 4
_UOP_BITS = 32
_ITER_BITS = 14
_PORTABLE_UOPS = 2048  # entries of the RTL's micro-op memory, a quarter of the functional simulator's

Bits = tuple[str, int]  # name and bits, least significant first
_HEAD: tuple[Bits, ...] = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_TRANSFER: tuple[Bits, ...] = (
    ("memory_type", 3),
    ("sram_base", 16),
    ("dram_base", 32),
    ("y_size", 16),
    ("x_size", 16),
    ("x_stride", 16),
    ("y_pad_0", 4),
    ("y_pad_1", 4),
    ("x_pad_0", 4),
    ("x_pad_1", 4),
)


class Configuration(BaseModel):
    """One device. Defaults are those of all sample configurations of VTA (Pynq, DE10, Ultra-96, the simulators).

    Raises:
        HeronError: from `from_numbers`, if numbers contradict each other or a field finds no room in its word.

    Attributes:
        log_inp_width: log2 of the bits of an input; an output has as many.
        log_wgt_width: log2 of the bits of a weight.
        log_acc_width: log2 of the bits of an accumulator.
        log_batch: log2 of the rows of an input entry.
        log_block: log2 of the columns of an input entry, and of both sides of a weight entry.
        log_uop_buff_size: log2 of the bytes of the micro-op memory.
        log_inp_buff_size: log2 of the bytes of the input memory.
        log_wgt_buff_size: log2 of the bytes of the weight memory.
        log_acc_buff_size: log2 of the bytes of the accumulator memory.
        bus_bits: width of the memory bus; only 64 was compared with hardware.
        burst_beats: beats of a request at most; only 256 was compared with hardware.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    log_inp_width: int = Field(default=3, ge=3, le=5, strict=True)
    log_wgt_width: int = Field(default=3, ge=3, le=5, strict=True)
    log_acc_width: int = Field(default=5, ge=3, le=5, strict=True)
    log_batch: int = Field(default=0, ge=0, le=8, strict=True)
    log_block: int = Field(default=4, ge=0, le=8, strict=True)
    log_uop_buff_size: int = Field(default=15, ge=2, le=30, strict=True)
    log_inp_buff_size: int = Field(default=15, ge=0, le=30, strict=True)
    log_wgt_buff_size: int = Field(default=18, ge=0, le=30, strict=True)
    log_acc_buff_size: int = Field(default=17, ge=0, le=30, strict=True)
    bus_bits: int = Field(default=64, strict=True)
    burst_beats: int = Field(default=256, ge=2, le=256, strict=True)

    @model_validator(mode="after")
    def _is_consistent(self) -> Configuration:
        if self.bus_bits not in (64, 128, 256, 512):
            raise ValueError(f"bus_bits is {self.bus_bits}; the memory bus has 64, 128, 256 or 512 bits")
        if self.log_acc_width < max(self.log_inp_width, self.log_wgt_width):
            raise ValueError(
                f"log_acc_width = {self.log_acc_width}: accumulators are narrower than inputs "
                f"(log_inp_width = {self.log_inp_width}) or weights (log_wgt_width = {self.log_wgt_width})"
            )
        for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC):
            name = f"log_{memory.name.lower()}_buff_size"
            depth = self.log_depth(memory)
            if depth < 0:
                raise ValueError(
                    f"{name} = {getattr(self, name)}: the memory is smaller than one of its entries, "
                    f"which has {self.element_bytes(memory)} bytes; at least 2^{self._log_bytes[memory]} are needed"
                )
            if depth > 16:
                raise ValueError(f"{name}: {1 << depth} entries; sram_base has 16 bits and reaches 65536")
        for kind, fields in self.fields.items():
            bits = 0
            for field, width in fields:
                bits += width + (64 - bits % 64 if bits % 64 + width > 64 else 0)
                if bits > 128:
                    raise ValueError(
                        f"{field} of {kind} finds no room in the 128 bits of an instruction "
                        f"(fields need {sum(width for _, width in fields)} bits and none may cross bit 63); "
                        "make uop, inp, wgt or acc memories shallower"
                    )
        if (needed := sum(width for _, width in self.uop_fields)) > _UOP_BITS:
            parts = " + ".join(f"{width} ({field})" for field, width in self.uop_fields)
            raise ValueError(f"a micro-op needs {parts} = {needed} bits and has 32; make a memory shallower")
        return self

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any], where: str = "configuration") -> Configuration:
        """Reads a configuration from a mapping; `where` names its place in messages."""
        try:
            return cls(**numbers)
        except ValidationError as error:
            reasons = [
                ": ".join(
                    filter(None, (".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")))
                )
                for problem in error.errors()
            ]
            raise HeronError(
                f"{where}: {'; '.join(reasons)}", "The fields are " + ", ".join(cls.model_fields) + "."
            ) from error

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Configuration:
        """A copy with other numbers, validated again; pydantic's own keeps what was derived from the old ones."""
        del deep
        return self.from_numbers(self.model_dump() | dict(update or {}))

    @property
    def batch(self) -> int:
        """Rows of an input entry."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Columns of an input entry; rows and columns of a weight entry; columns of an accumulator entry."""
        return 1 << self.log_block

    @property
    def acc_bits(self) -> int:
        """Bits of an accumulator."""
        return 1 << self.log_acc_width

    @property
    def out_bits(self) -> int:
        """Bits of an output."""
        return 1 << self.log_inp_width

    @cached_property
    def _log_bytes(self) -> dict[Memory, int]:
        """log2 of the bytes of an entry of each memory."""
        entry = self.log_batch + self.log_block - 3
        return {
            Memory.UOP: 2,
            Memory.WGT: 2 * self.log_block + self.log_wgt_width - 3,
            Memory.INP: entry + self.log_inp_width,
            Memory.ACC: entry + self.log_acc_width,
            Memory.OUT: entry + self.log_inp_width,
            Memory.ACC_8BIT: entry + self.log_inp_width,
        }

    @cached_property
    def _log_depths(self) -> dict[Memory, int]:
        """log2 of the entries of each memory; an output and an 8-bit load address the accumulators."""
        acc = self.log_acc_buff_size - self._log_bytes[Memory.ACC]
        return {
            Memory.UOP: self.log_uop_buff_size - self._log_bytes[Memory.UOP],
            Memory.WGT: self.log_wgt_buff_size - self._log_bytes[Memory.WGT],
            Memory.INP: self.log_inp_buff_size - self._log_bytes[Memory.INP],
            Memory.ACC: acc,
            Memory.OUT: acc,
            Memory.ACC_8BIT: acc,
        }

    def element_bytes(self, memory: Memory) -> int:
        """Bytes of an entry of a memory, which is also the unit of its DRAM addresses."""
        return 1 << self._log_bytes[memory]

    def log_depth(self, memory: Memory) -> int:
        """log2 of the entries of a memory."""
        return self._log_depths[memory]

    def depth(self, memory: Memory) -> int:
        """Entries of a memory."""
        return 1 << self.log_depth(memory)

    @property
    def portable_uops(self) -> int:
        """Micro-ops that every model holds."""
        return min(self.depth(Memory.UOP), _PORTABLE_UOPS)

    @cached_property
    def uop_fields(self) -> tuple[Bits, ...]:
        """Name and bits of the fields of a micro-op. The source may name an accumulator as well as an input."""
        acc, inp = self.log_depth(Memory.ACC), self.log_depth(Memory.INP)
        return (("dst_idx", acc), ("src_idx", max(acc, inp)), ("wgt_idx", self.log_depth(Memory.WGT)))

    @cached_property
    def fields(self) -> dict[str, tuple[Bits, ...]]:
        """Name and bits of the fields of each instruction, least significant first."""
        uop, inp, wgt, acc = (self.log_depth(m) for m in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC))
        loops: tuple[Bits, ...] = (
            ("reset", 1),
            ("uop_bgn", uop),
            ("uop_end", uop + 1),
            ("iter_out", _ITER_BITS),
            ("iter_in", _ITER_BITS),
            ("dst_factor_out", acc),
            ("dst_factor_in", acc),
        )
        gemm = (("src_factor_out", inp), ("src_factor_in", inp), ("wgt_factor_out", wgt), ("wgt_factor_in", wgt))
        alu = (("src_factor_out", acc), ("src_factor_in", acc), ("alu_opcode", 3), ("use_imm", 1), ("imm", 16))
        return {
            "LOAD": _HEAD + _TRANSFER,
            "STORE": _HEAD + _TRANSFER,
            "GEMM": _HEAD + loops + gemm,
            "FINISH": _HEAD,
            "ALU": _HEAD + loops + alu,
        }
