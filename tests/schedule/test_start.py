"""Signed operands on an instruction for unsigned ones: results, and what is packed with the weights."""

from __future__ import annotations

import numpy as np
import pytest

from heron_asp import LocalDevice, Task, operator
from heron_asp.errors import InternalError
from heron_asp.measure.data import cases
from heron_asp.measure.operands import Operands
from heron_asp.measure.result import Limits, Status
from heron_asp.schedule.replay import begin
from heron_asp.schedule.start import Start, start_with
from heron_asp.target import Target
from heron_asp.terms import Term, text
from tests.conftest import make_task

CONV = {"n": 1, "h": 6, "w": 7, "ci": 5, "co": 18, "kh": 3, "kw": 3, "padding": 1}
GROUPS = {"n": 2, "h": 5, "w": 6, "ci": 12, "co": 33, "kh": 3, "kw": 2, "padding": 2, "groups": 3, "stride": 2}
CASES = [
    ("gemm", "s8s8s32", None, "", 1, {"m": 9, "n": 20, "k": 10}),
    ("gemm", "s8s8s32", None, "bias,relu,requantize=s8:per-channel", 2, {"m": 16, "n": 32, "k": 64}),
    ("gemm", "u8u8s32", None, "", 1, {"m": 9, "n": 20, "k": 10}),
    ("gemv", "s8s8s32", None, "", 1, {"m": 33, "k": 70}),
    ("conv1d", "s8s8s32", None, "", 1, {"n": 2, "w": 17, "ci": 5, "co": 20, "kw": 3, "padding": 1}),
    ("conv2d", "s8s8s32", None, "bias,add,requantize=u8", 2, CONV),
    ("conv2d", "s8s8s32", "channels-first", "", 1, GROUPS),
    ("conv3d", "s8s8s32", None, "", 1, {"n": 1, "d": 3, **CONV, "kd": 2, "ci": 4}),
    ("conv2d_transposed", "s8s8s32", None, "", 1, {**CONV, "kh": 4, "kw": 4, "stride": 2}),
    ("scan", "s8s8s32", None, "", 1, {"m": 5, "n": 6, "k": 40}),
]


@pytest.mark.parametrize(("name", "dtype", "layout", "epilogue", "threads", "shape"), CASES)
def test_programs_with_an_offset_are_right(runnable: Target, name, dtype, layout, epilogue, threads, shape) -> None:
    """On extreme inputs too, and with the instruction in their machine code."""
    task = Task(operator(name, shape, dtype, layout, epilogue), runnable, threads)
    device = LocalDevice(task, Limits(repeats=1, repeat_ms=1))
    for part in task.space.parts:
        assert part.sketch.tensorized
        assert part.sketch.of("shifts")
        for candidate in part.sample(2, np.random.default_rng(0)):
            found = device.measure(candidate)
            assert (found.status, found.error) == (Status.CORRECT, "")


def test_the_inputs_have_all_that_differs_between_the_types() -> None:
    made = operator("gemm", {"m": 9, "n": 20, "k": 10}, "s8s8s32")
    extreme = next(case for case in cases(made) if case.name == "extreme")
    a, b = (extreme.inputs[name].astype(np.int64) for name in "ab")
    assert {-128, 127, 0} == set(a.flat)
    assert (extreme.expected == a @ b).all()


def test_the_start_is_packed_with_the_weights_alike_for_all_kernels(runnable: Target) -> None:
    for m in (1, 64):
        task, found = make_task(runnable, "gemm", "s8s8s32", m=m, n=40, k=30), set()
        operands = Operands(task)
        for candidate in task.space.sample(6, np.random.default_rng(0)):
            program = task.program(candidate)
            assert [one.name for one in program.module["main"].params][:2] == ["a", "b_packed"]
            ((_, packed), *_) = operands.of(program)
            found.add(packed.numpy().tobytes())
        (data,) = found
        b = operands.cases[0].inputs["b"].astype(np.int64)
        starts = np.frombuffer(data, np.int32)[:48]
        assert (starts[:40] == -128 * b.sum(0)).all()
        assert not starts[40:].any()
        assert len(data) == 48 * 4 + 48 * 32


def test_weights_that_are_not_known_ahead_leave_vector_code(zen4: Target) -> None:
    task = make_task(zen4, "batch_matmul", "s8s8s32", batch=2, m=4, n=16, k=8)
    assert [sketch.name for sketch in task.sketches] == ["plain vector code"]
    reasons = {text(one.reason) for one in task.derivation.refusals if one.intrinsic == "vpdpbusd"}
    assert reasons == {"varies(a, b)", "varies(b, a)"}


@pytest.mark.parametrize(("dtype", "skips"), [("u8s8s32", True), ("s8s8s32", False)])
def test_padding_is_skipped_only_where_it_adds_nothing(zen4: Target, dtype: str, skips: bool) -> None:
    for sketch in make_task(zen4, "conv2d", dtype, **CONV).sketches:
        primitives = {step.primitive.name for step in sketch.steps if isinstance(step.primitive, Term)}
        assert ("skip_zeros" in primitives) == skips
        assert ("start_with" in primitives) != skips


def test_sums_that_nothing_clears_cannot_start_otherwise(zen4: Target) -> None:
    task = make_task(zen4, "gemm", "s8s8s32", m=4, n=16, k=8)
    candidate = task.space.sample(1, np.random.default_rng(0))[0]
    whole = begin(task.block, task.calls(candidate)[0])
    with pytest.raises(InternalError, match="no block clears the sums of 'c', or there is no parameter 'b_start'"):
        start_with(whole, "c", Start("b_start", (1,)))
