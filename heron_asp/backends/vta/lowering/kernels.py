"""Micro-op kernels: which of a tile's loops become hardware loops, which are written out as micro-ops.

Micro-ops have to be loaded, so few are best. A step's destination must differ from those of the two steps before it;
therefore the innermost loops must run over at least three accumulators before a reduction comes back to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from math import prod

from heron_asp.backends.vta.isa import MicroOp
from heron_asp.errors import HeronError, InternalError

_DISTANCE = 3


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a tile: its extent, and by how much each index moves a step."""

    extent: int
    dst: int = 0
    src: int = 0
    wgt: int = 0


UNIT = Loop(1)


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops of one instruction.

    Attributes:
        outer: the outer hardware loop.
        inner: the inner hardware loop.
        uops: loops that are written out, outermost first.
    """

    outer: Loop = UNIT
    inner: Loop = UNIT
    uops: tuple[Loop, ...] = ()

    @property
    def count(self) -> int:
        """Number of micro-ops."""
        return prod(loop.extent for loop in self.uops)

    def micro_ops(self, dst: int, src: int, wgt: int) -> tuple[MicroOp, ...]:
        """The micro-ops, starting from the given entries."""
        return tuple(
            MicroOp(
                dst + sum(i * loop.dst for i, loop in zip(index, self.uops, strict=True)),
                src + sum(i * loop.src for i, loop in zip(index, self.uops, strict=True)),
                wgt + sum(i * loop.wgt for i, loop in zip(index, self.uops, strict=True)),
            )
            for index in product(*(range(loop.extent) for loop in self.uops))
        )


def _distance(loops: Sequence[Loop]) -> int:
    """Steps until a destination comes back, for loops outermost first; a large number if none does."""
    steps = 1
    for loop in reversed(loops):
        if not loop.dst and loop.extent > 1:
            return steps
        steps *= loop.extent
    return 1 << 30


@lru_cache(maxsize=4096)
def nest_of(loops: tuple[Loop, ...]) -> Nest | None:
    """The nest with the fewest micro-ops that keeps the distance; None if no order of the loops keeps it."""
    real = [loop for loop in loops if loop.extent > 1]
    best: tuple[int, Nest] | None = None
    for outer, inner in permutations([*real, UNIT, UNIT], 2):
        rest = [loop for loop in real if loop is not outer and loop is not inner]
        rest.sort(key=lambda loop: bool(loop.dst))  # reductions outside
        if _distance([outer, inner, *rest]) < _DISTANCE:
            continue
        count = prod(loop.extent for loop in rest)
        if best is None or count < best[0]:
            best = (count, Nest(outer, inner, tuple(rest)))
    return best[1] if best else None


Offsets = tuple[int, int, int]


def nests_of(loops: Sequence[Loop], room: int) -> Iterator[tuple[Nest, Offsets]]:
    """Instructions for a tile: one, or one for each step of a reduction where micro-ops are too many.

    Args:
        loops: of the tile, those of the sum first.
        room: micro-ops that one instruction may have.

    Yields:
        the loops of an instruction, and what is added to destination, source and weight.

    Raises:
        HeronError: too few sums are written before one is added to again.
        InternalError: the sums alone are more than a memory of them can hold.
    """
    whole = nest_of(tuple(loops))
    if whole is None:
        raise HeronError(f"a tile adds to a sum again before {_DISTANCE} steps have passed")
    if whole.count <= room:
        yield whole, (0, 0, 0)
        return
    outermost = next((loop for loop in loops if not loop.dst and loop.extent > 1), None)
    if outermost is None:
        raise InternalError(f"a tile writes sums by more than {room} micro-ops")
    rest = tuple(loop for loop in loops if loop is not outermost)
    for step in range(outermost.extent):
        for nest, (dst, src, wgt) in nests_of(rest, room):
            yield nest, (dst, src + step * outermost.src, wgt + step * outermost.wgt)


def sweep_of(loops: Sequence[Loop]) -> Nest:
    """The nest with the fewest micro-ops for loops that never come back to a destination, outermost first."""
    joined: list[Loop] = []
    for loop in (one for one in loops if one.extent > 1):
        last = joined[-1] if joined else None
        if last and (last.dst, last.src) == (loop.dst * loop.extent, loop.src * loop.extent):
            joined[-1] = Loop(last.extent * loop.extent, loop.dst, loop.src)
        else:
            joined.append(loop)
    hardware = sorted(joined, key=lambda loop: loop.extent)[-2:]
    outer, inner = ([UNIT, UNIT] + [loop for loop in joined if loop in hardware])[-2:]
    return Nest(outer, inner, tuple(loop for loop in joined if loop not in hardware))
