"""Mistakes in a rule file of one's own: each is an error that names the constraint, and what would be right."""

from __future__ import annotations

import pytest

from heron_asp.errors import HeronError
from heron_asp.operators import operator
from heron_asp.target import Target
from heron_asp.task import Task
from heron_asp.terms import parse

BECAUSE = "because(c6, few(Block), reorder(Block)) :- block(Block).\n"
FEW = "constraint(c6, few(Block), at_most(8)) :- block(Block).\n"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            BECAUSE + FEW.replace("at_most", "atmost"),
            "constraint c6:few(c): there is no kind 'atmost'\ndid you mean 'at_most'",
        ),
        (
            BECAUSE + FEW + "part(c6, few(Block), 1, accumulator(Block)) :- block(Block).",
            "constraint c6:few(c): nothing defines accumulator(c)\ndid you mean 'accumulators(c)'",
        ),
        (
            BECAUSE + FEW + "part(c6, fewer(Block), 1, accumulators(Block)) :- block(Block).",
            "there is no constraint c6:fewer(c), but parts of it\ndid you mean 'c6:few(c)'",
        ),
        (
            FEW + "part(c6, few(Block), 1, accumulators(Block)) :- block(Block).",
            "constraint c6:few(c) has no origin\nsay which schedule step causes it: because(c6, few(c), Primitive)",
        ),
        (
            BECAUSE + FEW + "constraint(c6, few(Block), at_most(9)) :- block(Block).",
            "constraint c6:few(c) is two: at_most(8) and at_most(9)",
        ),
    ],
    ids=["kind", "variable", "parts", "origin", "twice"],
)
def test_a_mistake_is_an_error(zen4: Target, tmp_path, rules: str, message: str) -> None:
    file = tmp_path / "own.lp"
    file.write_text(rules)
    with pytest.raises(HeronError) as error:
        _ = Task(operator("gemm", {"m": 4, "n": 16, "k": 8}), zen4, extra_rules=[file]).space.size
    assert message in str(error.value)


def test_numbers_beyond_clingo_are_refused(zen4: Target, tmp_path) -> None:
    file = tmp_path / "own.lp"
    file.write_text('% 99999999999 in a comment is fine\np("99999999999", x99999999999).\np(99999999999).\n')
    with pytest.raises(HeronError, match=r"own.lp:3: 99999999999 does not fit"):
        Task(operator("gemm", {"m": 4, "n": 16, "k": 8}), zen4, extra_rules=[file])
    with pytest.raises(HeronError, match="4294967300 does not fit"):
        parse("4294967300")
