"""An exact counting circuit over a constraint satisfaction problem: count, uniform samples, marginals, all under pins.

Variables are eliminated one after another (bucket elimination) and the trace is kept: a bucket holds the join of all
tables that mention its variable, grouped by the rest of its scope, and each row refers to one group of each earlier
bucket it was joined with. Going up adds and multiplies weights; going down draws a row of a group in proportion to
its weight and follows its references, which samples solutions exactly uniformly. In the terms of knowledge
compilation: a multi-valued d-DNNF.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.space.alias import Alias, without_aliases
from heron_asp.space.elimination import Bucket, smallest, without_constants
from heron_asp.space.table import Index, Table, arc_consistent

Weights = Mapping[int, npt.NDArray[np.float64]]
Floats = npt.NDArray[np.float64]
_MOST_LISTED = 2_000_000  # rows of a circuit that is kept as lists as well
_FEW = 4  # samples that are faster drawn one by one


@dataclass(frozen=True)
class _Listed:
    """A bucket as lists, which are faster to index one by one than arrays.

    Attributes:
        variable, values, references: as in the bucket.
        start: first row of each group and the number of rows; None where every group has one row.
        below: for each row the share of its group's weight up to it.
    """

    variable: int
    values: list[int]
    start: list[int] | None
    below: list[float]
    references: tuple[tuple[int, list[int]], ...]

    @staticmethod
    def of(bucket: Bucket, rows: Floats) -> _Listed:
        references = tuple((child, group.tolist()) for child, group in bucket.references)
        if bucket.functional:
            return _Listed(bucket.variable, bucket.values.tolist(), None, [], references)
        start = [*bucket.start.tolist(), len(rows)]
        below: list[float] = []
        for first, last in pairwise(start):
            partial = rows[first:last].cumsum()
            below += (partial / partial[-1]).tolist()
        return _Listed(bucket.variable, bucket.values.tolist(), start, below, references)


@dataclass(frozen=True)
class Pass:
    """What going up computed: the weight of every row and of every group of every bucket."""

    rows: tuple[Any, ...]
    groups: tuple[Any, ...]
    total: Any


class Circuit:
    """The compiled problem.

    Args:
        domain: number of values of each variable.
        tables: constraints; a variable in none of them is free.
        limit: most rows of all buckets together.
        restarts: elimination orders to try; the smallest is kept.

    Raises:
        TooLargeError: no order stays within `limit`.
    """

    def __init__(
        self, domain: Sequence[int], tables: Sequence[Table], limit: int = 8_000_000, restarts: int = 4
    ) -> None:
        self.domain = list(domain)
        reduced, self.alive = arc_consistent(tables, self.domain)
        self.satisfiable = all(mask.any() for mask in self.alive)
        self.buckets: list[Bucket] = []
        self._base: Pass | None = None
        self.aliases: dict[int, Alias] = {}
        if self.satisfiable:
            kept, self.aliases = without_aliases(without_constants(reduced, self.alive), self.domain)
            variables = [variable for variable in range(len(self.domain)) if variable not in self.aliases]
            self.buckets = smallest(self.domain, kept, self.alive, variables, limit, restarts)
            self.satisfiable = all(len(bucket.values) for bucket in self.buckets)
        roots = set(range(len(self.buckets)))
        for bucket in self.buckets:
            roots -= {child for child, _ in bucket.references}
        self._roots = sorted(roots)

    @property
    def rows(self) -> int:
        """Rows of all buckets: the size of the circuit."""
        return sum(len(bucket.values) for bucket in self.buckets)

    def count(self, weights: Weights | None = None) -> int:
        """The exact number of solutions; with weights, of solutions whose pinned values have weight 1."""
        if not self.satisfiable:
            return 0
        base = self.up(weights or {})
        if base.total < 2**53:
            return int(base.total)
        return int(self._up(self._of_roots(weights or {}), None, exact=True).total)

    def up(self, weights: Weights) -> Pass:
        """The upward pass; only what the weights touch is computed anew."""
        if self._base is None:
            self._base = self._up({}, None, exact=False)
        return self._up(self._of_roots(weights), self._base, exact=False) if weights else self._base

    def _of_roots(self, weights: Weights) -> Weights:
        """Weights of variables that have an equal one, moved to that one."""
        if self.aliases.keys().isdisjoint(weights):
            return weights
        moved = {variable: weight for variable, weight in weights.items() if variable not in self.aliases}
        for variable, alias in self.aliases.items():
            if variable in weights:
                weight = alias.spread(weights[variable], 0.0)
                moved[alias.root] = weight * moved[alias.root] if alias.root in moved else weight
        return moved

    def _fill(self, values: Index) -> Index:
        """Value indices with those of equal variables."""
        for variable, alias in self.aliases.items():
            values[:, variable] = alias.index[values[:, alias.root]]
        return values

    def _up(self, weights: Weights, base: Pass | None, exact: bool) -> Pass:
        rows: list[Any] = []
        groups: list[Any] = []
        dirty: list[bool] = []
        for number, bucket in enumerate(self.buckets):
            own = weights.get(bucket.variable)
            changed = base is None or own is not None or any(dirty[child] for child, _ in bucket.references)
            dirty.append(changed)
            if not changed and base is not None:
                rows.append(base.rows[number])
                groups.append(base.groups[number])
                continue
            weight: Any = None if own is None else own[bucket.values]
            if exact:
                weight = np.array([1] * len(bucket.values) if own is None else [int(w) for w in weight], dtype=object)
            for child, group in bucket.references:
                factor = groups[child][group]
                weight = factor if weight is None else weight * factor
            if weight is None:
                weight = np.ones(len(bucket.values))
            rows.append(weight)
            groups.append(weight if bucket.functional else np.add.reduceat(weight, bucket.start))
        total: Any = 1 if exact else 1.0
        for root in self._roots:
            total = total * groups[root][0]
        return Pass(tuple(rows), tuple(groups), total)

    def sample(self, number: int, rng: np.random.Generator, weights: Weights | None = None) -> Index:
        """Independent, exactly uniform solutions (in proportion to their weight, if weights are given).

        Returns:
            Value indices, shape (number, variables); no rows if there is no solution.
        """
        if not self.satisfiable:
            return np.zeros((0, len(self.domain)), dtype=np.intp)
        state = self.up(weights or {})
        if state.total == 0:
            return np.zeros((0, len(self.domain)), dtype=np.intp)
        if number <= _FEW and self.rows <= _MOST_LISTED:
            return np.array([self._one(rng, state) for _ in range(number)], dtype=np.intp)
        values = np.zeros((number, len(self.domain)), dtype=np.intp)
        group: list[Any] = [np.zeros(number, dtype=np.intp)] * len(self.buckets)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            row = group[position]
            if not bucket.functional:
                row = _draw(bucket, state.rows[position], row, rng)
            values[:, bucket.variable] = bucket.values[row]
            for child, reference in bucket.references:
                group[child] = reference[row]
        return self._fill(values)

    def _one(self, rng: np.random.Generator, state: Pass) -> list[int]:
        """A single solution, without the cost of numpy's calls where there is nothing to choose."""
        constants, listed = self._listed
        row = constants.copy()
        group = [0] * len(self.buckets)
        uniform = rng.random(len(listed)).tolist()
        for number, (position, one) in enumerate(listed):
            at = group[position]
            if one.start is not None:
                first, last = one.start[at], one.start[at + 1]
                if last - first == 1:
                    at = first
                elif state is self._base:
                    at = bisect_right(one.below, uniform[number], first, last - 1)
                else:
                    partial = state.rows[position][first:last].cumsum()
                    below = min(uniform[number] * partial[-1], np.nextafter(partial[-1], 0))
                    at = first + int(partial.searchsorted(below, "right"))
            row[one.variable] = one.values[at]
            for child, reference in one.references:
                group[child] = reference[at]
        for variable, root, index in self._listed_aliases:
            row[variable] = index[row[root]]
        return row

    @cached_property
    def _listed_aliases(self) -> list[tuple[int, int, list[int]]]:
        return [(variable, alias.root, alias.index.tolist()) for variable, alias in self.aliases.items()]

    @cached_property
    def _listed(self) -> tuple[list[int], list[tuple[int, _Listed]]]:
        """The values of variables that have one, and the buckets of the others from the last to the first."""
        state = self.up({})
        constants = [0] * len(self.domain)
        listed: list[tuple[int, _Listed]] = []
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            if len(bucket.values) == 1 and not bucket.references:
                constants[bucket.variable] = int(bucket.values[0])
            else:
                listed.append((position, _Listed.of(bucket, state.rows[position])))
        return constants, listed

    def best(self, scores: Weights, weights: Weights | None = None) -> tuple[Index, float] | None:
        """The solution with the largest sum of scores, one a variable.

        Args:
            scores: for a variable the score of each of its values; 0 for variables that are not named.
            weights: solutions of weight 0 do not count.

        Returns:
            Value indices, shape (variables,), and the sum; None if there is no solution.
        """
        if not self.satisfiable:
            return None
        weights = self._of_roots(weights or {})
        scores = dict(scores)
        for variable, alias in self.aliases.items():
            if variable in scores:
                scores[alias.root] = scores.get(alias.root, 0.0) + alias.spread(scores[variable], -np.inf)
        rows: list[Floats] = []
        groups: list[Floats] = []
        for bucket in self.buckets:
            own = scores.get(bucket.variable)
            value = np.zeros(len(bucket.values)) if own is None else own[bucket.values].astype(np.float64)
            pin = weights.get(bucket.variable)
            if pin is not None:
                value = np.where(pin[bucket.values] > 0, value, -np.inf)
            for child, group in bucket.references:
                value = value + groups[child][group]
            rows.append(value)
            groups.append(np.maximum.reduceat(value, bucket.start))
        total = sum(float(groups[root][0]) for root in self._roots)
        if total == -np.inf:
            return None
        values = np.zeros(len(self.domain), dtype=np.intp)
        chosen = [0] * len(self.buckets)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            first, last = int(bucket.start[chosen[position]]), bucket.end(chosen[position])
            row = first + int(rows[position][first:last].argmax())
            values[bucket.variable] = bucket.values[row]
            for child, reference in bucket.references:
                chosen[child] = int(reference[row])
        return self._fill(values[None, :])[0], total

    def marginals(self, weights: Weights | None = None) -> dict[int, Floats]:
        """For each variable the share of solutions that have each of its values."""
        if not self.satisfiable:
            return {}
        state = self.up(weights or {})
        if state.total == 0:
            return {}
        share: list[Floats] = [np.zeros(len(bucket.start)) for bucket in self.buckets]
        result: dict[int, Floats] = {}
        for root in self._roots:
            share[root] = np.ones(1, dtype=np.float64)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            per_group = np.divide(
                share[position],
                state.groups[position],
                where=state.groups[position] > 0,
                out=np.zeros_like(share[position]),
            )
            sizes = np.diff(np.append(bucket.start, len(bucket.values)))
            flow = np.repeat(per_group, sizes) * state.rows[position]
            shares = np.bincount(bucket.values, flow, minlength=self.domain[bucket.variable])
            result[bucket.variable] = shares.astype(np.float64)
            for child, reference in bucket.references:
                share[child] += np.bincount(reference, flow, minlength=len(share[child]))
        for variable, alias in self.aliases.items():
            found = alias.index >= 0
            shares = np.bincount(alias.index[found], result[alias.root][found], minlength=self.domain[variable])
            result[variable] = shares.astype(np.float64)
        return result


def _draw(bucket: Bucket, rows: Floats, group: Index, rng: np.random.Generator) -> Index:
    """One row for each entry of `group`, in proportion to its weight within the group.

    A uniform number below the group's sum is looked up among its partial sums; the row whose partial sum is the first
    above it has a positive weight.
    """
    uniform = rng.random(len(group))
    if len(group) * 8 < len(rows):  # few draws: only the groups that are asked for
        chosen = np.empty(len(group), dtype=np.intp)
        for i, g in enumerate(group):
            first, last = bucket.start[g], bucket.end(g)
            if last - first == 1:
                chosen[i] = first
                continue
            cumulated = rows[first:last].cumsum()
            total = cumulated[-1]
            chosen[i] = first + cumulated.searchsorted(min(uniform[i] * total, np.nextafter(total, 0)), "right")
        return chosen
    sizes = np.diff(np.append(bucket.start, len(rows)))
    sums = np.add.reduceat(rows, bucket.start)
    cumulated = np.cumsum(rows / np.repeat(np.where(sums > 0, sums, 1.0), sizes))  # a group adds 1: no cancellation
    below = np.concatenate([[0.0], cumulated])[bucket.start[group]]
    top = cumulated[(bucket.start + sizes - 1)[group]]
    target = np.minimum(below + uniform * (top - below), np.nextafter(top, 0))
    row: Index = np.searchsorted(cumulated, np.maximum(target, below), "right").astype(np.intp)
    return row
