"""The assignments that are tried of a sketch, with no constraint asked.

What stays is what the S-rules derive: steps, levels, knobs. The knobs come in groups: the extent and the tiles of an
axis, the position of a copy, the order of a level. The product of all groups is far too large, so what is tried is a
union of products (`Box`) that are as large as a budget allows: all groups over their first values, each group alone
over as many values as fit, each pair of groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from heron_asp.errors import InternalError
from heron_asp.sketch import Sketch
from heron_asp.terms import Term, Value, text

TILES = (1, 2, 3, 4, 8, 16, 32)
_OTHERS = 6  # tilings of an axis that are tried around every member, beside the good ones
Assignment = tuple[Value, ...]  # a value for each knob of the sketch, in the order of `Sketch.knobs`


@dataclass(frozen=True)
class Group:
    """Knobs that range together.

    Attributes:
        knobs: the knobs.
        values: a value for each knob, the most telling combinations first.
        first: how many of them the group ranges over while all others do.
        near: how many of them the group ranges over around each member of the space.
        ends: after how many of them another number joins in, and how many of these TVM refuses at the first split.
    """

    knobs: tuple[Value, ...]
    values: tuple[Assignment, ...]
    first: int
    near: int
    ends: tuple[tuple[int, int], ...] = ()

    def alone(self, most: int) -> int:
        """Over how many of its values it ranges alone, where about so many are worth the time."""
        fitting = [end for end, cheap in self.ends if end - cheap <= most]
        return max(fitting, default=min(len(self.values), max(most, self.first)))


@dataclass(frozen=True)
class Grid:
    """The assignments of a sketch that are tried, but for its members and what is around them.

    Attributes:
        sketch: the sketch.
        groups: of its knobs.
        boxes: for each box, over how many of its first values each group ranges.
    """

    sketch: Sketch
    groups: tuple[Group, ...]
    boxes: tuple[tuple[int, ...], ...]

    @property
    def whole(self) -> int:
        """Number of assignments of all knobs over all their values."""
        return prod(len(group.values) for group in self.groups)

    def assignments(self) -> list[Assignment]:
        """All assignments of all boxes, each once."""
        place = {knob: number for number, knob in enumerate(self.sketch.knobs)}
        flat = [place[knob] for group in self.groups for knob in group.knobs]
        order = sorted(range(len(flat)), key=flat.__getitem__)
        found: dict[Assignment, None] = {}
        for box in self.boxes:
            for chosen in product(*(group.values[:many] for group, many in zip(self.groups, box, strict=True))):
                values = [value for part in chosen for value in part]
                found[tuple(values[place] for place in order)] = None
        return list(found)

    def around(self, row: Assignment) -> Iterator[Assignment]:
        """The assignments that differ from one in a single group."""
        place = {knob: number for number, knob in enumerate(self.sketch.knobs)}
        for group in self.groups:
            for values in group.values[: group.near]:
                changed = list(row)
                for knob, value in zip(group.knobs, values, strict=True):
                    changed[place[knob]] = value
                yield tuple(changed)

    def forms(self, row: Assignment) -> Iterator[Assignment]:
        """The assignments with the same tiles and places in another order: some may be the same program."""
        place = {knob: number for number, knob in enumerate(self.sketch.knobs)}
        orders = [group for group in self.groups if not group.ends and _name(group.knobs[0]) != "position"]
        for chosen in product(*(group.values for group in orders)):
            changed = list(row)
            for group, values in zip(orders, chosen, strict=True):
                changed[place[group.knobs[0]]] = values[0]
            yield tuple(changed)

    def inexact(self, rows: Sequence[Assignment]) -> list[bool]:
        """Whether some axis of each assignment has tiles that do not multiply to its extent.

        Then TVM guards the split by a condition; the rules' `split` means tiles that fill the padded axis.
        """
        place = {knob: number for number, knob in enumerate(self.sketch.knobs)}
        axes = [[place[knob] for knob in group.knobs] for group in self.groups if group.ends]
        return [any(prod(_numbers(row, axis[1:])) != row[axis[0]] for axis in axes) for row in rows]


def grid(sketch: Sketch, most: int) -> Grid:
    """The grid of a sketch with about `most` assignments, beside those that TVM refuses at the first split."""
    groups = tuple(_groups(sketch))
    boxes = [fitted([group.first for group in groups], most // 4)]
    free = [number for number, group in enumerate(groups) if len(group.values) > 1]
    axes = [number for number in free if groups[number].ends]
    for number in free:
        box = [1] * len(groups)
        box[number] = groups[number].alone(most // 2 // len(axes))
        boxes.append(tuple(box))
    pairs = list(combinations(free, 2))
    for one, other in pairs:
        box = [1] * len(groups)
        box[one], box[other] = len(groups[one].values), len(groups[other].values)
        boxes.append(fitted(box, most // 4 // len(pairs)))
    return Grid(sketch, groups, tuple(dict.fromkeys(boxes)))


def fitted(wanted: Sequence[int], most: int) -> tuple[int, ...]:
    """Shortens the longest side of a box until it holds at most so many; a side keeps one."""
    sides = list(wanted)
    while prod(sides) > max(most, 1):
        longest = max(range(len(sides)), key=sides.__getitem__)
        others = prod(sides) // sides[longest]
        second = max((side for number, side in enumerate(sides) if number != longest), default=1)
        sides[longest] = max(1, min(sides[longest] - 1, max(second, most // others)))
    return tuple(sides)


def _groups(sketch: Sketch) -> Iterator[Group]:
    candidates: dict[Value, list[Value]] = {}
    for knob, value in sketch.of("candidate"):
        candidates.setdefault(knob, []).append(value)
    taken: set[Value] = set()
    for block, axis, _kind, extent in sketch.of("axis"):
        own = Term("extent", (block, axis))
        group = _axis(sketch, block, axis, _number(extent), candidates.get(own, []))
        taken |= set(group.knobs)
        yield group
    for knob in sketch.knobs:
        if knob not in taken:
            yield _single(sketch, knob, tuple(candidates.get(knob, ())))


def _single(sketch: Sketch, knob: Value, candidates: tuple[Value, ...]) -> Group:
    """A knob of its own: the position of a copy over root and all levels, any other over its candidates."""
    if not candidates:
        raise InternalError(f"knob {text(knob)} has no candidate and belongs to no axis")
    values = candidates[::-1]
    if _name(knob) == "position":
        values = tuple(dict.fromkeys(("root", *(level.name for level in sketch.levels))))
    return Group((knob,), tuple((value,) for value in values), len(values), len(values))


def _axis(sketch: Sketch, block: Value, axis: Value, extent: int, candidates: Sequence[Value]) -> Group:
    """The extent of an axis and its tiles, outermost first.

    Extents are the candidates, the axis' own extent and one more; tiles are a few numbers and both of these. First
    come the tilings that fill an extent with the instruction's unit innermost, then some that fill one with another
    unit, then the rest by how far down the list of numbers they reach.
    """
    unit = next((_number(size) for b, a, size in sketch.of("unit") if (b, a) == (block, axis)), 1)
    tiled = {level for b, a, level in sketch.of("tile") if (b, a) == (block, axis)}
    levels = list(dict.fromkeys(level.name for level in sketch.levels if level.name in tiled))
    knobs = (Term("extent", (block, axis)), *(Term("tile", (block, axis, level)) for level in levels))
    padded = -(-extent // unit)
    extents = list(dict.fromkeys([*(_number(one) for one in candidates), extent, extent + 1]))
    numbers = list(dict.fromkeys([1, unit, padded, 2, extent, extent + 1, *TILES]))
    rank = {number: place for place, number in enumerate(numbers)}

    def reach(row: tuple[int, ...]) -> int:
        return max((rank[tile] for tile in row[1:]), default=0)

    rows = [(whole, *tiles) for whole in extents for tiles in product(numbers, repeat=len(levels))]
    rows.sort(key=lambda row: (reach(row), extents.index(row[0]), sum(tile > 1 for tile in row[1:]), row[1:]))
    at = levels.index("unit") + 1 if "unit" in levels else None
    full = [row for row in rows if prod(row[1:]) == row[0]]
    exact = sorted((row for row in full if at is None or row[at] == unit), key=lambda row: extents.index(row[0]))
    others = [row for row in full if row not in set(exact)][:_OTHERS]
    front = [*exact, *others]
    rest = [row for row in rows if row not in set(front)]
    ends, cheap = [], 0
    for place, row in enumerate(rest, 1):
        cheap += prod(row[1:]) < row[0]
        if place == len(rest) or reach(rest[place]) > reach(row):
            ends.append((len(front) + place, cheap))
    return Group(knobs, (*front, *rest), max(1, len(exact)), len(front) + _OTHERS, tuple(ends))


def _name(knob: Value) -> str:
    return knob.name if isinstance(knob, Term) else ""


def _numbers(row: Assignment, places: Sequence[int]) -> list[int]:
    return [_number(row[place]) for place in places]


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise InternalError(f"{text(value)} is not a number")
    return value
