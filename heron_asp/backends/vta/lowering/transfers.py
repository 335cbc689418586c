"""A block of entries as two-dimensional transfers: rows of neighbours, with zeros around what DRAM does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from heron_asp.backends.vta.lowering.entries import Span
from heron_asp.errors import HeronError

MOST = 65_535  # of a field of 16 bits
MOST_PADS = 15  # of a field of 4 bits


@dataclass(frozen=True)
class Rows:
    """A transfer, in entries.

    Attributes:
        sram: first entry within the block.
        dram: first entry within what DRAM holds.
        rows: number of rows.
        row: entries of a row.
        stride: from one row to the next.
        pads: rows of zeros before and after, zeros before and after each row.
    """

    sram: int
    dram: int
    rows: int
    row: int
    stride: int
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


def can_pad(wanted: Sequence[Span], held: Span) -> bool:
    """Whether transfers can make what blocks want beyond what DRAM holds of a dimension."""
    return all(
        max(low, held[0]) < min(high, held[1]) and held[0] - low <= MOST_PADS and high - held[1] <= MOST_PADS
        for low, high in wanted
    )


def transfers(wanted: Sequence[Span], held: Sequence[Span]) -> Iterator[Rows]:
    """The transfers of a block.

    Args:
        wanted: the block's indices along each dimension, outermost first; at most the two innermost reach beyond what
            is held.
        held: the indices that DRAM holds.
    """
    if not wanted:  # a single entry
        yield Rows(0, 0, 1, 1, 1)
        return
    inner = len(wanted) - 1
    while inner > 0 and wanted[inner] == held[inner] and _inside(wanted[inner - 1], held[inner - 1]):
        inner -= 1  # whole rows that are neighbours are one row
    outer = max(inner - 1, 0) if inner else 0
    sizes, extents = [high - low for low, high in wanted], [high - low for low, high in held]
    below, length = prod(extents[inner + 1 :]), prod(sizes[inner + 1 :])
    x, x_pads = _cut(wanted[inner], held[inner])
    y, y_pads = _cut(wanted[outer], held[outer]) if inner else ((0, 1), (0, 0))
    row, stride = (x[1] - x[0]) * below, extents[inner] * below if inner else 1
    for index in product(*(range(low, high) for low, high in wanted[:outer])):
        sram = dram = 0
        for at, place in enumerate(index):
            sram = sram * sizes[at] + place - wanted[at][0]
            dram = dram * extents[at] + place - held[at][0]
        if inner:
            sram, dram = sram * sizes[outer], dram * extents[outer] + y[0] - held[outer][0]
        sram, dram = sram * sizes[inner] * length, (dram * extents[inner] + x[0] - held[inner][0]) * below
        whole = Rows(sram, dram, y[1] - y[0], row, stride if y[1] - y[0] > 1 else row, (*y_pads, *x_pads))
        yield from _within_fields(whole)


def _inside(wanted: Span, held: Span) -> bool:
    return held[0] <= wanted[0] and wanted[1] <= held[1]


def _cut(wanted: Span, held: Span) -> tuple[Span, tuple[int, int]]:
    """What DRAM holds of a span, and what is missing before and after."""
    low, high = max(wanted[0], held[0]), min(wanted[1], held[1])
    return (low, high), (low - wanted[0], wanted[1] - high)


def _within_fields(whole: Rows) -> Iterator[Rows]:
    """One transfer; or one a row, where the distance of rows has no place in its field."""
    if whole.stride <= MOST:
        yield whole
        return
    if any(whole.pads):
        raise HeronError(
            f"rows of a padded block are {whole.stride} entries apart; {MOST} is what an instruction holds"
        )
    for number in range(whole.rows):
        yield Rows(whole.sram + number * whole.row, whole.dram + number * whole.stride, 1, whole.row, whole.row)
