"""An exact counting circuit over a constraint satisfaction problem: count, uniform samples, marginals, all under pins.

Variables are eliminated one after another (bucket elimination) and the trace is kept: a bucket holds the join of all
tables that mention its variable, grouped by the rest of its scope, and each row refers to one group of each earlier
bucket it was joined with. Going up adds and multiplies weights; going down draws a row of a group in proportion to
its weight and follows its references, which samples solutions exactly uniformly. In the terms of knowledge
compilation: a multi-valued d-DNNF.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.space.table import Index, Joined, Table, TooLargeError, arc_consistent, codes, join

Weights = Mapping[int, npt.NDArray[np.float64]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bucket:
    """One eliminated variable.

    Attributes:
        variable: its number.
        values: the variable's value index in each row.
        start: first row of each group; groups are the rows of the message that the bucket sends up.
        references: for each earlier bucket that was joined, its number and the group that each row refers to.
    """

    variable: int
    values: Index
    start: Index
    references: tuple[tuple[int, Index], ...]

    def end(self, group: int) -> int:
        """The row after the last one of a group."""
        return int(self.start[group + 1]) if group + 1 < len(self.start) else len(self.values)

    @property
    def functional(self) -> bool:
        """Whether every group has one row: the rest of the scope determines the variable."""
        return len(self.start) == len(self.values)


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
        if self.satisfiable:
            self.buckets = _smallest(self.domain, _without_constants(reduced, self.alive), self.alive, limit, restarts)
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
        return int(self._up(weights or {}, None, exact=True).total)

    def up(self, weights: Weights) -> Pass:
        """The upward pass; only what the weights touch is computed anew."""
        if self._base is None:
            self._base = self._up({}, None, exact=False)
        return self._up(weights, self._base, exact=False) if weights else self._base

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
        return values

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


def _smallest(
    domain: list[int], tables: list[Table], alive: list[npt.NDArray[np.bool_]], limit: int, restarts: int
) -> list[Bucket]:
    best: list[Bucket] | None = None
    best_rows = limit
    generator = random.Random(0)  # noqa: S311 - a reproducible search, no secret
    for attempt in range(restarts):
        noise = 0.0 if attempt == 0 else 0.6
        try:
            buckets = _Elimination(domain, tables, alive, best_rows).run(noise, generator)
        except TooLargeError:
            continue
        rows = sum(len(bucket.values) for bucket in buckets)
        if best is None or rows < best_rows:
            best, best_rows = buckets, rows
        if rows < 20_000:  # a better order would save less than it costs to find
            break
    if best is None:
        raise TooLargeError
    return best


class _Elimination:
    """One run of bucket elimination, greedy by the estimated rows of the next bucket."""

    def __init__(self, domain: list[int], tables: list[Table], alive: list[npt.NDArray[np.bool_]], limit: int) -> None:
        self.domain = domain
        self.limit = limit
        self.size = [int(mask.sum()) for mask in alive]
        self.alive = alive
        self.factors: dict[int, tuple[Table, int | None]] = {}  # number -> table, bucket that sent it
        self.users: dict[int, dict[int, None]] = {variable: {} for variable in range(len(domain))}
        self.buckets: list[Bucket] = []
        self.total = 0
        self._next = 0
        for one in _merged(tables, domain):
            self._add(one, None)

    def _add(self, one: Table, sender: int | None) -> None:
        self.factors[self._next] = (one, sender)
        for variable in one.scope:
            self.users[variable][self._next] = None
        self._next += 1

    def run(self, noise: float, generator: random.Random) -> list[Bucket]:
        remaining = dict.fromkeys(range(len(self.domain)))
        cost = {variable: self._estimate(variable) for variable in remaining}
        while remaining:
            variable = min(remaining, key=lambda v: cost[v] * (1 + noise * generator.random()))
            del remaining[variable]
            for neighbour in self._eliminate(variable):
                if neighbour in remaining:
                    cost[neighbour] = self._estimate(neighbour)
        return self.buckets

    def _estimate(self, variable: int) -> float:
        """Expected rows of the join of all tables that mention a variable."""
        estimate = 1.0
        seen: set[int] = set()
        for one, _ in sorted((self.factors[number] for number in self.users[variable]), key=lambda f: -len(f[0].rows)):
            shared = 1.0
            for other in one.scope:
                if other in seen:
                    shared *= self.size[other]
            estimate *= max(len(one.rows) / shared, 1e-9)
            seen.update(one.scope)
        combinations = 1.0
        for other in seen:
            combinations *= self.size[other]
        return min(max(estimate, 1.0), combinations)

    def _eliminate(self, variable: int) -> set[int]:
        numbers = list(self.users[variable])
        parts = []
        neighbours: set[int] = set()
        for number in numbers:
            one, sender = self.factors.pop(number)
            for other in one.scope:
                self.users[other].pop(number)
            neighbours.update(one.scope)
            parts.append((one, sender))
        parts.sort(key=lambda part: len(part[0].rows))
        neighbours.discard(variable)
        joined, senders = self._join(variable, parts)
        self._finish(variable, joined, senders)
        return neighbours

    def _join(self, variable: int, parts: list[tuple[Table, int | None]]) -> tuple[Joined, list[int | None]]:
        if not parts:
            rows = np.flatnonzero(self.alive[variable]).astype(np.int32)[:, None]
            return Joined(Table((variable,), rows), ()), []
        first, sender = parts.pop(0)
        origin = np.arange(len(first.rows)) if sender is not None else None
        joined, senders = Joined(first, (origin,)), [sender]
        while parts:  # next the table that shares most and adds least
            best = max(
                range(len(parts)),
                key=lambda i: (len(set(parts[i][0].scope) & set(joined.table.scope)), -len(parts[i][0].rows)),
            )
            one, sender = parts.pop(best)
            joined = join(joined, one, sender is not None, self.domain, self.limit - self.total)
            senders.append(sender)
        return joined, senders

    def _finish(self, variable: int, joined: Joined, senders: list[int | None]) -> None:
        scope = tuple(other for other in joined.table.scope if other != variable)
        columns = [joined.table.scope.index(other) for other in scope]
        code = codes(joined.table.rows, columns, [self.domain[other] for other in scope])
        values = joined.table.column(variable)
        order = np.lexsort((values, code))
        code = code[order]
        start = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]])) if len(code) else np.zeros(0, np.intp)
        self.total += len(code)
        if self.total > self.limit:
            raise TooLargeError
        references = tuple(
            (sender, origin[order].astype(np.intp))
            for sender, origin in zip(senders, joined.origins, strict=True)
            if sender is not None and origin is not None
        )
        self.buckets.append(Bucket(variable, values[order].astype(np.intp), start, references))
        if scope:
            message = Table(scope, joined.table.rows[order][start][:, columns])
            self._add(message, len(self.buckets) - 1)


def _without_constants(tables: Sequence[Table], alive: list[npt.NDArray[np.bool_]]) -> list[Table]:
    """The tables without the variables that have one value left."""
    kept = []
    for one in tables:
        columns = [i for i, variable in enumerate(one.scope) if alive[variable].sum() > 1]
        kept.append(Table(tuple(one.scope[i] for i in columns), one.rows[:, columns]))
    return kept


def _merged(tables: Sequence[Table], domain: list[int]) -> list[Table]:
    """Tables of equal scope intersected; tables over no variable are true and drop out."""
    merged: dict[tuple[int, ...], Table] = {}
    for one in tables:
        order = sorted(range(len(one.scope)), key=lambda i: one.scope[i])
        scope = tuple(one.scope[i] for i in order)
        rows = one.rows[:, order]
        if scope in merged:
            sizes = [domain[variable] for variable in scope]
            columns = range(len(scope))
            rows = rows[np.isin(codes(rows, columns, sizes), codes(merged[scope].rows, columns, sizes))]
        merged[scope] = Table(scope, rows)
    return [one for scope, one in merged.items() if scope]
