"""Bucket elimination: the order of variables, and the buckets that it leaves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heron_asp.space.table import Index, Joined, Table, TooLargeError, codes, join


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


def smallest(
    domain: list[int],
    tables: list[Table],
    alive: list[npt.NDArray[np.bool_]],
    variables: Sequence[int],
    limit: int,
    restarts: int,
) -> list[Bucket]:
    """The buckets of the best of a few elimination orders.

    Args:
        domain: number of values of each variable.
        tables: constraints, arc-consistent.
        alive: for each variable, the values that are left.
        variables: those to eliminate.
        limit: most rows of all buckets together.
        restarts: orders to try; fewer if one is small.

    Raises:
        TooLargeError: no order stays within `limit`.
    """
    best: list[Bucket] | None = None
    best_rows = limit
    generator = random.Random(0)  # noqa: S311 - a reproducible search, no secret
    for attempt in range(restarts):
        noise = 0.0 if attempt == 0 else 0.6
        try:
            buckets = _Elimination(domain, tables, alive, best_rows).run(variables, noise, generator)
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

    def run(self, variables: Sequence[int], noise: float, generator: random.Random) -> list[Bucket]:
        remaining = dict.fromkeys(variables)
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


def without_constants(tables: Sequence[Table], alive: list[npt.NDArray[np.bool_]]) -> list[Table]:
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
