"""The program for distant rows."""

from __future__ import annotations

import pytest

from heron_asp.library.distant import adds_in_place, distant, leading_flags
from heron_asp.target import Target
from heron_asp.terms import parse
from tests.library.conftest import Exported, sampled

DRAIN = parse("position(drain(c))")


def test_a_program_that_adds_in_place_gets_a_twin_with_a_buffer(zen4: Target) -> None:
    tuned = sampled(zen4, "gemm", pins="position(drain(c))=root", m=64, n=64, k=64)
    assert adds_in_place(tuned.task.program(tuned.candidate))
    twin = distant(tuned.task, tuned.candidate, measured=False).candidate
    assert not adds_in_place(tuned.task.program(twin))
    knobs = set(tuned.candidate.knobs) - {DRAIN}
    assert twin.sketch == tuned.candidate.sketch
    assert {knob: twin.values[knob] for knob in knobs} == {knob: tuned.candidate.values[knob] for knob in knobs}
    assert twin.values[DRAIN] == "block"  # the innermost level that has one


@pytest.mark.parametrize("position", ["block", "task"])
def test_a_program_with_a_buffer_is_its_own_rule_of_thumb(zen4: Target, position: str) -> None:
    tuned = sampled(zen4, "gemm", pins=f"position(drain(c))={position}", m=64, n=64, k=64)
    found = distant(tuned.task, tuned.candidate, measured=False)
    assert found.candidate == tuned.candidate
    assert found.seconds is None


def test_a_padded_result_has_a_buffer_already(zen4: Target) -> None:
    tuned = sampled(zen4, "gemm", pins="position(drain(c))=root", m=64, n=33, k=64)
    assert not adds_in_place(tuned.task.program(tuned.candidate))


def test_the_fastest_is_taken_where_it_can_be_measured(runnable: Target) -> None:
    tuned = sampled(runnable, "gemm", pins="position(drain(c))=root", m=64, n=64, k=64)
    found = distant(tuned.task, tuned.candidate, measured=True)
    assert found.seconds is not None
    assert 0 < found.seconds < 1e-3


def test_what_is_packed_and_vectors_have_no_leading_dimension(zen4: Target) -> None:
    assert leading_flags(sampled(zen4, "gemm", m=8, n=16, k=8).task) == [True, False, True]
    assert leading_flags(sampled(zen4, "gemv", m=16, k=8).task) == [False, False, False]
    assert leading_flags(sampled(zen4, "scan", m=8, n=8, k=8).task) == [False, False, False]  # compact tensors only
    assert leading_flags(sampled(zen4, "batch_matmul", batch=2, m=8, n=16, k=8).task) == [True, True, True]


def test_the_manifest_says_which_program_it_is(exported: Exported) -> None:
    kernels = {kernel.function: kernel for kernel in exported.manifest.kernels}
    assert kernels["gemv_u8s8s32"].distant is None
    assert kernels["conv2d_u8s8s32"].distant is None
    for kernel in exported.manifest.kernels:
        if kernel.distant is not None:
            assert kernel.distant.seconds is not None
            assert kernel.distant.twin == (kernel.distant.values != kernel.values)
