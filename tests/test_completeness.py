"""Spaces refuse nothing that would run and allow nothing that would not; wrong rules are noticed."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp.completeness import Evidence, Outcome, Planter, compare, gather
from heron_asp.completeness.compare import check
from heron_asp.completeness.evidence import Bare
from heron_asp.completeness.grid import fitted, grid
from heron_asp.completeness.trial import Lost, program_key, spread
from heron_asp.completeness.verdict import Rules, judge
from heron_asp.sketch import Constraint, Sketch
from heron_asp.target import Target
from heron_asp.terms import Term
from tests.conftest import make_task

MOST = 90


@pytest.fixture(scope="module")
def evidence(runnable: Target) -> Evidence:
    """A problem of one register tile, padded, tried in a few seconds."""
    return gather(make_task(runnable, "gemv", m=20, k=8), MOST)


def test_what_runs_is_admitted_and_what_is_admitted_runs(evidence: Evidence) -> None:
    assert check(evidence).failures() == []


def test_the_comparison_is_not_empty(evidence: Evidence) -> None:
    finding = compare(evidence)
    assert finding.members > 0
    assert finding.members < finding.survived < finding.tried


@pytest.mark.parametrize(
    ("name", "change"),
    [("c1:split(y, m)", "removed"), ("c1:split(y, m)", "tightened"), ("c3:unit(y, m)", "removed"),
     ("candidates:extent(y, m)", "without"), ("c6:registers(y)", "tightened"), ("c3:unroll(y, k)", "called")],
)  # fmt: skip
def test_a_wrong_rule_is_noticed(evidence: Evidence, name: str, change: str) -> None:
    planter = Planter(evidence, compare(evidence).pays)
    planted = [one for one in planter.faults() if one.name == name and one.change.startswith(change)]
    assert planted
    assert planter.outcome(planted[0])[0] is Outcome.NOTICED


# -- what it is made of -----------------------------------------------------------------------------------------------


def test_a_box_is_shortened_at_its_longest_side() -> None:
    assert fitted([7, 2, 3], 100) == (7, 2, 3)
    assert fitted([7, 2, 3], 20) == (3, 2, 3)
    assert fitted([100, 1, 1], 10) == (10, 1, 1)


def test_a_grid_has_every_level_and_extents_beyond_the_candidates(zen4: Target) -> None:
    sketch = Bare(make_task(zen4, m=3, n=20, k=6)).sketches[0]
    found = grid(sketch, 500)
    values = {knob: {row[place] for row in found.assignments()} for place, knob in enumerate(sketch.knobs)}
    levels = {level.name for level in sketch.levels}
    assert values[Term("position", (Term("drain", ("c",)),))] == {"root", *levels}
    assert values[Term("extent", ("c", "n"))] >= {20, 21, 32}
    assert len(set(found.assignments())) == len(found.assignments())


def test_an_evaluation_agrees_with_clingo(zen4: Target) -> None:
    for shape in ({"m": 4, "n": 32, "k": 8}, {"m": 17, "n": 20, "k": 3}):
        bare = Bare(make_task(zen4, **shape, threads=2))
        members = set(bare.members())
        assert members
        for sketch, rules in zip(bare.sketches, bare.rules(), strict=True):
            rows = sorted(
                {*grid(sketch, 600).assignments(), *(row for name, row in members if name == sketch.name)}, key=repr
            )
            refused = np.any(list(judge(rules, rows).refused.values()), axis=0)
            assert {row for row, no in zip(rows, refused, strict=True) if not no} == {
                row for name, row in members if name == sketch.name
            }


def rules(*constraints: Constraint, **candidates: set[int]) -> Rules:
    knobs = tuple(candidates)
    return Rules(knobs, {one.name: one for one in constraints}, {k: frozenset(v) for k, v in candidates.items()})


def test_each_kind_of_constraint_refuses_what_it_should() -> None:
    made = rules(
        Constraint("c1", "area", Term("product", ("area",)), ((1, "x"), (1, "y"))),
        Constraint("c4", "more", Term("sum", ("more", 1)), ((2, "x"),)),
        Constraint("c5", "small", Term("at_most", (6,)), ((1, "area"),)),
        Constraint("c3", "odd", Term("among", ("x", 1, 3)), only_if=("y", 2)),
        Constraint("c6", "busy", Term("balanced", ("more", 2, 90))),
        x={1, 2, 3},
        y={1, 2},
    )
    verdict = judge(made, [(1, 1), (2, 2), (3, 2), (3, 3)])
    assert verdict.columns["area"].tolist() == [1, 4, 6, 9]
    assert verdict.columns["more"].tolist() == [3, 5, 7, 7]
    assert verdict.refused["c5:small"].tolist() == [False, False, False, True]
    assert verdict.refused["c3:odd"].tolist() == [False, True, False, False]
    assert verdict.refused["c6:busy"].tolist() == [True, True, True, True]
    assert verdict.refused["candidates:y"].tolist() == [False, False, False, True]


def test_a_crash_and_a_hang_cost_their_own_item_only() -> None:
    import os
    import signal
    import time

    def work(item: int) -> int:
        if item == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if item == 5:
            time.sleep(60)
        return item * item

    found = spread(lambda: work, list(range(8)), workers=2, batch=8, seconds=1.0)
    assert [one if isinstance(one, int) else one.why.split(":")[0] for one in found] == [
        0,
        1,
        4,
        "crash",
        16,
        "slow",
        36,
        49,
    ]
    assert isinstance(found[3], Lost)


def test_padded_programs_have_one_key(zen4: Target) -> None:
    task = make_task(zen4, m=3, n=20, k=6)
    one = task.space.sample(1, np.random.default_rng(0))[0]
    assert program_key(task.program(one)) == program_key(task.program(one))


def test_a_sketch_is_judged_without_its_own_rules() -> None:
    sketch = Sketch({"knob": (("x",),), "candidate": (("x", 1), ("x", 2))})
    assert judge(Rules.of(sketch), [(2,), (3,)]).refused["candidates:x"].tolist() == [False, True]
