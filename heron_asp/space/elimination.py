"""Bucket elimination: the order of variables, and the buckets that it leaves.

All tables that mention a variable are joined, and with it go all variables that no other table mentions. Where the
others determine them, which functional dependencies tell, there is nothing to group: the join stays a table that
carries them along. Otherwise its rows become a bucket, grouped by the rest of its scope, and the groups a new table.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heron_asp.space.relation import Column, Relation, closure, join, key, relation, supported, without
from heron_asp.space.table import Index, Table, TooLargeError, codes, packed, sorting, starts

_SMALL = 20_000  # rows from which a better order would save less than it costs to find
_PATIENCE = 2  # times the rows that the next join is expected to have
_WORK = 3_000_000  # joined and grouped rows of all orders that are tried, about
_FEW = 2_000  # rows of a bucket that costs more by itself than within another one


@dataclass(frozen=True)
class Bucket:
    """Eliminated variables.

    Attributes:
        variables: their numbers.
        values: for each variable its value index in each row.
        size: number of rows.
        start: first row of each group, the larger groups first; None where every row is a group. Groups are what later
            buckets refer to.
        references: for each earlier bucket that was joined, its number and the group that each row refers to.
    """

    variables: tuple[int, ...]
    values: tuple[Column, ...]
    size: int
    start: Index | None
    references: tuple[tuple[int, Index], ...]

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.size if self.start is None else len(self.start)


def smallest(
    tables: Sequence[Table],
    alive: Sequence[npt.NDArray[np.bool_]],
    variables: Sequence[int],
    limit: int,
    restarts: int,
) -> list[Bucket]:
    """The buckets of the best of a few elimination orders.

    Args:
        tables: constraints, arc-consistent.
        alive: for each variable, which of its values are left.
        variables: those to eliminate.
        limit: most rows of all buckets together.
        restarts: orders to try; fewer if one is small, or if they are large.

    Raises:
        TooLargeError: no order stays within `limit`.
    """
    left = [np.flatnonzero(mask).astype(np.int32) for mask in alive]
    number = [np.cumsum(mask, dtype=np.int32) - 1 for mask in alive]  # elimination numbers values that are left only
    domain = [len(values) for values in left]
    narrow = [
        Table(one.scope, np.stack([number[v][one.rows[:, i]] for i, v in enumerate(one.scope)], axis=1))
        for one in tables
        if one.scope
    ]
    relations = [relation(one, domain) for one in _merged(narrow, domain)]
    best: list[Bucket] | None = None
    best_rows = limit
    spent = 0
    generator = random.Random(0)  # noqa: S311 - a reproducible search, no secret
    for attempt in range(restarts):
        elimination = _Elimination(domain, relations, variables, best_rows)
        try:
            buckets = elimination.run(0.0 if attempt == 0 else 0.6, generator)
        except TooLargeError:
            buckets = None
        if buckets is not None and (best is None or elimination.total < best_rows):
            best, best_rows = buckets, elimination.total
        spent += elimination.work
        if spent + spent // (attempt + 1) > _WORK or (best is not None and best_rows < _SMALL):
            break
    if best is None:
        raise TooLargeError(limit + 1)
    return [
        replace(one, values=tuple(left[v].take(column) for v, column in zip(one.variables, one.values, strict=True)))
        for one in without_dead(best)
    ]


class _Elimination:
    """One run of bucket elimination, greedy by the estimated rows of the next join."""

    def __init__(
        self,
        domain: Sequence[int],
        relations: Sequence[Relation],
        variables: Sequence[int],
        limit: int,
    ) -> None:
        self.domain = domain
        self.variables = variables
        self.limit = limit
        self.factors: dict[int, Relation] = {}
        self.users: dict[int, dict[int, None]] = {variable: {} for variable in range(len(domain))}
        self.buckets: list[Bucket] = []
        self.total = 0
        self.work = 0
        self._next = 0
        for one in relations:
            self._add(one)
        for variable in variables:
            if not self.users[variable]:  # free
                every = np.arange(domain[variable], dtype=np.int32)
                self._add(Relation({variable: every}, len(every), frozenset()))

    def _add(self, one: Relation) -> None:
        self.factors[self._next] = one
        for variable in one.columns:
            self.users[variable][self._next] = None
        self._next += 1

    def run(self, noise: float, generator: random.Random) -> list[Bucket]:
        """Eliminates all variables.

        Where a join turns out far larger than what the next variable is expected to take, that one goes first.

        Raises:
            TooLargeError: there would be more rows than the limit.
        """
        cost = {variable: self._estimate(variable) for variable in self.variables}
        while cost:
            noisy = {variable: value * (1 + noise * generator.random()) for variable, value in cost.items()}
            variable = min(noisy, key=noisy.__getitem__)
            expected = noisy.pop(variable)
            room = _PATIENCE * max(expected, min(noisy.values(), default=math.inf)) + _SMALL
            left = self.limit - self.total
            parts = [self.factors[number] for number in self.users[variable]]
            try:
                joined, origins, work = join(parts, self.domain, left if room >= left else int(room))
            except TooLargeError as error:
                if room >= left:
                    raise
                cost.update((one, float(error.rows)) for one in cost if self.users[one] == self.users[variable])
                continue
            self.work += work
            gone, neighbours = self._eliminate(variable, joined, origins)
            for one in gone:
                del cost[one]
            for neighbour in neighbours:
                cost[neighbour] = self._estimate(neighbour)
        return self.buckets

    def _estimate(self, variable: int) -> float:
        """Expected rows of the join of all tables that mention a variable."""
        estimate = 1.0
        seen: set[int] = set()
        for one in sorted((self.factors[number] for number in self.users[variable]), key=lambda one: -one.size):
            shared = 1.0
            for other in one.columns:
                if other in seen:
                    shared *= self.domain[other]
            estimate *= max(one.size / shared, 1e-9)
            seen.update(one.columns)
        combinations = 1.0
        for other in seen:
            combinations *= self.domain[other]
        return min(max(estimate, 1.0), combinations)

    def _eliminate(self, variable: int, joined: Relation, origins: list[Index | None]) -> tuple[list[int], list[int]]:
        """Eliminates a variable and all others that only the same tables mention; returns these, and neighbours.

        Args:
            variable: the variable.
            joined: the join of all tables that mention it.
            origins: for each of these the rows that the join's come from.
        """
        parts = [self.factors.pop(number) for number in self.users[variable]]
        for number, one in zip(list(self.users[variable]), parts, strict=True):
            for other in one.columns:
                del self.users[other][number]
        joined, origins = self._supported(joined, origins)
        gone = [other for other in joined.columns if not self.users[other]]
        self._finish(self._carrying(joined, parts, origins), gone)
        return gone, [other for other in joined.columns if self.users[other]]

    def _supported(self, joined: Relation, origins: list[Index | None]) -> tuple[Relation, list[Index | None]]:
        """A large join without rows that another table refutes."""
        if joined.size < _SMALL:
            return joined, origins
        shared = Counter(number for variable in joined.columns for number in self.users[variable])
        others = [self.factors[number] for number, variables in shared.items() if variables > 1]
        for other in sorted(others, key=lambda one: one.size):
            rows = supported(joined, other, self.domain)
            self.work += joined.size // 2
            if rows is not None:
                columns = {variable: column.take(rows) for variable, column in joined.columns.items()}
                joined = Relation(columns, len(rows), joined.dependencies)
                origins = [rows if origin is None else origin.take(rows) for origin in origins]
        return joined, origins

    def _carrying(self, joined: Relation, parts: Sequence[Relation], origins: Sequence[Index | None]) -> Relation:
        """A join with what its parts carry, which stays with a part's own rows if the join has more of them."""
        carried: list[tuple[int, Column]] = []
        references: list[tuple[int, Index]] = []
        for part, origin in zip(parts, origins, strict=True):
            if part.carried and joined.size > max(part.size, _FEW):
                variables, values = zip(*part.carried, strict=True)
                self._bucket(variables, values, None, part.references)
                rows = np.arange(joined.size) if origin is None else origin
                references.append((len(self.buckets) - 1, rows))
            elif origin is None:
                carried += part.carried
                references += part.references
            else:
                carried += [(variable, column.take(origin)) for variable, column in part.carried]
                references += [(bucket, group.take(origin)) for bucket, group in part.references]
        return Relation(joined.columns, joined.size, joined.dependencies, tuple(carried), tuple(references))

    def _finish(self, joined: Relation, gone: Sequence[int]) -> None:
        """Takes variables out of a join."""
        scope = [variable for variable in joined.columns if variable not in gone]
        dependencies = without(joined.dependencies, gone, scope)
        carried = (*joined.carried, *((variable, joined.columns[variable]) for variable in gone))
        columns = {variable: joined.columns[variable] for variable in scope}
        if scope and closure(scope, joined.dependencies).issuperset(gone):
            self._add(Relation(columns, joined.size, dependencies, carried, joined.references))
            return
        self.work += joined.size
        order, start = self._grouped(joined, scope)
        if scope and len(start) == joined.size:
            self._add(Relation(columns, joined.size, dependencies, carried, joined.references))
            return
        variables, values = zip(*carried, strict=True)
        references = tuple((bucket, group.take(order)) for bucket, group in joined.references)
        self._bucket(variables, tuple(column.take(order) for column in values), start, references)
        if scope:
            first = order.take(start)
            rest = {variable: column.take(first) for variable, column in columns.items()}
            sent = ((len(self.buckets) - 1, np.arange(len(start))),)
            self._add(Relation(rest, len(start), dependencies, (), sent))

    def _grouped(self, joined: Relation, scope: Sequence[int]) -> tuple[Index, Index]:
        """The order of a join's rows by the values of a scope, and where each group starts in it."""
        by = key(scope, joined.dependencies, self.domain)
        if not by:
            return np.arange(joined.size), np.zeros(min(1, joined.size), dtype=np.intp)
        code, span = packed([joined.columns[variable] for variable in by], [self.domain[v] for v in by])
        order = sorting(code, span)
        return order, starts(code.take(order))

    def _bucket(
        self,
        variables: tuple[int, ...],
        values: tuple[Column, ...],
        start: Index | None,
        references: tuple[tuple[int, Index], ...],
    ) -> None:
        size = len(values[0])
        self.total += size
        if self.total > self.limit:
            raise TooLargeError(self.total)
        self.buckets.append(Bucket(variables, values, size, start, references))


def without_dead(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The buckets without the rows that no solution takes, and with larger groups first."""
    live = [np.zeros(bucket.groups, dtype=bool) for bucket in buckets]
    kept: list[Index] = []
    number: list[Index] = []
    start: list[Index | None] = []
    read = {child for bucket in buckets for child, _ in bucket.references}
    for position in reversed(range(len(buckets))):
        bucket = buckets[position]
        groups = np.flatnonzero(live[position]) if position in read else np.arange(bucket.groups)
        rows, first = groups, None
        if bucket.start is not None:
            size = np.diff(np.append(bucket.start, bucket.size))
            groups = groups[np.argsort(-size[groups], kind="stable")]
            size = size[groups]
            first = np.cumsum(size) - size
            rows = np.repeat(bucket.start[groups] - first, size) + np.arange(size.sum())
        for child, group in bucket.references:
            live[child][group[rows]] = True
        place = np.zeros(bucket.groups, dtype=np.intp)
        place[groups] = np.arange(len(groups))
        kept.append(rows)
        number.append(place)
        start.append(first)
    for found in (kept, number, start):
        found.reverse()
    return [
        Bucket(
            bucket.variables,
            tuple(column.take(kept[i]) for column in bucket.values),
            len(kept[i]),
            start[i],
            tuple((child, number[child].take(group.take(kept[i]))) for child, group in bucket.references),
        )
        for i, bucket in enumerate(buckets)
    ]


def without_constants(tables: Sequence[Table], alive: Sequence[npt.NDArray[np.bool_]]) -> list[Table]:
    """The tables without the variables that have one value left."""
    kept = []
    for one in tables:
        columns = [i for i, variable in enumerate(one.scope) if alive[variable].sum() > 1]
        kept.append(Table(tuple(one.scope[i] for i in columns), one.rows[:, columns]))
    return kept


def _merged(tables: Sequence[Table], domain: Sequence[int]) -> list[Table]:
    """Tables of equal scope intersected; those that allow every value of a variable drop out."""
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
    return [one for scope, one in merged.items() if len(scope) != 1 or len(one.rows) < domain[scope[0]]]
