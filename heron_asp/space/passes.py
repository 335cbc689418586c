"""Passes through a circuit under many sets of pins at once: weights going up, and solutions drawn going down.

Weights have a row for each row of a bucket and a column for each set of pins, or one column where no set makes a
difference: numpy moves and multiplies whole rows, at a fraction of what a pass a set would cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.space.elimination import Bucket
from heron_asp.space.table import Index

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Level:
    """One step of adding up: nodes of the level below are added in pairs.

    Attributes:
        left: of each node above, its first child below.
        right: its second child; where it has none, the row of zeros after the last node below.
        first: the first node above of each group that has several nodes below. These are the first groups.
        added: the nodes below that are added, the first ones; each of the others is all that is left of a group.
    """

    left: Index
    right: Index
    first: Index
    added: int


class Tree:
    """How the rows of a bucket's groups are added: a binary tree a group.

    Args:
        bucket: a bucket; its larger groups come first.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.levels: list[_Level] = []
        start = np.arange(bucket.size) if bucket.start is None else bucket.start
        size = np.diff(np.append(start, bucket.size))
        nodes = bucket.size
        while len(size) and size[0] > 1:
            several = int(np.count_nonzero(size > 1))
            size = size[:several]
            above = (size + 1) // 2
            first = np.cumsum(above) - above
            group = np.repeat(np.arange(several), above)
            place = 2 * (np.arange(len(group)) - first[group])
            left = start[group] + place
            right = np.where(place + 1 < size[group], left + 1, nodes)
            self.levels.append(_Level(left, right, first, int(size.sum())))
            start, size, nodes = first, above, len(group)


@dataclass(frozen=True)
class Weighed:
    """The weights of a bucket.

    Attributes:
        tree: how they are added.
        nodes: of the rows, and of the nodes of each level of the tree; each with a row of zeros at the end.
        sums: of the groups.
    """

    tree: Tree
    nodes: tuple[Floats, ...]
    sums: Floats

    @staticmethod
    def of(tree: Tree, weights: Mapping[int, Floats], below: Sequence[Weighed]) -> Weighed:
        """Weighs a bucket.

        Args:
            tree: of the bucket.
            weights: for each pinned variable a weight for each of its values, shape (values, sets).
            below: the buckets before it.
        """
        bucket = tree.bucket
        factors: list[tuple[Floats, npt.NDArray[np.integer[Any]]]] = [
            (weights[variable], column)
            for variable, column in zip(bucket.variables, bucket.values, strict=True)
            if variable in weights
        ]
        factors += [(below[child].sums, group) for child, group in bucket.references]
        factors.sort(key=lambda factor: -factor[0].shape[1])  # those of one column last
        columns = factors[0][0].shape[1] if factors else 1
        rows = np.empty((bucket.size + 1, columns))
        rows[-1] = 0.0
        scratch = np.empty((bucket.size, columns))
        if factors:
            _take(*factors.pop(0), rows[:-1])
        else:
            rows[:-1] = 1.0
        for table, index in factors:
            rows[:-1] *= _take(table, index, scratch) if table.shape[1] == columns else table.take(index, axis=0)
        nodes = [rows]
        sums = []
        for level in tree.levels:
            sums.append(nodes[-1][level.added : -1])
            above = np.empty((len(level.left) + 1, columns))
            above[-1] = 0.0
            _take(nodes[-1], level.left, above[:-1])
            above[:-1] += _take(nodes[-1], level.right, scratch[: len(level.left)])
            nodes.append(above)
        sums.append(nodes[-1][:-1])
        return Weighed(tree, tuple(nodes), np.concatenate(sums[::-1]) if len(sums) > 1 else sums[0])

    def draw(self, group: Index, column: Index, rng: np.random.Generator) -> Index:
        """A row of each of some groups, in proportion to its weight in a column.

        Goes down the tree, to the left or to the right as the weights there are, never to where there is none.
        """
        bucket = self.tree.bucket
        if bucket.start is None:
            return group
        if self.sums.shape[1] == 1:
            column = np.zeros_like(column)
        place = np.zeros_like(group)
        rest = rng.random(len(group)) * self.sums[group, column]
        for level, nodes in zip(reversed(self.tree.levels), self.nodes[-2::-1], strict=True):
            chosen = np.flatnonzero(group < len(level.first))
            node = level.first.take(group.take(chosen)) + place.take(chosen)
            of, left_over = column.take(chosen), rest.take(chosen)
            left = nodes[level.left.take(node), of]
            turned = (left_over >= left) & (nodes[level.right.take(node), of] > 0)
            rest[chosen] = left_over - np.where(turned, left, 0.0)
            place[chosen] = 2 * place.take(chosen) + turned
        return bucket.start.take(group) + place


def _take(table: Floats, index: npt.NDArray[np.integer[Any]], out: Floats) -> Floats:
    """Rows of a table. Numpy copies them twice unless it is told that no index is out of bounds."""
    return table.take(index, axis=0, out=out, mode="clip")


def weighed(
    trees: Sequence[Tree], weights: Mapping[int, Floats], base: Sequence[Weighed] | None = None
) -> list[Weighed]:
    """Goes up.

    Args:
        trees: one a bucket.
        weights: for each variable that some set pins, a weight for each of its values, shape (values, sets).
        base: what going up without pins found; only what pins touch is computed anew.
    """
    found: list[Weighed] = []
    for number, tree in enumerate(trees):
        bucket = tree.bucket
        pinned = not weights.keys().isdisjoint(bucket.variables)
        if base and not pinned and all(found[child] is base[child] for child, _ in bucket.references):
            found.append(base[number])
        else:
            found.append(Weighed.of(tree, weights, found))
    return found


def draw(state: Sequence[Weighed], of: Index, variables: int, rng: np.random.Generator) -> Index:
    """Goes down: independent solutions, in proportion to their weight.

    Args:
        state: the weights of all buckets.
        of: the set of pins of each solution.
        variables: number of all variables.
        rng: what is random.

    Returns:
        Value indices, shape (solutions, variables); 0 for variables of no bucket.
    """
    group: dict[int, Index] = {}
    values = np.zeros((variables, len(of)), dtype=np.intp)
    for position in reversed(range(len(state))):
        bucket = state[position].tree.bucket
        row = state[position].draw(group.pop(position, np.zeros_like(of)), of, rng)
        for variable, column in zip(bucket.variables, bucket.values, strict=True):
            values[variable] = column.take(row)
        for child, reference in bucket.references:
            group[child] = reference.take(row)
    return np.ascontiguousarray(values.T)


class Single:
    """Draws one solution at a time without the cost of numpy's calls: a circuit as lists.

    Args:
        buckets: of the circuit.
        rows: the weights of their rows without pins.
        variables: number of all variables.
    """

    def __init__(self, buckets: Sequence[Bucket], rows: Sequence[Floats], variables: int) -> None:
        self._empty = [0] * variables
        self._base = rows
        self._listed = []
        for position in reversed(range(len(buckets))):
            bucket = buckets[position]
            columns = [
                (variable, column.tolist()) for variable, column in zip(bucket.variables, bucket.values, strict=True)
            ]
            if bucket.size == 1 and not bucket.references:
                for variable, column in columns:
                    self._empty[variable] = column[0]
                continue
            references = [(child, group.tolist()) for child, group in bucket.references]
            start = [] if bucket.start is None else [*bucket.start.tolist(), bucket.size]
            below: list[float] = []
            for first, last in pairwise(start):
                partial = rows[position][first:last].cumsum()
                below += (partial / partial[-1]).tolist()
            self._listed.append((position, start, below, columns, references))

    def draw(self, rng: np.random.Generator, rows: Sequence[Floats]) -> list[int]:
        """Value indices of every variable; 0 for variables of no bucket.

        Args:
            rng: what is random.
            rows: the weights of the buckets' rows; those without pins are known.
        """
        values = self._empty.copy()
        group: dict[int, int] = {}
        uniform = rng.random(len(self._listed)).tolist()
        for number, (position, start, below, columns, references) in enumerate(self._listed):
            row = group.get(position, 0)
            if start:
                first, last = start[row], start[row + 1]
                if last - first == 1:
                    row = first
                elif rows[position] is self._base[position]:
                    row = bisect_right(below, uniform[number], first, last - 1)
                else:
                    partial = rows[position][first:last].cumsum()
                    target = min(uniform[number] * partial[-1], np.nextafter(partial[-1], 0))
                    row = first + int(partial.searchsorted(target, "right"))
            for variable, column in columns:
                values[variable] = column[row]
            for child, reference in references:
                group[child] = reference[row]
        return values
