"""Spaces of real operators: exact counts, pins, samples that are programs."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.errors import HeronError
from heron_asp.runs import candidate_of
from heron_asp.target import Target
from heron_asp.terms import parse
from tests.conftest import make_task

SMALL = [
    ("gemm", "u8s8s32", 1, {"m": 1, "n": 1, "k": 1}),
    ("gemm", "u8s8s32", 1, {"m": 16, "n": 32, "k": 16}),
    ("gemm", "u8s8s32", 2, {"m": 7, "n": 33, "k": 9}),
    ("gemm", "u8s8s32", 4, {"m": 12, "n": 48, "k": 24}),
    ("gemm", "bf16bf16f32", 1, {"m": 6, "n": 1, "k": 8}),
    ("gemm", "f16f16f32", 1, {"m": 4, "n": 20, "k": 6}),
    ("gemv", "u8s8s32", 2, {"m": 40, "k": 90}),
    ("gemv", "bf16bf16f32", 1, {"m": 33, "k": 7}),
    ("batch_matmul", "u8s8s32", 2, {"batch": 3, "m": 7, "n": 33, "k": 9}),
    ("batch_matmul", "bf16bf16f32", 1, {"batch": 2, "m": 4, "n": 16, "k": 6}),
]


@pytest.mark.parametrize(("name", "dtype", "threads", "shape"), SMALL)
def test_the_count_equals_enumeration(zen4: Target, name: str, dtype: str, threads: int, shape: dict[str, int]) -> None:
    task = make_task(zen4, name, dtype, threads, **shape)
    sketches = 0
    for part in task.space:
        control = part.control()
        control.ground([("base", [])])
        with control.solve(yield_=True) as handle:
            assert part.size == sum(1 for _ in handle), part.name
        sketches += 1
    assert sketches >= 1
    assert task.space.size > 0


def test_distinct_assignments_are_distinct_candidates(zen4: Target) -> None:
    task = make_task(zen4, m=7, n=33, k=9)
    part = task.space.parts[0]
    drawn = {one.key for one in part.sample(40 * part.size, np.random.default_rng(0))}
    assert len(drawn) == part.size


def test_pins_restrict_and_combine(zen4: Target) -> None:
    task = make_task(zen4, m=64, n=64, k=64)
    register = parse("tile(c, m, register)")
    part = task.space.parts[0]
    by_value = {value: part.count({register: frozenset({value})}) for value in part.domains[register]}
    assert sum(by_value.values()) == part.size
    assert part.count({register: frozenset({4, 8})}) == by_value[4] + by_value[8]
    pins = {register: frozenset({4}), parse("inner(c, task)"): frozenset({"m"})}
    for one in part.sample(50, np.random.default_rng(0), pins):
        assert one.values[register] == 4
        assert one.values[parse("inner(c, task)")] == "m"
    with pytest.raises(HeronError, match="no variable tile"):
        part.count({parse("tile(c, m, registr)"): frozenset({4})})


def test_relaxing_admits_more(zen4: Target) -> None:
    from heron_asp.operators import operator
    from heron_asp.task import Task

    made = operator("gemm", {"m": 64, "n": 64, "k": 64})
    full = Task(made, zen4).space.size
    assert Task(made, zen4, relaxed=["registers"]).space.size > full
    assert Task(made, zen4, relaxed=["c6"]).space.size > full
    assert (
        Task(made, zen4, relaxed=["c6:registers(c)"]).space.size == Task(made, zen4, relaxed=["registers"]).space.size
    )
    with pytest.raises(HeronError, match="regsters"):
        Task(made, zen4, relaxed=["regsters"]).space  # noqa: B018


def test_a_candidate_is_found_again_by_its_values(zen4: Target) -> None:
    task = make_task(zen4, m=9, n=20, k=10)
    for one in task.space.sample(20, np.random.default_rng(3)):
        assert candidate_of(task.space[one.sketch], one.to_json()) == one


def test_seeds_reproduce(zen4: Target) -> None:
    task = make_task(zen4, m=64, n=64, k=64)
    first = [one.key for one in task.space.sample(20, np.random.default_rng(5))]
    again = [one.key for one in make_task(zen4, m=64, n=64, k=64).space.sample(20, np.random.default_rng(5))]
    assert first == again


def test_sketches_are_drawn_by_their_share(zen4: Target) -> None:
    space = make_task(zen4, m=64, n=64, k=64).space
    drawn = space.sample(4000, np.random.default_rng(0))
    for part in space:
        got = sum(one.sketch == part.name for one in drawn) / 4000
        assert got == pytest.approx(part.size / space.size, abs=0.03)
