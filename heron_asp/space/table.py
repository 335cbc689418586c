"""Tables over finite variables: the common form of every ground constraint, and what elimination does with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Table:
    """Allowed combinations of value indices.

    Attributes:
        scope: variables, by number, without repetition.
        rows: shape (combinations, len(scope)); unique rows.
    """

    scope: tuple[int, ...]
    rows: Rows

    def column(self, variable: int) -> npt.NDArray[np.int32]:
        """Value indices of one variable."""
        return self.rows[:, self.scope.index(variable)]

    def keep(self, mask: npt.NDArray[np.bool_]) -> Table:
        """The rows under a mask."""
        return Table(self.scope, self.rows[mask])


def table(scope: Sequence[int], rows: Sequence[Sequence[int]] | Rows) -> Table:
    """Makes a table; a variable that is named twice must have the same value twice."""
    array = np.asarray(rows, dtype=np.int32).reshape(-1, len(scope))
    distinct = list(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        first = {variable: scope.index(variable) for variable in distinct}
        agree = np.all([array[:, i] == array[:, first[v]] for i, v in enumerate(scope)], axis=0)
        array = array[agree][:, [first[variable] for variable in distinct]]
    return Table(tuple(distinct), np.unique(array, axis=0))


def codes(rows: Rows | Index, columns: Sequence[int], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """One number for each row's values in some columns: equal numbers are equal values, in lexicographic order."""
    code = np.zeros(len(rows), dtype=np.int64)
    span = 1
    for column, size in zip(columns, sizes, strict=True):
        if span * size > 2**62:  # keep within int64: number the combinations that occur
            occurring, code = np.unique(code, return_inverse=True)
            span = len(occurring)
        code = code * size + rows[:, column]
        span *= size
    return code


@dataclass(frozen=True)
class Joined:
    """A table whose rows remember which rows of its sources they came from (None: not asked for)."""

    table: Table
    origins: tuple[Index | None, ...]


class TooLargeError(Exception):
    """A join would exceed its limit of rows."""


def join(left: Joined, right: Table, remember: bool, domain: Sequence[int], limit: int) -> Joined:
    """The natural join of a table with another.

    Args:
        left: what was joined so far.
        right: the table to join.
        remember: keep the row numbers of `right` as a further origin.
        domain: number of values of every variable.
        limit: most rows.

    Raises:
        TooLargeError: the join has more rows than `limit`.
    """
    common = [variable for variable in right.scope if variable in left.table.scope]
    extra = [i for i, variable in enumerate(right.scope) if variable not in left.table.scope]
    shared = np.concatenate(
        [
            left.table.rows[:, [left.table.scope.index(variable) for variable in common]],
            right.rows[:, [right.scope.index(variable) for variable in common]],
        ]
    )
    code = codes(shared, range(len(common)), [domain[variable] for variable in common])
    left_key, right_key = code[: len(left.table.rows)], code[len(left.table.rows) :]
    order = np.argsort(right_key, kind="stable")
    sorted_key = right_key[order]
    start = np.searchsorted(sorted_key, left_key, "left")
    count = np.searchsorted(sorted_key, left_key, "right") - start
    total = int(count.sum())
    if total > limit:
        raise TooLargeError
    left_row = np.repeat(np.arange(len(left_key)), count)
    offset = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    right_row = order[np.repeat(start, count) + offset]
    rows = np.concatenate([left.table.rows[left_row], right.rows[right_row][:, extra]], axis=1)
    scope = left.table.scope + tuple(right.scope[i] for i in extra)
    origins = tuple(None if origin is None else origin[left_row] for origin in left.origins)
    return Joined(Table(scope, rows), (*origins, right_row if remember else None))


def arc_consistent(tables: Sequence[Table], domain: Sequence[int]) -> tuple[list[Table], list[npt.NDArray[np.bool_]]]:
    """Drops values that no table row supports, and rows with such values, until nothing changes.

    Returns:
        The smaller tables, and for each variable which of its values remain.
    """
    alive = [np.ones(size, dtype=bool) for size in domain]
    current = list(tables)
    dirty = set(range(len(current)))
    users: dict[int, list[int]] = {}
    for number, one in enumerate(current):
        for variable in one.scope:
            users.setdefault(variable, []).append(number)
    while dirty:
        number = min(dirty)
        dirty.discard(number)
        one = current[number]
        mask = np.ones(len(one.rows), dtype=bool)
        for position, variable in enumerate(one.scope):
            mask &= alive[variable][one.rows[:, position]]
        if not mask.all():
            one = current[number] = one.keep(mask)
        for position, variable in enumerate(one.scope):
            seen = np.zeros(domain[variable], dtype=bool)
            seen[one.rows[:, position]] = True
            if (alive[variable] & ~seen).any():
                alive[variable] &= seen
                dirty.update(users[variable])
    return current, alive
