"""Samples of every operator on GPUs: they build, take the shared memory that the rules count, compile, are right."""

from __future__ import annotations

import json
import re
from shutil import which

import numpy as np
import pytest

from heron_asp.backends.cuda.build import build, shared_memory
from heron_asp.backends.cuda.device import emulate
from heron_asp.backends.cuda.emulator import EmulationError
from heron_asp.backends.cuda.nvcc import compile_cubin, find_nvcc
from heron_asp.backends.cuda.program import Program
from heron_asp.backends.cuda.trial import Pipeline, Step, launch_refusal
from heron_asp.cli.app import run
from heron_asp.completeness.verdict import Rules, judge
from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.data import cases
from heron_asp.operators import operator
from heron_asp.resources import targets_folder
from heron_asp.target import load_target
from heron_asp.task import Task
from heron_asp.terms import Term, Value

SECONDS = 60.0
CASES = [  # target, kind, shape, types, layout, epilogue
    ("a100", "gemm", {"m": 60, "n": 70, "k": 50}, "f16f16f32", None, "bias,relu"),
    ("h100", "batch_matmul", {"batch": 3, "m": 40, "n": 24, "k": 32}, "f16f16f16", None, ""),
    ("t4", "gemv", {"m": 100, "k": 70}, "f16f16f32", None, ""),
    ("l4", "conv1d", {"n": 2, "w": 14, "ci": 24, "co": 40, "kw": 3, "padding": 1}, "s8s8s32", None, ""),
    ("a100", "conv2d", {"n": 2, "h": 7, "w": 7, "ci": 24, "co": 40, "kh": 3, "kw": 3, "stride": 2, "padding": 1},
     "f16f16f32", None, "bias,add,relu"),
    ("rtx3090", "conv2d", {"n": 2, "h": 5, "w": 6, "ci": 12, "co": 20, "kh": 3, "kw": 2, "padding": 1},
     "f16f16f32", "channels-first", "bias"),
    ("rtx3090", "conv3d", {"n": 1, "d": 3, "h": 5, "w": 5, "ci": 12, "co": 20, "kd": 3, "kh": 3, "kw": 3, "padding": 1},
     "f16f16f32", None, ""),
    ("t4", "conv2d_dilated", {"n": 1, "h": 9, "w": 9, "ci": 16, "co": 16, "kh": 3, "kw": 3, "padding": 2,
     "dilation": 2}, "f16f16f32", None, ""),
    ("l4", "conv2d_transposed", {"n": 1, "h": 5, "w": 5, "ci": 16, "co": 16, "kh": 3, "kw": 3, "stride": 2,
     "padding": 1}, "f16f16f32", None, ""),
    ("h100", "depthwise_conv2d", {"n": 1, "h": 6, "w": 6, "c": 8, "kh": 3, "kw": 3, "padding": 1}, "f16f16f32", None,
     ""),
    ("a100", "scan", {"m": 20, "n": 30, "k": 33}, "f16f16f32", None, ""),
    ("rtx3090", "mean", {"m": 20, "k": 100}, "f16f16f32", None, ""),
    ("t4", "variance", {"m": 10, "k": 60}, "f16f16f32", None, ""),
]  # fmt: skip
IDS = [f"{case[1]}-{case[3]}-{case[0]}" for case in CASES]


def task_of(target: str, kind: str, shape: dict[str, int], dtype: str = "f16f16f32", *more, **options) -> Task:
    return Task(operator(kind, shape, dtype, *more), load_target(targets_folder() / f"{target}.toml"), **options)


@pytest.fixture
def nvcc() -> None:
    try:
        find_nvcc()
    except HeronError as error:
        pytest.skip(str(error))


@pytest.fixture
def emulator() -> None:
    if not (which("g++") or which("clang++")):
        pytest.skip("the emulator needs a C++ compiler")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_samples_are_right(emulator: None, case) -> None:
    task = task_of(*case)
    expected = cases(task.operator, most=1)[0]
    assert len(task.space.parts) >= 2
    for number, part in enumerate(task.space):
        (candidate,) = part.sample(1, np.random.default_rng(number))
        program = build(task, candidate)
        assert program.kernels[0].dynamic_shared == shared_memory(task, candidate)
        assert not any(kernel.static_shared for kernel in program.kernels)
        emulate(program, expected, SECONDS)


@pytest.mark.parametrize("case", CASES[:4], ids=IDS[:4])
def test_samples_compile(nvcc: None, case) -> None:
    task = task_of(*case)
    (candidate,) = task.space.sample(1, np.random.default_rng(1))
    program = build(task, candidate)
    assert task.target.machine.compiler is not None
    compiled = compile_cubin(program.source, task.target.machine.compiler.mcpu)
    assert set(compiled.resources) == {kernel.name for kernel in program.kernels}
    assert all(one.static_shared == 0 for one in compiled.resources.values())
    assert launch_refusal(program, compiled.resources, task.target) == ""


def test_padding_of_bytes_is_zero_words() -> None:
    task = task_of("l4", "gemm", {"m": 60, "n": 72, "k": 64}, "s8s8s32")
    pins = {Term("vector", (Term("load", (name,)),)): frozenset({many}) for name, many in (("a", 16), ("b", 8))}
    pins[Term("pipeline", ("c",))] = frozenset({"none"})
    pins[Term("tile", ("c", "m", "unit"))] = frozenset({16})
    source = build(task, *task.space.sample(1, np.random.default_rng(0), pins)).source
    assert "make_int2(0, 0)" in source
    assert "make_int4(0, 0, 0, 0)" in source
    assert "(signed char)0, (signed char)0" not in source


def test_nothing_runs_by_itself_where_the_gpu_cannot() -> None:
    task = task_of("t4", "gemm", {"m": 64, "n": 64, "k": 64})
    for pipeline in ("none", "registers"):
        pins = {Term("pipeline", ("c",)): frozenset({pipeline})}
        (candidate,) = task.space.sample(1, np.random.default_rng(0), pins)
        assert "cp.async" not in build(task, candidate).source


def test_a_missing_barrier_is_found(emulator: None) -> None:
    task = task_of("a100", "gemm", {"m": 32, "n": 32, "k": 64})
    (candidate,) = task.space.parts[0].sample(
        1,
        np.random.default_rng(0),
        {Term("tile", ("c", "k", "stage")): frozenset({2}), Term("fused", ("c", "warp")): frozenset({2})},
    )
    program = build(task, candidate)
    assert "__syncthreads" in program.source
    wrong = Program(program.source.replace("__syncthreads();", ""), program.kernels, program.buffers)
    with pytest.raises(EmulationError):
        emulate(wrong, cases(task.operator, most=1)[0], SECONDS)


# -- what the rules forbid does not run --------------------------------------------------------------------------------

KNOBS = {
    Term("extent", ("c", "m")): 32, Term("extent", ("c", "n")): 32, Term("extent", ("c", "k")): 64,
    Term("tile", ("c", "m", "grid")): 1, Term("tile", ("c", "m", "warp")): 2, Term("tile", ("c", "m", "fragment")): 1,
    Term("tile", ("c", "n", "grid")): 1, Term("tile", ("c", "n", "warp")): 1, Term("tile", ("c", "n", "fragment")): 2,
    Term("tile", ("c", "m", "unit")): 16, Term("tile", ("c", "n", "unit")): 16, Term("tile", ("c", "k", "unit")): 16,
    Term("tile", ("c", "k", "stage")): 2, Term("tile", ("c", "k", "step")): 2,
    Term("tile", ("c", "slice", "grid")): 1, Term("pipeline", ("c",)): "none", Term("inner", ("c", "grid")): "slice",
    Term("position", (Term("drain", ("c",)),)): "grid",
    **{Term("padding", (Term(*copy),)): 8 for copy in [("load", ("a",)), ("load", ("b",)), ("drain", ("c",))]},
    **{Term("vector", (Term(*copy),)): 4 for copy in [("load", ("a",)), ("load", ("b",)), ("drain", ("c",))]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "refusing", "step"),
    [
        ({}, set(), None),
        ({Term("tile", ("c", "m", "unit")): 8}, {"c1:split(c, m)", "c3:unit(c, m)"}, Step.SCHEDULE),
        ({Term("padding", (Term("load", ("a",)),)): 4}, {"candidates:padding(load(a))"}, Step.EMULATOR),
        ({Term("padding", (Term("drain", ("c",)),)): 2}, {"candidates:padding(drain(c))"}, Step.EMULATOR),
        ({Term("vector", (Term("load", ("b",)),)): 16}, {"candidates:vector(load(b))"}, Step.CHECK),
        ({Term("vector", (Term("drain", ("c",)),)): 8}, {"candidates:vector(drain(c))"}, Step.CHECK),
        ({Term("pipeline", ("c",)): "async3"}, {"c6:overlap(c, k, stage, 2)"}, None),
    ],
)
def test_what_a_constraint_forbids(emulator: None, changed, refusing, step) -> None:
    task = task_of("a100", "gemm", {"m": 32, "n": 32, "k": 64})
    sketch = task.space["wmma_16x16x16_f16_f32"].sketch
    rules = Rules.of(sketch)
    chosen: dict[Value, Value] = {**KNOBS, **changed}
    verdict = judge(rules, [tuple(chosen[knob] if knob in chosen else fixed(sketch, knob) for knob in rules.knobs)])
    assert {name for name, mask in verdict.refused.items() if mask[0]} == refusing
    trial = Pipeline(task, cases(task.operator, most=1)[0], compiles=False).trial(sketch, verdict.values(0))
    assert trial.step is step, trial.reason


def fixed(sketch, knob: Value) -> Value:
    (value,) = [value for one, value in sketch.of("candidate") if one == knob]
    return value


# -- the command line says why -----------------------------------------------------------------------------------------


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    def invoke(*arguments: str) -> tuple[int, dict]:
        code = run([*arguments, "--json"])
        return int(code), json.loads(capsys.readouterr().out)

    return invoke


WITHOUT_PADDING = [  # shape, the axis that does not fit, its extent and the next one, what would help
    ("m=1000,n=1000,k=1000", "k", 1000, 1008,
     "k from 1000 to 1008 and m from 1000 to 1008 and n from 1000 to 1008: 2 %"),
    ("m=4,n=768,k=2048", "m", 4, 16, "m from 4 to 16: 75 %"),
    ("m=8,n=8,k=8", "k", 8, 16, "k from 8 to 16 and m from 8 to 16 and n from 8 to 16: 88 %"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis", "extent", "padded", "remedy"), WITHOUT_PADDING)
def test_what_does_not_fit_is_explained(call, shape: str, axis: str, extent: int, padded: int, remedy: str) -> None:
    code, found = call("check", "gemm", "-t", "a100", "-s", shape, "--no-padding")
    assert code == ExitCode.INFEASIBLE
    variable = f"(c, {axis})"
    said = f"s1:unpadded{variable} (must): extent{variable} = {extent}, but it can only be {padded}"
    assert found["conflict"] == [said]
    assert found["remedies"] == [f"pad {remedy} of the work is padding (without --no-padding)"]


def test_a_shape_that_fits_one_instruction(call) -> None:
    arguments = ("gemm", "-t", "a100", "-s", "m=64,n=8,k=16")
    code, found = call("explain", *arguments, "--no-padding")
    assert code == ExitCode.OK
    assert [one["sketch"] for one in found["sketches"] if one["programs"]] == [
        "wmma_32x8x16_f16_f32",
        "wmma_32x8x16_f16_f32 straight",
    ]
    assert found["sketches"][0]["conflict"] == ["s1:unpadded(c, n) (must): extent(c, n) = 8, but it can only be 16"]
    code, found = call("check", *arguments)
    assert code == ExitCode.OK
    assert all(one["programs"] for one in found["sketches"] if one["searched"])


def test_elements_that_lie_apart_are_copied_one_by_one() -> None:
    shape = {"n": 1, "h": 5, "w": 6, "ci": 16, "co": 16, "kh": 3, "kw": 3}
    sources = {}
    for layout in ("channels-last", "channels-first"):
        task = task_of("a100", "conv2d", shape, "f16f16f32", layout)
        weight, pipeline = Term("vector", (Term("load", ("weight",)),)), Term("pipeline", (task.block.block,))
        pins = {weight: frozenset({8}), pipeline: frozenset({"async2"})}
        sources[layout] = build(task, *task.space.sample(1, np.random.default_rng(0), pins)).source
    assert re.search(r"cp_async\w*_16_\w*\(shared_ptr, .*weight_ptr", sources["channels-last"])
    assert not re.search(r"cp_async.*weight_ptr", sources["channels-first"])
