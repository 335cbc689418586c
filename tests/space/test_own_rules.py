"""Constraints of a user's own: whatever can be ground is honoured exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.errors import HeronError
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.space import SketchSpace
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from heron_asp.terms import parse

SHAPE = {"m": 12, "n": 48, "k": 24}
VARIABLES = [
    "tile(c, m, task)",
    "tile(c, m, register)",
    "tile(c, n, register)",
    "tile(c, n, block)",
    "tile(c, k, strip)",
]


def task_with(target: Target, folder: Path, rules: str, **options) -> Task:
    file = folder / "own.lp"
    file.write_text(rules)
    return Task(operator("gemm", SHAPE), target, extra_rules=[file], **options)


def enumerated(part: SketchSpace) -> int:
    control = part.control()
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        return sum(1 for _ in handle)


def literals(draw: st.DrawFn) -> str:
    """A literal over values: an atom, a negated one, a comparison, an aggregate or a definition of its own."""
    a, b, c = (draw(st.sampled_from(VARIABLES)) for _ in range(3))
    number = draw(st.integers(1, 12))
    return draw(
        st.sampled_from(
            [
                f"value({a}, {number})",
                f"not value({a}, {number})",
                f"value({a}, X{number}), X{number} > {number}",
                f"value({a}, X{number}), value({b}, Y{number}), X{number} * Y{number} > {2 * number}",
                f"#sum {{ X, 1 : value({a}, X); 2 * X, 2 : value({b}, X); -1 * X, 3 : value({c}, X) }} > {number}",
                f"#count {{ X : value({a}, X); X : value({b}, X); X : value({c}, X) }} = {1 + number % 3}",
                f"#max {{ X : value({a}, X); X : value({b}, X) }} = {number}",
                f"big({a})",
                f"not big({a}), not big({b})",
            ]
        )
    )


@st.composite
def rule_files(draw: st.DrawFn) -> str:
    lines = [
        f":- {', '.join(literals(draw) for _ in range(draw(st.integers(1, 2))))}."
        for _ in range(draw(st.integers(1, 3)))
    ]
    return "#program space.\nbig(V) :- value(V, X), X > 3, not tiny(V).\ntiny(V) :- value(V, (4; 6)).\n" + "\n".join(
        lines
    )


@given(rules=rule_files())
@settings(max_examples=40, deadline=None)
def test_counts_equal_enumeration(tmp_path_factory, rules: str) -> None:
    zen4 = load_target(targets_folder() / "zen4.toml")
    task = task_with(zen4, tmp_path_factory.mktemp("own"), rules)
    for part in task.space:
        assert part.exact
        assert part.size == enumerated(part), rules


def test_three_tiles_together(zen4: Target, tmp_path: Path) -> None:
    rules = """
    #program space.
    % comments are welcome
    %* as are blocks of them *%
    :- value(tile(Block, Axis, task), T), value(tile(Block, Axis, block), B), value(tile(Block, Axis, register), R),
       T * B * R > 8, T > 1.  % and at the end of a line
    """
    task = task_with(zen4, tmp_path, rules)
    assert 0 < task.space.size < Task(operator("gemm", SHAPE), zen4).space.size
    assert all(part.size == enumerated(part) for part in task.space)


def test_a_constraint_is_named_and_lifted_by_its_line(zen4: Target, tmp_path: Path) -> None:
    rules = "#program space.\n:- value(tile(c, m, register), X), X > 2.\n"
    plain = Task(operator("gemm", SHAPE), zen4).space.size
    assert task_with(zen4, tmp_path, rules).space.size < plain
    assert task_with(zen4, tmp_path, rules, relaxed=["own.lp:2"]).space.size == plain


def test_rules_read_what_the_sketch_derived(zen4: Target, tmp_path: Path) -> None:
    rules = """
    #program space.
    :- tile(Block, Axis, register), axis(Block, Axis, _, Extent), value(tile(Block, Axis, register), Extent).
    """
    task = task_with(zen4, tmp_path, rules)
    assert task.space.count({parse("tile(c, m, register)"): frozenset({12})}) == 0
    assert task.space.size > 0
    assert all(part.size == enumerated(part) for part in task.space)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("#program space.\n{ value(tile(c, m, task), 3) }.", "own.lp:2: "),
        (
            "#program space.\nvalue(tile(c, m, task), 3).",
            "own.lp:2: value/2 is derived by rules/csp and cannot be defined here",
        ),
        ("#program space.\nknob(x).", "own.lp:2: knob/1 is derived by rules/csp and cannot be defined here"),
        ("#program space.\n:- vlaue(tile(c, m, task), 3).", "the rules give warnings, which are errors here"),
        ("#program space.\na :- b. b :- a. a :- value(tile(c, m, task), 3).\n:- not a.", "defined by itself"),
        ("#program spaces.\n:- value(x, 1).", "no such part"),
        ("#script(python)\n#end.", "own.lp:1: #script runs code"),
        ("#program space.\n#minimize { X : value(tile(c, m, task), X) }.", "own.lp:2: "),
    ],
    ids=["choice", "value", "stage", "typo", "recursion", "part", "script", "minimize"],
)
def test_what_cannot_be_honoured_is_an_error(zen4: Target, tmp_path: Path, rules: str, message: str) -> None:
    with pytest.raises(HeronError) as error:
        _ = task_with(zen4, tmp_path, rules).space.size
    assert message in str(error.value)


def test_includes_from_outside_need_trust(zen4: Target, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "more.lp"
    other.parent.mkdir()
    other.write_text("seen(1).")
    inside = tmp_path / "mine"
    inside.mkdir()
    rules = f'#include "{other}".'
    with pytest.raises(HeronError, match="lies outside"):
        task_with(zen4, inside, rules)
    assert task_with(zen4, inside, rules, trusted=True).space.size > 0
