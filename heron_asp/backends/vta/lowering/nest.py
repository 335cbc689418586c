"""The loop nest of a candidate, as numbers: which loops stand around a GEMM instruction, and where copies are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from heron_asp.analysis import BlockFacts
from heron_asp.sketch import Sketch
from heron_asp.terms import Term, Value, text

_TILE, _UNIT, _START = "tile", "unit", "start"


@dataclass(frozen=True)
class Loop:
    """A loop around the tiles; one of a single step is left out."""

    axis: str
    level: str
    extent: int


@dataclass(frozen=True)
class Place:
    """Where a copy is made.

    Attributes:
        depth: how many loops stand around it.
        slots: how many blocks of it are held at once.
    """

    depth: int
    slots: int


@dataclass(frozen=True)
class Nest:
    """A loop nest. Extents are in units: blocks of channels along the roles of the instruction.

    Attributes:
        loops: around a tile, outermost first.
        tile: extents of a tile, by axis.
        places: by copy, e.g. `inp(a)`.
        extents: of the axes, their padding included.
    """

    loops: tuple[Loop, ...]
    tile: Mapping[str, int]
    places: Mapping[str, Place]
    extents: Mapping[str, int]

    def inside(self, axis: str, depth: int) -> int:
        """Steps of an axis inside the outermost loops, so many of them."""
        return self.tile[axis] * prod(loop.extent for loop in self.loops[depth:] if loop.axis == axis)

    def first(self, index: tuple[int, ...]) -> dict[str, int]:
        """The first step of each axis, at an index of the outermost loops."""
        found = dict.fromkeys(self.tile, 0)
        for depth, (loop, at) in enumerate(zip(self.loops, index, strict=False)):
            found[loop.axis] += at * self.inside(loop.axis, depth + 1)
        return found

    def steps(self, depth: int) -> dict[str, int]:
        """Steps of each axis inside the outermost loops, so many of them."""
        return {axis: self.inside(axis, depth) for axis in self.tile}


def nest_of(block: BlockFacts, sketch: Sketch, values: Mapping[Value, Value]) -> Nest:
    """The loop nest of an assignment."""
    loops: list[Loop] = []
    depths = {_START: 0}
    for level in sketch.levels:
        if level.name in (_TILE, _UNIT):
            continue
        here = [axis.name for axis in block.axes if _extent(block, axis.name, level.name, values) > 1]
        inner = values.get(Term("inner", (block.block, level.name)))
        here.sort(key=lambda axis, inner=inner: axis == inner)  # type: ignore[misc]
        loops += [Loop(axis, level.name, _extent(block, axis, level.name, values)) for axis in here]
        depths[level.name] = len(loops)
    tile = {axis.name: _extent(block, axis.name, _TILE, values) for axis in block.axes}
    places = {}
    for copy, *_ in sketch.of("copy"):
        position = text(values[Term("position", (copy,))])
        slots = values.get(Term("slots", (copy,)), 1)
        places[text(copy)] = Place(depths[position], int(str(slots)))
    extents = {axis: size * prod(loop.extent for loop in loops if loop.axis == axis) for axis, size in tile.items()}
    return Nest(tuple(loops), tile, places, extents)


def _extent(block: BlockFacts, axis: str, level: str, values: Mapping[Value, Value]) -> int:
    return int(str(values.get(Term("tile", (block.block, axis, level)), 1)))
