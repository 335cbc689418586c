"""Building, running and checking: every way to fail is a row, and wrong results never win."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.child import Child, run_in_child
from heron_asp.dtypes import DTYPES
from heron_asp.errors import HeronError
from heron_asp.measure.data import cases
from heron_asp.measure.device import LocalDevice
from heron_asp.measure.kernel import build, lowered_hash, tvm_target
from heron_asp.measure.operands import Operands, PackingError
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.measure.stopwatch import Stopwatch
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


# -- speed -------------------------------------------------------------------------------------------------------------


def test_a_child_that_pauses_goes_on_with_what_it_is_given() -> None:
    def work(report) -> None:
        report("end", report("build", None) + 1)

    children = [Child(work, [5.0], pause="build") for _ in range(2)]
    assert all(child.reached("build") for child in children)
    for number, child in enumerate(children):
        child.go(number)
    assert [child.outcome().value("end") for child in children] == [1, 2]


def test_a_pause_does_not_count_and_a_child_that_died_is_told() -> None:
    def work(report) -> None:
        report("build", None)
        report("run", 1)

    paused = Child(work, [0.5], pause="build")
    assert paused.reached("build")
    time.sleep(0.6)
    paused.go()
    assert paused.outcome().value("run") == 1
    died = Child(lambda _: os.kill(os.getpid(), signal.SIGSEGV), [5.0], pause="build")
    assert not died.reached("build")
    died.go()
    assert died.outcome().signal == signal.SIGSEGV


def test_children_die_with_their_parent(tmp_path) -> None:
    program = (
        "import os, time; from heron_asp.child import Child\n"
        "child = Child(lambda report: (report('build', os.getpid()), time.sleep(60)), [60.0])\n"
        "child.reached('build'); print(child._pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} outlives its parent")


def test_candidates_that_were_built_together_are_measured_as_if_alone(runnable: Target) -> None:
    task = make_task(runnable, m=16, n=32, k=16)
    device = LocalDevice(task, QUICK)
    candidates = task.space.sample(3, np.random.default_rng(0))
    device.build_ahead(candidates)
    assert [device.measure(one).status for one in candidates] == [Status.CORRECT] * 3
    device.build_ahead(candidates)
    device.rest()
    assert device.measure(candidates[0]).status is Status.CORRECT


def test_constants_are_packed_once_a_layout(runnable: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(runnable, m=5, n=33, k=7)
    operands = Operands(task)
    packed = []
    monkeypatch.setattr(operands, "_pack", lambda program, pack=operands._pack: packed.append(program) or pack(program))
    for candidate in task.space.sample(4, np.random.default_rng(0)):
        program = task.program(candidate)
        whole = build(task.operator, program, runnable, 1)
        for case, tensors in zip(operands.cases, operands.of(program), strict=True):
            expected = whole.arguments(case.inputs)[:-1]
            assert all((a.numpy() == b.numpy()).all() for a, b in zip(tensors, expected, strict=True))
    assert len(packed) == 1


def test_what_cannot_be_packed_is_a_compile_failure(runnable: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Operands, program: object) -> None:
        raise PackingError("no")

    monkeypatch.setattr(Operands, "of", fails)
    task = make_task(runnable, m=8, n=16, k=8)
    measured = LocalDevice(task, QUICK).measure(task.space.sample(1, np.random.default_rng(0))[0])
    assert (measured.status, measured.error) == (Status.COMPILE, "packing its constants: no")


class Steady:
    """A kernel whose calls all take as long."""

    mod = None  # only short calls need it

    def __init__(self, seconds: float) -> None:
        self.each = seconds
        self.calls = 0

    def __getitem__(self, name: str) -> Callable[[], None]:
        def call() -> None:
            end = time.thread_time() + self.each
            while time.thread_time() < end:
                pass
            self.calls += 1

        return call


def test_long_calls_are_timed_in_processor_time() -> None:
    kernel = Steady(5e-3)
    stopwatch = Stopwatch(kernel, [], 1, 1.0)
    start = time.monotonic()
    child = os.fork()
    if child == 0:  # another process that wants the core
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        while time.monotonic() < start + 1:
            pass
        os._exit(0)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        runs = [stopwatch.seconds() for _ in range(20)]
    finally:
        os.sched_setaffinity(0, before)
        os.waitpid(child, 0)
    assert time.monotonic() - start > 0.15  # the other process did disturb
    assert min(runs) < 5.5e-3
    assert np.median(runs) < 6e-3
    assert kernel.calls == 21


class Readings:
    """A stopwatch that shows made-up times."""

    def __init__(self, *shown: float) -> None:
        self.guess, *self.left = shown

    def seconds(self) -> float:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.mark.parametrize(
    ("shown", "best", "repetitions"),
    [
        ((1e-6, 1e-6), None, 16),
        ((1e-6, 1e-6), 1e-6, 16),
        ((1.2e-6, 1.2e-6), 1e-6, 3),  # clearly slower
        ((1.2e-6, 1.2e-6, 1.05e-6, 1.2e-6), 1e-6, 16),  # disturbed at first
        ((10e-3, 10e-3), 10e-3, 5),  # as many as fit into 50 ms
        ((1.0, 1.0), 1.0, 3),
    ],
)
def test_what_is_clearly_slower_is_repeated_less(
    zen4: Target, shown: tuple[float, ...], best: float | None, repetitions: int
) -> None:
    device = LocalDevice(make_task(zen4, m=8, n=16, k=8))
    assert len(device._repetitions(Readings(*shown), best)) == repetitions


def test_whatever_may_win_has_to_show_its_instruction(runnable: Target) -> None:
    """A mnemonic that no machine code has stands for an instruction that LLVM left out."""
    intrinsics = tuple(
        one.model_copy(update={"mnemonic": "vnever"}) if one.name == "vpdpbusd" else one
        for one in runnable.shared.intrinsics
    )
    without = replace(runnable, shared=runnable.shared.model_copy(update={"intrinsics": intrinsics}))
    task = make_task(without, m=16, n=32, k=16)
    device = LocalDevice(task, QUICK)
    candidates = task.space["vpdpbusd"].sample(2, np.random.default_rng(0))
    measured = device.measure(candidates[0])
    assert (measured.status, measured.seconds) == (Status.COMPILE, None)
    assert "has no vnever" in measured.error
    assert device.measure(candidates[0], best=1e-12).status is Status.CORRECT  # too slow to win, so nobody looks
    assert device.compare(candidates, 1) == [[], []]
