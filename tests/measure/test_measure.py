"""Building, running and checking: every way to fail is a row, and wrong results never win."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.child import run_in_child
from heron_asp.dtypes import DTYPES
from heron_asp.errors import HeronError
from heron_asp.measure.data import cases
from heron_asp.measure.device import LocalDevice
from heron_asp.measure.kernel import lowered_hash, tvm_target
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.operators import operator
from heron_asp.operators.operator import wrap
from heron_asp.target import Target
from tests.conftest import make_task

QUICK = Limits(repeats=1, repeat_ms=1)


def test_a_child_reports_each_phase() -> None:
    def work(report) -> None:
        report("build", 1)
        report("run", [2, 3])

    outcome = run_in_child(work, [5.0])
    assert outcome.value("build") == 1
    assert outcome.value("run") == [2, 3]
    assert outcome.value("done") is None
    assert outcome.signal == 0


def test_a_crash_a_hang_and_an_exception_are_told_apart() -> None:
    crashed = run_in_child(lambda _: os.kill(os.getpid(), signal.SIGSEGV), [5.0])
    assert crashed.signal == signal.SIGSEGV
    start = time.monotonic()
    hung = run_in_child(lambda _: time.sleep(60), [0.2])
    assert hung.timed_out
    assert time.monotonic() - start < 5

    def fails(_) -> None:
        raise ValueError("no")

    assert run_in_child(fails, [5.0]).value("error") == "ValueError: no"


def test_each_phase_has_a_clock_of_its_own() -> None:
    def work(report) -> None:
        time.sleep(0.4)
        report("build", None)
        time.sleep(0.4)
        report("run", None)

    assert not run_in_child(work, [1.0, 1.0]).timed_out
    slow_run = run_in_child(work, [1.0, 0.1])
    assert slow_run.timed_out
    assert slow_run.value("run") is None
    assert slow_run.seconds("build") > 0.3


def test_references_are_exact_and_wrap() -> None:
    made = operator("gemm", {"m": 5, "n": 7, "k": 300})
    for case in cases(made):
        a, b = (case.inputs[name].astype(np.int64) for name in "ab")
        assert (case.expected == (a @ b).astype(np.int32)).all()
    s32 = DTYPES["s32"]
    assert wrap(np.array([2.0**31, -(2.0**31) - 1]), s32).tolist() == [-(2**31), 2**31 - 1]


def test_a_wrong_element_is_found_and_rounding_is_not() -> None:
    case = cases(operator("gemm", {"m": 4, "n": 16, "k": 64}, "bf16bf16f32"))[0]
    right = (case.inputs["a"].astype("f4") @ case.inputs["b"].astype("f4")).astype("f4")
    assert case.error(right) is None
    wrong = right.copy()
    wrong[2, 3] += 0.1
    assert case.error(wrong).startswith("1 of 64 elements are wrong on random inputs, the first at (2, 3)")
    assert case.error(np.full_like(right, np.nan)) is not None


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([1, 2]))
@settings(max_examples=12, deadline=None)
def test_samples_of_odd_shapes_are_correct(runnable: Target, m: int, n: int, k: int, seed: int, threads: int) -> None:
    task = make_task(runnable, m=m, n=n, k=k, threads=threads)
    device = LocalDevice(task, QUICK)
    for candidate in task.space.sample(2, np.random.default_rng(seed)):
        measured = device.measure(candidate)
        assert measured.status is Status.CORRECT, (candidate.key, measured.error)


@pytest.mark.parametrize(
    ("name", "dtype", "threads", "shape"),
    [
        ("gemm", "bf16bf16f32", 1, {"m": 9, "n": 33, "k": 13}),
        ("gemm", "f32f32f32", 1, {"m": 5, "n": 20, "k": 7}),
        ("gemm", "f16f16f32", 2, {"m": 5, "n": 20, "k": 7}),
        ("gemv", "u8s8s32", 1, {"m": 37, "k": 21}),
        ("gemv", "bf16bf16f32", 2, {"m": 64, "k": 64}),
        ("batch_matmul", "u8s8s32", 2, {"batch": 3, "m": 7, "n": 33, "k": 9}),
        ("batch_matmul", "bf16bf16f32", 1, {"batch": 2, "m": 4, "n": 16, "k": 6}),
    ],
)
def test_samples_of_every_operator_are_correct(runnable: Target, name, dtype, threads, shape) -> None:
    task = make_task(runnable, name, dtype, threads, **shape)
    device = LocalDevice(task, QUICK)
    for candidate in task.space.sample(4, np.random.default_rng(0)):
        measured = device.measure(candidate)
        assert measured.status is Status.CORRECT, (candidate.key, measured.error)


def changed(target: Target, **call: object) -> Target:
    """The target with another implementation of its bf16 intrinsic."""
    from dataclasses import replace

    intrinsics = []
    for one in target.shared.intrinsics:
        if one.name == "vdpbf16ps":
            one = one.model_copy(update={"call": one.call.model_copy(update=call)})
        intrinsics.append(one)
    return replace(target, shared=target.shared.model_copy(update={"intrinsics": tuple(intrinsics)}))


def bf16(target: Target) -> tuple[LocalDevice, object]:
    task = make_task(target, dtype="bf16bf16f32", m=8, n=32, k=8)
    return LocalDevice(task, QUICK), task.space.sample(1, np.random.default_rng(0))[0]


def test_a_wrong_instruction_is_a_correctness_failure(runnable: Target) -> None:
    ir = dict(zip(("vdpbf16ps",), (runnable.intrinsics["vdpbf16ps"].call.ir,), strict=True))["vdpbf16ps"]
    wrong = ir.replace("<32 x bfloat> %x, <32 x bfloat> %y)", "<32 x bfloat> %x, <32 x bfloat> %x)")
    device, candidate = bf16(changed(runnable, ir=wrong))
    measured = device.measure(candidate)
    assert measured.status is Status.CORRECTNESS
    assert measured.seconds is None
    assert "elements are wrong" in measured.error


def test_code_without_the_instruction_is_a_compile_failure(runnable: Target) -> None:
    ir = runnable.intrinsics["vdpbf16ps"].call.ir
    body = ir[: ir.index("%z = call")] + "ret <16 x float> %sum\n}\n"
    measured = LocalDevice.measure(*bf16(changed(runnable, ir=body)))
    assert measured.status is Status.COMPILE
    assert "no vdpbf16ps" in measured.error


def test_an_abort_inside_llvm_is_a_compile_failure(runnable: Target) -> None:
    measured = LocalDevice.measure(*bf16(changed(runnable, ir=runnable.intrinsics["vdpbf16ps"].call.ir + "\nnonsense")))
    assert measured.status is Status.COMPILE


def test_building_too_long_is_a_timeout(runnable: Target) -> None:
    task = make_task(runnable, m=64, n=64, k=64)
    device = LocalDevice(task, Limits(build=0.01))
    measured = device.measure(task.space.sample(1, np.random.default_rng(0))[0])
    assert measured.status is Status.TIMEOUT
    assert "building took more than 0.01 s" in measured.error


def test_an_unknown_cpu_is_refused_before_llvm_takes_it_for_a_generic_one(zen4: Target) -> None:
    from dataclasses import replace

    compiler = zen4.machine.compiler.model_copy(update={"mcpu": "znver44"})
    wrong = replace(zen4, machine=zen4.machine.model_copy(update={"compiler": compiler}))
    with pytest.raises(HeronError, match="mcpu = 'znver44'") as caught:
        tvm_target(wrong, 1)
    assert "znver4" in caught.value.hint


def test_loops_of_one_step_do_not_make_another_program(zen4: Target) -> None:
    task = make_task(zen4, m=8, n=16, k=8)
    part = task.space.parts[0]
    programs = {one.key: lowered_hash(task.program(one)) for one in part.sample(300, np.random.default_rng(0))}
    assert len(set(programs.values())) < len(programs)


def test_measurements_survive_json() -> None:
    one = Measurement(Status.CORRECT, 1e-3, (1e-3, 2e-3), build_seconds=0.5)
    assert Measurement.from_json(one.to_json()) == one
    failed = Measurement(Status.TIMEOUT, error="too long")
    assert Measurement.from_json(failed.to_json()) == failed


def test_the_peak_is_in_registers(runnable: Target) -> None:
    device = LocalDevice(make_task(runnable, m=8, n=16, k=8))
    assert device.peak() > 1e10
    assert LocalDevice(make_task(runnable, dtype="f32f32f32", m=8, n=16, k=8)).peak() is None


def test_what_does_not_fit_in_memory_is_refused_at_once(runnable: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_asp.measure.device.available_bytes", lambda: 2**30)
    with pytest.raises(HeronError, match=r"checking a program takes about [0-9.]+ GiB of memory, 1.0 GiB are free"):
        LocalDevice(make_task(runnable, m=65536, n=16384, k=64))
