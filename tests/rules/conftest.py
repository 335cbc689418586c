"""Rules under test: a few facts in, the atoms wanted out."""

from __future__ import annotations

from collections.abc import Callable

import clingo
import pytest

from heron_asp.resources import rules_folder

GEMM = """
block(c).  axis(c, m, spatial, 6).  axis(c, n, spatial, 40).  axis(c, k, reduce, 10).
operand(c, 0, a).  operand(c, 1, b).  result(c, c).  tensor(a, u8).  tensor(b, s8).  tensor(c, s32).
access(c, a, 0, m, 1).  access(c, a, 1, k, 1).  access(c, b, 0, k, 1).  access(c, b, 1, n, 1).
access(c, c, 0, m, 1).  access(c, c, 1, n, 1).
pitch(a, 0, 10).  pitch(a, 1, 1).  pitch(b, 0, 40).  pitch(b, 1, 1).  pitch(c, 0, 40).  pitch(c, 1, 1).
constant(b).
"""
DOT = """
intrinsic_values(dot).
intrinsic(dot).  needs(dot, flag).  has(flag).
intrinsic_axis(dot, n, spatial, 16).  intrinsic_axis(dot, r, reduce, 4).
intrinsic_operand(dot, 0, u8).       intrinsic_index(dot, 0, 0, r, 1).
intrinsic_operand(dot, 1, s8).       intrinsic_index(dot, 1, 0, n, 4).  intrinsic_index(dot, 1, 1, r, 1).
intrinsic_operand(dot, result, s32). intrinsic_index(dot, result, 0, n, 1).
limit(vector_bytes, 64).  limit(vector_registers, 32).  bytes(u8, 1).  bytes(s8, 1).  bytes(s32, 4).
"""

Answers = list[frozenset[str]]


@pytest.fixture
def answers() -> Callable[..., Answers]:
    """`answers(facts, 'core/s1_tensorize', ...)`: the answer sets of some rule files over some facts, atoms as text."""

    def solve(facts: str, *files: str) -> Answers:
        control = clingo.Control(["0", "--warn=no-atom-undefined"])
        for file in ("core/interface", *files):
            control.load(str(rules_folder() / f"{file}.lp"))
        control.add("base", [], facts)
        control.ground([("base", [])])
        with control.solve(yield_=True) as handle:
            return [frozenset(map(str, model.symbols(atoms=True))) for model in handle]

    return solve


@pytest.fixture
def atoms(answers: Callable[..., Answers]) -> Callable[..., frozenset[str]]:
    """The only answer set."""

    def only(facts: str, *files: str) -> frozenset[str]:
        found = answers(facts, *files)
        assert len(found) == 1, f"{len(found)} answer sets"
        return found[0]

    return only


def of(found: frozenset[str], *names: str) -> set[str]:
    """The atoms of some predicates."""
    return {atom for atom in found if atom.split("(")[0] in names}
