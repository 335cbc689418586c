"""The space of a small product holds what runs and nothing else; a constraint that is lifted is noticed."""

from __future__ import annotations

from dataclasses import replace
from shutil import which

import pytest
from tensorcore_completeness import reason, summary

from heron_asp.backends.cuda.completeness import Found, examine
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.target import load_target
from heron_asp.task import Task

WHOLE = load_target(targets_folder() / "a100.toml")
FAMILY = WHOLE.shared.model_copy(update={"intrinsics": WHOLE.shared.intrinsics[:1]})
A100 = replace(WHOLE, shared=FAMILY)  # with a single instruction
GEMM = {"m": 16, "n": 16, "k": 32}


def task(*lifted: str) -> Task:
    return Task(operator("gemm", GEMM, "f16f16f32"), A100, relaxed=(*A100.pays, *lifted))


@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="the emulator needs a C++ compiler")
def test_a_small_product() -> None:
    found = examine(task(), 6)
    assert found.tried >= found.valid >= found.members > 0
    assert found.tried == found.valid + sum(many for step, many in found.refused.items() if step)
    assert not found.wrong
    assert not found.apart
    assert found.precision == 1


def test_a_constraint_that_is_lifted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_asp.backends.cuda.completeness._SHARES", (1.0, 0.0))
    found = examine(task("c3:unit(c, m)", "c3:unit(c, n)"), 4)
    assert found.apart > 0


def test_what_is_left_out_is_known_or_missing() -> None:
    rounds, narrow, unknown = "c6:overlap(c, k, stage, 1)", "c6:async(load(a))", "c6:overlap(c, k, step, 1)"
    assert reason((rounds,))
    assert reason((narrow, rounds)) == f"{reason((narrow,))} and {reason((rounds,))}"
    assert reason((unknown, rounds)) is None
    found = Found(tried=9, valid=5, members=4)
    found.missing[(rounds,)], found.missing[(unknown,)] = 1, 1
    found.examples[(unknown,)] = "an example"
    said = summary("m=1", found)
    assert list(said["missing"]) == [unknown]
    assert list(said["known"].values()) == [1]
    assert said["precision"] == 1 > said["recall"]
