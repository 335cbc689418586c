"""Joins, semijoins and functional dependencies against loops over all rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heron_asp.space import relation as relations
from heron_asp.space.relation import Relation, closure, join, key, relation, supported, without
from heron_asp.space.table import Table, TooLargeError, numbered, packed, sorting, table

DOMAIN = [2, 3, 4, 3, 5]
Row = dict[int, int]


@st.composite
def tables(draw) -> Table:
    """A table over some of five variables; sometimes one of them follows from the others."""
    scope = draw(st.lists(st.sampled_from(range(5)), min_size=1, max_size=3, unique=True))
    every = list(product(*(range(DOMAIN[variable]) for variable in scope)))
    rows = draw(st.lists(st.sampled_from(every), max_size=25, unique=True))
    if draw(st.booleans()):
        rows = list({row[:-1]: row for row in rows}.values())
    return table(scope, np.array(rows, dtype=np.int32).reshape(-1, len(scope)))


def rows_of(one: Relation) -> list[Row]:
    return [{v: int(column[i]) for v, column in one.columns.items()} for i in range(one.size)]


def agree(left: Row, right: Row) -> bool:
    return all(left[variable] == right[variable] for variable in left.keys() & right.keys())


def naive(parts: list[Relation]) -> set[tuple[tuple[int, int], ...]]:
    found: list[Row] = [{}]
    for part in parts:
        found = [{**one, **other} for one in found for other in rows_of(part) if agree(one, other)]
    return {tuple(sorted(one.items())) for one in found}


def holds(one: Relation) -> bool:
    for left, right in one.dependencies:
        known: dict[tuple[int, ...], int] = {}
        for row in rows_of(one):
            if known.setdefault(tuple(row[v] for v in sorted(left)), row[right]) != row[right]:
                return False
    return True


@pytest.fixture(params=[(2**22, DOMAIN), (10_000, [1_000] * 5), (3, [1_000] * 5)], ids=["index", "narrowed", "sorted"])
def domain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of values of each variable, with room for an index by key, for one of keys that occur, and without."""
    room, sizes = request.param
    monkeypatch.setattr(relations, "_DIRECT", room)
    return list(sizes)


@given(st.lists(tables(), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_join_is_what_loops_find(domain: list[int], made: list[Table]) -> None:
    parts = [relation(one, domain) for one in made]
    joined, origins, _ = join(parts, domain, 10**6)
    found = [tuple(sorted(row.items())) for row in rows_of(joined)]
    assert len(found) == len(set(found))
    assert set(found) == naive(parts)
    assert holds(joined)
    for part, origin in zip(parts, origins, strict=True):
        chosen = np.arange(joined.size) if origin is None else origin
        for variable, column in part.columns.items():
            assert (column[chosen] == joined.columns[variable]).all()
    if joined.size and len(parts) > 1:
        with pytest.raises(TooLargeError):
            join(parts, domain, 0)


@given(tables(), tables())
@settings(max_examples=150, deadline=None)
def test_what_another_table_refutes_goes(one: Table, other: Table) -> None:
    left, right = relation(one, DOMAIN), relation(other, DOMAIN)
    if not left.columns.keys() & right.columns.keys() or not left.size or not right.size:
        return
    kept = supported(left, right, DOMAIN)
    if kept is not None:
        expected = [i for i, row in enumerate(rows_of(left)) if any(agree(row, two) for two in rows_of(right))]
        assert kept.tolist() == expected


def test_most_refuted_rows_are_found() -> None:
    left = relation(table((0, 1, 2), list(product(range(2), range(3), range(4)))), DOMAIN)
    right = relation(table((1, 2), [[0, 0], [2, 3]]), DOMAIN)
    kept = supported(left, right, DOMAIN)
    assert kept is not None
    assert {(row[1], row[2]) for row in (rows_of(left)[i] for i in kept)} == {(0, 0), (2, 3)}
    assert len(kept) == 4


@given(st.lists(tables(), min_size=1, max_size=3), st.data())
@settings(max_examples=100, deadline=None)
def test_dependencies_hold(made: list[Table], data) -> None:
    joined, _, _ = join([relation(one, DOMAIN) for one in made], DOMAIN, 10**6)
    variables = list(joined.columns)
    by = key(variables, joined.dependencies, DOMAIN)
    assert closure(by, joined.dependencies) >= set(variables)
    assert len({tuple(row[v] for v in by) for row in rows_of(joined)}) == joined.size
    gone = data.draw(st.lists(st.sampled_from(variables), unique=True))
    rest = [variable for variable in variables if variable not in gone]
    shorter = without(joined.dependencies, gone, rest)
    assert all(left | {right} <= set(rest) for left, right in shorter)
    assert holds(Relation({v: joined.columns[v] for v in rest}, joined.size, shorter))


def test_dependencies_through_what_is_gone_are_composed() -> None:
    chain = frozenset({(frozenset({0, 1}), 2), (frozenset({2, 3}), 4)})
    assert without(chain, [2], [0, 1, 3, 4]) == {(frozenset({0, 1, 3}), 4)}


@pytest.mark.parametrize("number", [0, 1, 10, 5_000])
@pytest.mark.parametrize("span", [10, 2**16, 2**33, 2**60])
def test_numbers_are_sorted_and_numbered(number: int, span: int) -> None:
    code = np.random.default_rng(0).integers(0, span, number)
    assert (sorting(code, span) == np.argsort(code, kind="stable")).all()
    place, many = numbered(code, span)
    distinct, expected = np.unique(code, return_inverse=True)
    assert (place == expected).all()
    assert many == max(1, len(distinct))


def test_packed_numbers_are_in_lexicographic_order() -> None:
    rows = np.random.default_rng(0).integers(0, 7, (3_000, 30))
    for sizes in ([7] * 30, [7, 2**30] * 15):  # the product of the sizes overflows
        code, span = packed(list(rows.T), sizes)
        assert code.max() < span
        assert (np.argsort(code, kind="stable") == np.lexsort(rows.T[::-1])).all()


def test_tables_hold_rows_once_in_order() -> None:
    rows = np.random.default_rng(1).integers(0, 4, (3_000, 3)).astype(np.int32)
    assert (table((2, 0, 1), rows).rows == np.unique(rows, axis=0)).all()
