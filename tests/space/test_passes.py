"""Samples under many sets of pins at once, and the circuit that they go through."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from heron_asp.space import circuit as circuits
from heron_asp.space.circuit import Circuit
from heron_asp.space.passes import Tree, Weighed
from heron_asp.space.table import Table, table


def lattice(extent: int = 36) -> Circuit:
    """Four factors of a number, of which the first two together are at most 12; a copy of the last one."""
    factors = [number for number in range(1, extent + 1) if extent % number == 0]
    place = {number: index for index, number in enumerate(factors)}
    pairs = [(a, b, place[x * y]) for (a, x), (b, y) in product(enumerate(factors), repeat=2) if x * y in place]
    whole = [(a, b) for a, b, c in pairs if c == place[extent]]
    tables = [table((0, 1, 4), pairs), table((2, 3, 5), pairs), table((4, 5), whole)]
    tables += [table((4,), [[i] for i, number in enumerate(factors) if number <= 12])]
    tables += [table((3, 6), [[i, i] for i in range(len(factors))])]
    return Circuit([len(factors)] * 7, tables)


def pinned(made: Circuit, sets: int, seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {}
    for variable in (0, 2, 6):
        weights[variable] = (rng.random((sets, made.domain[variable])) < 0.4).astype(float)
        weights[variable][: sets // 4] = 1.0
    return weights


@pytest.mark.parametrize("cells", [1, 500, 10**7])
def test_every_set_is_sampled_as_if_alone(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(circuits, "_CELLS", cells)
    made = lattice()
    sets, number = 40, 600
    weights = pinned(made, sets, 3)
    drawn = made.sample_each(sets, number, np.random.default_rng(5), weights)
    empty = 0
    for place, rows in enumerate(drawn):
        own = {variable: weight[place] for variable, weight in weights.items()}
        count = made.count(own)
        assert len(rows) == (number if count else 0)
        empty += not count
        for variable, weight in own.items():
            assert weight[rows[:, variable]].all()
        for variable, share in (made.marginals(own) if count else {}).items():
            got = np.bincount(rows[:, variable], minlength=made.domain[variable]) / number
            assert abs(got - share).max() < 5 * (0.25 / number) ** 0.5
        if 0 < count <= 30:
            assert len(np.unique(rows, axis=0)) == count
    assert 0 < empty < sets / 2


def test_weights_shape_what_is_drawn() -> None:
    made = lattice()
    tilt = np.arange(1.0, made.domain[0] + 1)
    rows = made.sample(20_000, np.random.default_rng(0), {0: tilt})
    got = np.bincount(rows[:, 0], minlength=made.domain[0]) / len(rows)
    share = made.marginals()[0] * tilt
    assert got == pytest.approx(share / share.sum(), abs=0.015)
    few = np.concatenate([made.sample(4, np.random.default_rng(seed), {0: tilt}) for seed in range(1_000)])
    got = np.bincount(few[:, 0], minlength=made.domain[0]) / len(few)
    assert got == pytest.approx(share / share.sum(), abs=0.04)


def test_seeds_reproduce_and_differ() -> None:
    made = lattice()
    weights = pinned(made, 16, 3)
    one, again, other = (made.sample_each(16, 4, np.random.default_rng(seed), weights) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))


def test_groups_are_added_as_numpy_adds_them() -> None:
    made = lattice(720)
    rng = np.random.default_rng(0)
    below: list[Weighed] = []
    for bucket in made.buckets:
        weights = {variable: rng.random((made.domain[variable], 3)) for variable in bucket.variables}
        below.append(Weighed.of(Tree(bucket), weights, below))
        rows = below[-1].nodes[0][:-1]
        start = np.arange(bucket.size) if bucket.start is None else bucket.start
        assert below[-1].sums == pytest.approx(np.add.reduceat(rows, start, axis=0))
        sizes = np.diff(np.append(start, bucket.size))
        assert (np.diff(sizes) <= 0).all()  # larger groups first
    assert max(len(one.tree.levels) for one in below) >= 3


def test_a_circuit_has_no_dead_rows() -> None:
    """A cycle of relations: whatever goes first leaves rows that a later join refutes."""
    rng = np.random.default_rng(2)
    every = np.argwhere(np.ones((12, 12))).astype(np.int32)
    tables = [Table((i, (i + 1) % 5), every[rng.random(len(every)) < 0.12]) for i in range(5)]
    made = Circuit([12] * 5, tables)
    assert made.count()
    weights = made.up({})
    live = [np.zeros(bucket.groups, dtype=bool) for bucket in made.buckets]
    for root in made._roots:
        live[root][:] = True
    for position in reversed(range(len(made.buckets))):
        bucket = made.buckets[position]
        assert live[position].all()
        assert (weights.rows[position] > 0).all()
        for child, group in bucket.references:
            live[child][group] = True
