"""A schedule: everything that a program may choose, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from heron_asp.backends.vta.isa import Memory
from heron_asp.backends.vta.lowering.problem import Problem
from heron_asp.errors import HeronError

AXES = ("o", "h", "w", "i")
DEPENDS = {Memory.INP: ("h", "w", "i"), Memory.WGT: ("o", "i"), Memory.ACC: ("o", "h", "w")}


@dataclass(frozen=True)
class Schedule:
    """How an operator is cut and in which order the pieces come. The axes of a matrix product are m = h, n = o, k = i.

    Attributes:
        o: output channels of a tile, in blocks.
        h: rows of a tile.
        w: columns of a tile.
        i: input channels of a tile, in blocks.
        order: the loops over tiles, outermost first: a permutation of o, h, w, i.
        inp_at: how many of these loops stand around the load of inputs: 4 loads a tile's inputs, less loads at once
            what all loops inside need. What is still there is not loaded again.
        wgt_at: the same for weights.
        inp_slots: input blocks held at once; 2 let the next one be loaded while one is used (a virtual thread each).
        wgt_slots: the same for weights.
        acc_slots: the same for accumulators: 2 let one be stored while the next one is computed.
    """

    o: int
    h: int
    w: int
    i: int
    order: tuple[str, str, str, str] = ("o", "h", "w", "i")
    inp_at: int = 4
    wgt_at: int = 4
    inp_slots: int = 2
    wgt_slots: int = 2
    acc_slots: int = 2

    def __post_init__(self) -> None:
        if sorted(self.order) != sorted(AXES):
            raise HeronError(f"order is {self.order}; it must name each of {', '.join(AXES)} once")
        for name in ("o", "h", "w", "i", "inp_slots", "wgt_slots", "acc_slots"):
            if getattr(self, name) < 1:
                raise HeronError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("inp_at", "wgt_at"):
            if not 0 <= getattr(self, name) <= len(AXES):
                raise HeronError(f"{name} is {getattr(self, name)}; there are 0 to {len(AXES)} loops around a load")

    @property
    def acc_at(self) -> int:
        """How many loops stand around an accumulator block: those outside the loop over input channels."""
        return self.order.index("i")

    def at(self, memory: Memory) -> int:
        """How many loops stand around the blocks of a memory."""
        return {Memory.INP: self.inp_at, Memory.WGT: self.wgt_at, Memory.ACC: self.acc_at}[memory]

    def slots(self, memory: Memory) -> int:
        """How many blocks of a memory are held at once."""
        return {Memory.INP: self.inp_slots, Memory.WGT: self.wgt_slots, Memory.ACC: self.acc_slots}[memory]

    def tile(self, axis: str, problem: Problem) -> int:
        """Extent of a tile along an axis; no larger than the axis."""
        size: int = getattr(self, axis)
        return min(size, problem.extents[axis])

    def fixed(self, memory: Memory) -> tuple[str, ...]:
        """The axes that a block of a memory depends on and whose loops stand around it: they tell blocks apart."""
        outside = self.order[: self.at(memory)]
        return tuple(axis for axis in DEPENDS[memory] if axis in outside)
