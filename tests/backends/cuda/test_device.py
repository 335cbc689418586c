"""GPUs as devices: the model end to end, what a run says of its times, and what is exported of it."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

from heron_asp import resolve_target
from heron_asp.backends import backend_of
from heron_asp.backends.cuda import nvcc
from heron_asp.backends.cuda.build import build, fragment_registers, shared_memory
from heron_asp.backends.cuda.device import MODELLED, GpuDevice, emulate
from heron_asp.backends.cuda.emulator import EmulationError, compile_program
from heron_asp.backends.cuda.emulator import build as emulator
from heron_asp.backends.cuda.library import export_tuned
from heron_asp.backends.cuda.modelled import work_of
from heron_asp.backends.cuda.program import Use
from heron_asp.errors import HeronError, MissingError
from heron_asp.library.choice import Tuned
from heron_asp.measure.data import cases
from heron_asp.measure.result import Limits, Status
from heron_asp.operators import Operator, from_prim_func, operator
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory
from heron_asp.task import Task
from heron_asp.terms import parse
from heron_asp.tuning import TuneOptions, tune
from tests.analysis.expressions import prim_func, tensor, total

pytestmark = pytest.mark.skipif(not which("g++"), reason="the emulator compiles with g++")


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(
        operator("gemm", {"m": 30, "n": 40, "k": 48}, "f16f16f32", epilogue="bias,relu"), resolve_target("a100")
    )


@pytest.mark.parametrize(
    ("chosen", "message"),
    [("/nonexistent", "CXX=/nonexistent: there is no such program"), ("/bin/false", "/bin/false cannot be used")],
)
def test_without_a_compiler_there_is_no_device(
    task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str, message: str
) -> None:
    """Told before anything is tried: no candidate is to blame."""
    monkeypatch.setenv("CXX", chosen)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asked = (emulator.compiler, emulator._options, emulator._version)
    for one in asked:
        one.cache_clear()
    with pytest.raises(MissingError, match=message):
        GpuDevice(task)
    for one in asked:
        one.cache_clear()


@pytest.mark.parametrize("said", ["foo", "worker:", "worker:-oProxyCommand=id", "model:x"])
def test_there_is_no_such_device(task: Task, said: str) -> None:
    with pytest.raises(HeronError, match="no such device"):
        backend_of(task.target).device(task, Limits(), said)


def test_sums_that_are_moved_do_not_lie_further_than_32_bits_reach() -> None:
    """The rules count just the fragments that lie in memory between the two kernels."""
    shape = {"n": 1, "h": 5, "w": 4, "ci": 16, "co": 3, "kh": 3, "kw": 3, "stride": 2}
    task = Task(operator("conv2d_transposed", shape, "f16f16f32"), resolve_target("a100"))
    part = task.space["wmma_8x32x16_f16_f32"]
    most = next(one for one in part.constraints if one.name == "c5:spread(y_sum)")
    assert (most.kind.name, most.kind.arguments) == ("at_most", ((2**31 - 1) // (8 * 32),))
    (candidate,) = part.sample(1, np.random.default_rng(0))
    (sums,) = (one for one in build(task, candidate).buffers if one.use is Use.SCRATCH)
    assert sums.shape == (candidate.values[parse("units(y_sum)")] * 8 * 32,)


def sampled(task: Task, number: int = 1, sketch: str = "") -> list[Candidate]:
    found = task.space.sample(200, np.random.default_rng(1))
    return [one for one in found if sketch in one.sketch and ("sliced" in one.sketch) == (sketch == "sliced")][:number]


@pytest.fixture(scope="module")
def run(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modelled") / "run"
    tune(task, backend_of(task.target).device(task, Limits(), "model"), TuneOptions(3), RunDirectory(folder))
    return folder


def test_a_modelled_run_says_so_everywhere(run: Path) -> None:
    header, result = (json.loads((run / f"{name}.json").read_text()) for name in ("run", "result"))
    assert header["measured"] == result["measured"] == MODELLED == "modelled, not measured"
    assert result["trials"]["correct"] == 3
    assert 0 < result["best"]["share_of_peak"] < 1


def test_a_modelled_run_does_not_go_on_with_another_device(task: Task, run: Path) -> None:
    device = backend_of(task.target).device(task, Limits(), "worker:nowhere")
    with pytest.raises(HeronError, match="measured: recorded modelled, not measured, asked time on nowhere"):
        tune(task, device, TuneOptions(4), RunDirectory(run), resume=True)


def test_a_machine_without_a_driver_measures_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(MissingError, match="no CUDA driver") as raised:
        backend_of(task.target).device(task, Limits())
    assert "--device model" in raised.value.hint


def test_an_unknown_device_is_refused(task: Task) -> None:
    with pytest.raises(HeronError, match="--device moon: no such device"):
        backend_of(task.target).device(task, Limits(), "moon")


def test_a_program_that_is_wrong_is_not_timed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_barrier(task: Task, candidate: Candidate) -> Any:
        program = build(task, candidate)
        return type(program)(program.source.replace("__syncthreads();", "", 1), program.kernels, program.buffers)

    monkeypatch.setattr("heron_asp.backends.cuda.device.build", without_a_barrier)
    many = next(one for one in sampled(task, 200) if work_of(task, one, 64, 1024).warps > 1)
    found = GpuDevice(task).measure(many)
    assert found.status is Status.CORRECTNESS
    assert found.seconds is None


def test_a_compiler_that_takes_too_long_is_a_timeout(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> None:
        raise nvcc.CompileTimeout("nvcc was not done after 1 seconds")

    monkeypatch.setattr("heron_asp.backends.cuda.device._has_nvcc", lambda: True)
    monkeypatch.setattr("heron_asp.backends.cuda.device.compile_cubin", slow)
    found = GpuDevice(task).measure(*sampled(task))
    assert found.status is Status.TIMEOUT
    assert found.error == "nvcc was not done after 1 seconds"


def test_a_candidate_that_is_named_twice_is_checked_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("heron_asp.backends.cuda.device.Child", lambda *given: started.append(given))
    device, (first, second) = GpuDevice(task), sampled(task, 2)
    device.build_ahead([first, second, first])
    assert len(started) == 2


def test_registers_are_counted_where_their_limit_is_lifted(task: Task) -> None:
    (candidate,) = sampled(task)
    lifted = Task(task.operator, task.target, relaxed=["registers"])
    free = task.target.pays["registers"].value
    assert fragment_registers(lifted, candidate) == fragment_registers(task, candidate) > free


def test_what_a_round_asks_for_is_not_forgotten_within_it(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_asp.backends.cuda.device._KEPT", 1)
    device = GpuDevice(task)
    first, second, third = sampled(task, 3)
    measured = [device.measure(one).seconds for one in (first, second, third)]
    assert device.compare([first, second, third], 2) == [[seconds] * 2 for seconds in measured]


def test_elements_that_are_left_out_are_noticed(task: Task) -> None:
    large = Task(operator("gemm", {"m": 256, "n": 256, "k": 16}, "f16f16f32"), task.target)
    case = cases(large.operator, most=1)[0]
    many = (build(large, one) for one in sampled(large, 200))
    program = next(one for one in many if one.kernels[0].grid[0] > 64)
    emulate(program, case, 60)
    fewer = replace(program.kernels[0], grid=(program.kernels[0].grid[0] - 1, 1, 1))
    with pytest.raises(EmulationError, match="wrong results"):
        emulate(replace(program, kernels=(fewer,)), case, 60)


def test_what_the_model_is_told_agrees_with_the_launch(task: Task) -> None:
    for candidate in sampled(task, 12):
        program, work = build(task, candidate), work_of(task, candidate, 64, shared_memory(task, candidate))
        assert work.blocks == program.kernels[0].grid[0]
        assert work.warps * 32 == program.kernels[0].threads
        assert work.shared_bytes == program.kernels[0].dynamic_shared


def emulated_in_place_of_nvcc(source: str, architecture: str, *_: float) -> nvcc.Compiled:
    """What the fake driver takes for machine code."""
    program = emulated_in_place_of_nvcc.programs[source]  # type: ignore[attr-defined]
    resources = nvcc.Resources(32, 0, 0, 0, 0, 1)
    names = {kernel.name: resources for kernel in program.kernels}
    return nvcc.Compiled(architecture, compile_program(program).library, names)


def own_names() -> Operator:
    """Arguments are called as what a launcher has itself, and as TVM calls those of kernels."""
    x, w = tensor("status", 30, 300, dtype="float16"), tensor("status_ptr", 300, 40, dtype="float16")
    y = total("taken", (30, 40), {"k": 300}, lambda m, n, k: x[m, k].astype("float32") * w[k, n].astype("float32"))
    kind = from_prim_func("own_names", prim_func(x, w, y))
    return Operator(kind, {}, kind.dtype, kind.layout)


@pytest.mark.parametrize(("sketch", "own"), [("wmma", False), ("sliced", False), ("sliced", True)])
def test_an_exported_launcher_computes(
    sketch: str, own: bool, tmp_path: Path, fake_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = own_names() if own else operator("gemm", {"m": 30, "n": 40, "k": 300}, "f16f16f32")
    task = Task(made, resolve_target("a100"))
    (candidate,) = sampled(task, 1, sketch)
    program = build(task, candidate)
    emulated_in_place_of_nvcc.programs = {program.source: program}  # type: ignore[attr-defined]
    monkeypatch.setitem(export_tuned.__globals__, "compile_cubin", emulated_in_place_of_nvcc)
    manifest = export_tuned([Tuned(task, candidate, 1e-6)], tmp_path / "lib")
    assert len(manifest.kernels[0].launches) == (2 if sketch == "sliced" else 1)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    library = tmp_path / "kernels.so"
    command = ["cc", *flags, "-o", str(library), str(tmp_path / "lib/kernels.c"), str(fake_driver)]
    subprocess.run(command, check=True)
    loaded, case = ctypes.CDLL(str(library)), cases(made, most=1)[0]
    result = np.full(made.result.shape, np.nan, np.float32)
    scratch = np.empty(2**20, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 256 :]  # as the driver aligns what it allocates
    arrays = [*case.inputs.values(), result, *([scratch] if sketch == "sliced" else [])]
    call = getattr(loaded, manifest.kernels[0].name)
    arguments = [None, *(ctypes.c_uint64(one.ctypes.data) for one in arrays)]
    assert call(*arguments) == 3  # not loaded
    assert loaded.kernels_load() == 0
    assert call(*arguments) == 0
    assert case.error(result) is None
    loaded.kernels_unload()
    assert call(*arguments) == 3
