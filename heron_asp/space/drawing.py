"""Draws solutions of a circuit: for each solution a row of a group of every bucket, from the last bucket to the first.

Pins leave few of a circuit's rows. Many sets of pins are followed together: going down finds the rows that each set
leaves of the buckets that its pins can reach, going up weighs them, and going down again draws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from heron_asp.space.elimination import Bucket
from heron_asp.space.table import Codes, Index, numbered

Floats = npt.NDArray[np.float64]
_MARKED = 2**22  # cells of an array that marks what occurs, at most, or sixteen an entry


class TooManyEntriesError(Exception):
    """The rows that pins leave are more than may be followed together."""


@dataclass(frozen=True)
class Layer:
    """Rows of a bucket that may be drawn, by group. All of them, or those that each of several sets of pins leaves.

    Attributes:
        bucket: the bucket.
        rows: the row of each entry; None for all rows in their order.
        first: the first entry of each group, and the number of entries last.
        weight: of each entry.
        links: for each earlier bucket that was joined, its number and the group of its layer that each entry refers to.
    """

    bucket: Bucket
    rows: Index | None
    first: Index
    weight: Floats
    links: tuple[tuple[int, Index], ...]

    @staticmethod
    def whole(bucket: Bucket, weight: Floats) -> Layer:
        """All rows of a bucket."""
        start = np.arange(bucket.size) if bucket.start is None else bucket.start
        return Layer(bucket, None, np.append(start, bucket.size), weight, bucket.references)

    @cached_property
    def _below(self) -> Floats | None:
        """Partial sums of the weights, each group's divided by its sum; None where no group leaves a choice."""
        sizes = np.diff(self.first)
        if sizes.max(initial=0) <= 1:
            return None
        sums = np.bincount(np.repeat(np.arange(len(sizes)), sizes), self.weight, minlength=len(sizes))
        share = self.weight / np.repeat(np.where(sums > 0, sums, 1.0), sizes)
        return np.concatenate([[0.0], np.cumsum(share)])

    def draw(self, group: Index, rng: np.random.Generator) -> Index:
        """An entry of each of some groups, in proportion to its weight.

        A uniform number below the group's sum is looked up among the partial sums; the entry whose partial sum is the
        first above it has a positive weight.
        """
        if self._below is None:
            return self.first.take(group)
        low, high = self._below.take(self.first.take(group)), self._below.take(self.first.take(group + 1))
        target = np.minimum(low + rng.random(len(group)) * (high - low), np.nextafter(high, 0))
        return self._below.searchsorted(np.maximum(target, low), "right") - 1


def draw(layers: Sequence[Layer], start: Mapping[int, Index], variables: int, rng: np.random.Generator) -> Index:
    """Independent solutions.

    Args:
        layers: one a bucket.
        start: for each bucket that no other refers to, the group that each solution takes.
        variables: number of all variables.
        rng: what is random.

    Returns:
        Value indices, shape (solutions, variables); 0 for variables of no bucket.
    """
    group = dict(start)
    values = np.zeros((len(next(iter(start.values()), ())), variables), dtype=np.intp)
    for position in reversed(range(len(layers))):
        layer = layers[position]
        entry = layer.draw(group.pop(position), rng)
        row = entry if layer.rows is None else layer.rows.take(entry)
        for variable, column in zip(layer.bucket.variables, layer.bucket.values, strict=True):
            values[:, variable] = column.take(row)
        for child, link in layer.links:
            group[child] = link.take(entry)
    return values


# -- under pins --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reached:
    """What going down finds of a bucket.

    Attributes:
        group: of each entry, among those that were reached.
        groups: how many these are.
        rows: the row of each entry.
        weight: of each entry by itself.
        links: for each earlier bucket, the group of its layer that each entry refers to.
    """

    group: Index
    groups: int
    rows: Index
    weight: Floats
    links: tuple[tuple[int, Index], ...]


def restricted(
    base: Sequence[Layer], sums: Sequence[Floats], weights: Mapping[int, Floats], sets: int, most: int
) -> tuple[list[Layer], dict[int, Floats]]:
    """The layers under several sets of pins.

    Args:
        base: the layers without pins.
        sums: the weight of every group of every bucket without pins.
        weights: for each variable that some set pins, a weight for each of its values, shape (sets, values).
        sets: how many there are.
        most: entries to follow.

    Returns:
        A layer a bucket, those that no pin can reach as they were; for each reached bucket that no other refers to, the
        weight under each set. Such a bucket's groups are the sets.

    Raises:
        TooManyEntriesError: the pins leave more entries.
    """
    reached = _down(base, sums, weights, sets, most)
    layers = list(base)
    totals: dict[int, Floats] = {}
    for position, found in sorted(reached.items()):
        weight = found.weight
        for child, link in found.links:
            weight = weight * (totals.pop(child) if child in reached else sums[child]).take(link)
        totals[position] = np.asarray(np.bincount(found.group, weight, minlength=found.groups), dtype=np.float64)
        count = np.bincount(found.group, minlength=found.groups)
        first = np.concatenate([[0], np.cumsum(count)])
        layers[position] = Layer(base[position].bucket, found.rows, first, weight, found.links)
    return layers, totals


def _down(
    base: Sequence[Layer], sums: Sequence[Floats], weights: Mapping[int, Floats], sets: int, most: int
) -> dict[int, _Reached]:
    """What each set of pins leaves of the buckets that pins can reach."""
    pinned = _pinned(base, weights)
    read = {child for layer in base for child, _ in layer.links}
    waiting = {position: (np.arange(sets), np.zeros(sets, dtype=np.intp)) for position in pinned - read}
    reached: dict[int, _Reached] = {}
    entries = 0
    for position in sorted(pinned, reverse=True):
        bucket = base[position].bucket
        of, groups = waiting.pop(position)
        entry_group, rows = _rows(base[position], groups)
        own = of.take(entry_group)
        weight = np.ones(len(rows))
        for variable, column in zip(bucket.variables, bucket.values, strict=True):
            table = weights.get(variable)
            if table is None:
                continue
            factor = table.ravel().take(own * table.shape[1] + column.take(rows))
            if factor.all():
                weight = weight * factor
                continue
            kept = np.flatnonzero(factor)
            entry_group, rows, own = entry_group.take(kept), rows.take(kept), own.take(kept)
            weight = weight.take(kept) * factor.take(kept)
        entries += len(rows)
        if entries > most:
            raise TooManyEntriesError
        links = []
        for child, reference in bucket.references:
            link = reference.take(rows)
            if child in pinned:
                span = len(sums[child])
                code, link = _distinct(own * span + link, sets * span)
                waiting[child] = (code // span, code % span)
            links.append((child, link))
        reached[position] = _Reached(entry_group, len(groups), rows, weight, tuple(links))
    return reached


def _pinned(base: Sequence[Layer], weights: Mapping[int, Floats]) -> set[int]:
    """The buckets with pinned variables, and those that refer to them."""
    pinned: set[int] = set()
    for position, layer in enumerate(base):
        own = not weights.keys().isdisjoint(layer.bucket.variables)
        if own or any(child in pinned for child, _ in layer.links):
            pinned.add(position)
    return pinned


def _rows(layer: Layer, groups: Index) -> tuple[Index, Index]:
    """All rows of some groups, each with the place of its group."""
    if layer.bucket.start is None:
        return np.arange(len(groups)), groups
    first = layer.first.take(groups)
    sizes = layer.first.take(groups + 1) - first
    place = np.repeat(np.arange(len(groups)), sizes)
    return place, np.arange(len(place)) + (first - np.cumsum(sizes) + sizes).take(place)


def _distinct(code: Codes, span: int) -> tuple[Codes, Index]:
    """The numbers that occur, in their order, and the place among them of each."""
    if span > max(_MARKED, 16 * len(code)):
        place, many = numbered(code, span)
        distinct = np.zeros(many if len(code) else 0, dtype=np.int64)
        distinct[place] = code
        return distinct, place
    marked = np.zeros(span, dtype=bool)
    marked[code] = True
    distinct = np.flatnonzero(marked)
    number = np.empty(span, dtype=np.intp)
    number[distinct] = np.arange(len(distinct))
    return distinct, number.take(code)


# -- one by one --------------------------------------------------------------------------------------------------------


class Single:
    """Draws one solution at a time, without the cost of numpy's calls: a circuit as lists.

    Args:
        layers: one a bucket, without pins.
        variables: number of all variables.
    """

    def __init__(self, layers: Sequence[Layer], variables: int) -> None:
        self._empty = [0] * variables
        self._listed = []
        for position in reversed(range(len(layers))):
            bucket = layers[position].bucket
            columns = [
                (variable, column.tolist()) for variable, column in zip(bucket.variables, bucket.values, strict=True)
            ]
            if bucket.size == 1 and not bucket.references:
                for variable, column in columns:
                    self._empty[variable] = column[0]
                continue
            references = [(child, group.tolist()) for child, group in bucket.references]
            self._listed.append((position, *_partial(layers[position]), columns, references))

    def draw(self, rng: np.random.Generator) -> list[int]:
        """Value indices of every variable; 0 for variables of no bucket."""
        values = self._empty.copy()
        group: dict[int, int] = {}
        uniform = rng.random(len(self._listed)).tolist()
        for number, (position, start, below, columns, references) in enumerate(self._listed):
            row = group.get(position, 0)
            if start:
                first, last = start[row], start[row + 1]
                row = bisect_right(below, uniform[number], first, last - 1) if last - first > 1 else first
            for variable, column in columns:
                values[variable] = column[row]
            for child, reference in references:
                group[child] = reference[row]
        return values


def _partial(layer: Layer) -> tuple[list[int], list[float]]:
    """The first row of each group, and for each row the share of its group's weight up to it; none without a choice."""
    if layer.bucket.start is None:
        return [], []
    start = layer.first.tolist()
    below: list[float] = []
    for first, last in pairwise(start):
        partial = layer.weight[first:last].cumsum()
        below += (partial / partial[-1]).tolist()
    return start, below
