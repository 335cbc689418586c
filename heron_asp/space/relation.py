"""Relations in columns, with the functional dependencies that are known of them: what elimination joins and groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from heron_asp.space.table import Codes, Index, Table, TooLargeError, numbered, packed, sorting

Column: TypeAlias = npt.NDArray[np.int32]
Dependency: TypeAlias = tuple[frozenset[int], int]  # these variables determine that one
_DIRECT = 2**22  # cells of an index by key, at most, or four a row where there are more rows
_MOST = 0.7  # of all combinations of some values, from which looking for the others does not pay
_WIDE = 3  # variables on the left of a dependency that is kept, at most


@dataclass(frozen=True)
class Relation:
    """Combinations of value indices, column by column; no two rows are alike.

    Attributes:
        columns: by variable, all of one length.
        size: number of rows.
        dependencies: which of its variables determine which.
        carried: columns of variables that were eliminated: the others determine them.
        references: for each bucket that was joined, its number and the group that each row refers to.
    """

    columns: Mapping[int, Column]
    size: int
    dependencies: frozenset[Dependency]
    carried: tuple[tuple[int, Column], ...] = ()
    references: tuple[tuple[int, Index], ...] = ()


def relation(one: Table, domain: Sequence[int]) -> Relation:
    """A table with the dependencies of one of its variables on all others."""
    columns = {variable: np.ascontiguousarray(one.rows[:, i]) for i, variable in enumerate(one.scope)}
    found = set()
    for variable in one.scope if 1 < len(one.scope) <= _WIDE + 1 else ():
        others = [other for other in one.scope if other != variable]
        if _number([columns[v] for v in others], [domain[v] for v in others]) == len(one.rows):
            found.add((frozenset(others), variable))
    return Relation(columns, len(one.rows), frozenset(found))


def _number(columns: Sequence[Column], sizes: Sequence[int]) -> int:
    """How many combinations of some columns' values there are."""
    code, span = packed(columns, sizes)
    if not len(code):
        return 0
    return int(np.count_nonzero(np.bincount(code))) if span <= _DIRECT else numbered(code, span)[1]


# -- dependencies ------------------------------------------------------------------------------------------------------


def closure(variables: Iterable[int], dependencies: Iterable[Dependency]) -> set[int]:
    """Some variables with all that they determine."""
    known = set(variables)
    waiting = list(dependencies)
    while True:
        usable = [right for left, right in waiting if left <= known and right not in known]
        if not usable:
            return known
        known.update(usable)
        waiting = [one for one in waiting if one[1] not in known]


def key(variables: Sequence[int], dependencies: Collection[Dependency], domain: Sequence[int]) -> list[int]:
    """Those of some variables that determine all of them; variables with many values are left out first."""
    own = set(variables)
    relevant = [(left, right) for left, right in dependencies if right in own and left <= own]
    kept = list(variables)
    for variable in sorted({right for _, right in relevant}, key=lambda one: (-domain[one], one)):
        others = [other for other in kept if other != variable]
        if variable in closure(others, relevant):
            kept = others
    return kept


def without(
    dependencies: Iterable[Dependency], gone: Collection[int], left_over: Collection[int]
) -> frozenset[Dependency]:
    """The dependencies among what is left once some variables are gone: what led through these is composed."""
    found = set(dependencies)
    for variable in gone:
        into = [left for left, right in found if right == variable]
        onward = [one for one in found if variable in one[0]]
        found = {one for one in found if one[1] != variable and variable not in one[0]}
        for first in into:
            for left, right in onward:
                composed = first | (left - {variable})
                if right not in composed and variable not in composed and len(composed) <= _WIDE:
                    found.add((composed, right))
    own = set(left_over)
    kept: list[Dependency] = []
    for left, right in sorted(found, key=lambda one: (len(one[0]), sorted(one[0]), one[1])):
        if right in own and left <= own and not any(other < left and same == right for other, same in kept):
            kept.append((left, right))
    return frozenset(kept)


# -- joins -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """Pairs of rows that agree.

    Attributes:
        left, right: the rows; None for all of them in their order.
        size: number of pairs.
    """

    left: Index | None
    right: Index | None
    size: int


def join(parts: Sequence[Relation], domain: Sequence[int], room: int) -> tuple[Relation, list[Index | None], int]:
    """The natural join of some relations, from the smallest on, next always the one that shares most.

    Args:
        parts: the relations.
        domain: number of values of every variable.
        room: most rows.

    Returns:
        The join, without what the parts carry and refer to; for each part the rows that the join's come from (None: all
        in their order); the rows of all joins on the way.

    Raises:
        TooLargeError: there are more rows than `room`.
    """
    waiting = sorted(range(len(parts)), key=lambda i: parts[i].size)
    first = waiting.pop(0)
    columns, size, dependencies = dict(parts[first].columns), parts[first].size, parts[first].dependencies
    origins: dict[int, Index | None] = {first: None}
    work = 0
    while waiting:
        number = max(waiting, key=lambda i: (len(parts[i].columns.keys() & columns.keys()), -parts[i].size))
        waiting.remove(number)
        right = parts[number]
        found = _match(Relation(columns, size, dependencies), right, domain, room)
        if found.left is not None:
            columns = {variable: column.take(found.left) for variable, column in columns.items()}
            origins = {i: found.left if rows is None else rows.take(found.left) for i, rows in origins.items()}
        for variable, column in right.columns.items():
            if variable not in columns:
                columns[variable] = column if found.right is None else column.take(found.right)
        origins[number] = found.right
        size, dependencies = found.size, dependencies | right.dependencies
        work += size
    return Relation(columns, size, dependencies), [origins[i] for i in range(len(parts))], work


def _match(left: Relation, right: Relation, domain: Sequence[int], room: int) -> Match:
    """The pairs of rows of two relations that agree in their common variables.

    They are looked up by a key of these variables; the rest is compared.
    """
    if not left.size or not right.size:
        return Match(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), 0)
    common = [variable for variable in right.columns if variable in left.columns]
    keys = [key(common, one.dependencies, domain) for one in (left, right)]
    by = min(keys, key=lambda variables: prod(domain[v] for v in variables))
    rest = [variable for variable in common if variable not in by]
    left_code, right_code, span = _coded(left, right, by, domain)
    many = np.bincount(right_code, minlength=span)
    if many.max(initial=0) <= 1:
        found = _looked_up(left, right, left_code, right_code, rest, span)
    elif np.bincount(left_code, minlength=span).max(initial=0) <= 1:
        turned = _looked_up(right, left, right_code, left_code, rest, span)
        found = Match(turned.right, turned.left, turned.size)
    else:
        found = _expanded(left, right, left_code, right_code, rest, many, room)
    if found.size > room:
        raise TooLargeError(found.size)
    return found


def supported(left: Relation, right: Relation, domain: Sequence[int]) -> Index | None:
    """The rows of a relation that agree with some row of another; None for all of them.

    They are not looked for where that would take long, or the other one has most combinations of the common variables.
    """
    common = [variable for variable in right.columns if variable in left.columns]
    by = key(common, right.dependencies, domain)
    if prod(domain[variable] for variable in by) > max(_DIRECT, left.size):
        return None
    known = _number([right.columns[variable] for variable in by], [domain[variable] for variable in by])
    if known > _MOST * prod(domain[variable] for variable in common):
        return None
    rest = [variable for variable in common if variable not in by]
    left_code, right_code, span = _coded(left, right, by, domain)
    return _looked_up(left, right, left_code, right_code, rest, span).left


def _coded(left: Relation, right: Relation, by: Sequence[int], domain: Sequence[int]) -> tuple[Codes, Codes, int]:
    """The keys of both as numbers below a bound that an index may have as many cells as.

    Keys of too many combinations are numbered by those that occur on the right; one more number is for all others.
    """
    if not by:
        return np.zeros(left.size, dtype=np.int64), np.zeros(right.size, dtype=np.int64), 1
    most = max(_DIRECT, 4 * (left.size + right.size))
    left_code, right_code = left.columns[by[0]].astype(np.int64), right.columns[by[0]].astype(np.int64)
    span = domain[by[0]]
    for number, variable in enumerate(by[1:], 1):
        if span * domain[variable] > most:
            left_code, right_code, span = _narrowed(left_code, right_code, span)
        if span * domain[variable] > most:
            rest = [np.concatenate([left.columns[other], right.columns[other]]) for other in by[number:]]
            columns = [np.concatenate([left_code, right_code]), *rest]
            code, span = numbered(*packed(columns, [span, *(domain[other] for other in by[number:])]))
            return code[: left.size], code[left.size :], span
        left_code = left_code * domain[variable] + left.columns[variable]
        right_code = right_code * domain[variable] + right.columns[variable]
        span *= domain[variable]
    return left_code, right_code, span


def _narrowed(left: Codes, right: Codes, span: int) -> tuple[Codes, Codes, int]:
    """Numbers the numbers that occur on the right."""
    marked = np.zeros(span, dtype=bool)
    marked[right] = True
    occurring = np.flatnonzero(marked)
    number = np.full(span, len(occurring), dtype=np.int64)
    number[occurring] = np.arange(len(occurring))
    return number.take(left), number.take(right), len(occurring) + 1


def _looked_up(
    left: Relation, right: Relation, left_code: Codes, right_code: Codes, rest: Sequence[int], span: int
) -> Match:
    """The match where no key occurs twice on the right; otherwise with one of its rows."""
    place = np.full(span, -1, dtype=np.intp)
    place[right_code] = np.arange(right.size)
    row = place.take(left_code)
    agree = row >= 0
    for variable in rest:
        agree &= right.columns[variable].take(row, mode="wrap") == left.columns[variable]
    if agree.all():
        return Match(None, row, left.size)
    kept = np.flatnonzero(agree)
    return Match(kept, row.take(kept), len(kept))


def _expanded(
    left: Relation,
    right: Relation,
    left_code: Codes,
    right_code: Codes,
    rest: Sequence[int],
    many: Index,
    room: int,
) -> Match:
    """The match where keys occur several times on either side."""
    count = many.take(left_code)
    total = int(count.sum())
    if total > room:
        raise TooLargeError(total)
    end = np.cumsum(count)
    first = (np.cumsum(many) - many).take(left_code)
    left_row = np.repeat(np.arange(left.size), count)
    place = np.arange(total) - np.repeat(end - count - first, count)
    right_row = sorting(right_code, len(many)).take(place)
    if rest:
        agree = np.ones(total, dtype=bool)
        for variable in rest:
            agree &= left.columns[variable].take(left_row) == right.columns[variable].take(right_row)
        if not agree.all():
            left_row, right_row = left_row[agree], right_row[agree]
    return Match(left_row, right_row, len(left_row))
