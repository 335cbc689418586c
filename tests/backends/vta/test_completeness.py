"""The space of a small product holds all that runs, and nothing else; a fault in it is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heron_asp.backends.vta.completeness import examine
from heron_asp.operators import operator
from heron_asp.task import Task
from tests.backends.vta.devices import TINY, changed

LIFTED = ("overhead", "awkward")
USUAL = TINY.shared.defaults


def test_a_small_product_has_all_its_programs() -> None:
    made = operator("gemm", {"m": 2, "n": 8, "k": 8}, USUAL.dtype, None, USUAL.epilogue)
    found = examine(Task(made, TINY, relaxed=LIFTED), 200)
    assert found.tried > found.valid > 100
    assert not found.missing
    assert not found.wrong


@pytest.mark.parametrize(
    ("constraint", "what", "inp"),
    [("c6:hazard(c_sum, 2)", "lowering", 64), ("c5:fits(c_sum, inp, task)", "memory", 16)],
)
def test_a_constraint_that_is_lifted_is_missed(constraint: str, what: str, inp: int) -> None:
    made = operator("gemm", {"m": 4, "n": 4, "k": 8}, USUAL.dtype, None, USUAL.epilogue)
    found = examine(Task(made, changed(TINY, inp=inp), relaxed=(*LIFTED, constraint)), 1)
    assert {error.split(":")[0] for _, error in found.wrong} == {what}


def test_a_constraint_too_much_is_noticed() -> None:
    made = operator("gemm", {"m": 2, "n": 8, "k": 8}, USUAL.dtype, None, USUAL.epilogue)
    limits = {**TINY.machine.limits, "distance": 5}
    strict = replace(TINY, machine=TINY.machine.model_copy(update={"limits": limits}))
    assert examine(Task(made, strict, relaxed=LIFTED), 200).missing
