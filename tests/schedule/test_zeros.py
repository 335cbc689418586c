"""Rows and columns of zero padding: what share of the work they are, and that skipping them changes no result."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from heron_asp import LocalDevice, Task, operator
from heron_asp.measure.kernel import tvm_target
from heron_asp.measure.result import Limits, Status
from heron_asp.space import SketchSpace
from heron_asp.target import Target
from heron_asp.terms import Term, parse

CASES = [
    ("conv2d", {"n": 1, "h": 6, "w": 9, "ci": 8, "co": 16, "kh": 3, "kw": 3, "stride": 1, "padding": 1}),
    ("conv2d", {"n": 2, "h": 7, "w": 5, "ci": 4, "co": 20, "kh": 5, "kw": 3, "stride": 2, "padding": 3, "dilation": 2}),
    ("conv3d", {"n": 1, "d": 2, "h": 5, "w": 5, "ci": 4, "co": 16, "kd": 3, "kh": 3, "kw": 3, "padding": 1}),
]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_programs_that_skip_are_right(runnable: Target, name: str, shape: dict[str, int]) -> None:
    task = Task(operator(name, shape), runnable)
    part = task.space.parts[0]
    reduced = [axis.name for axis in task.block.axes if axis.name in ("kd", "kh")]
    one = frozenset({1})
    pins = {Term("tile", (task.block.block, axis, "unroll")): one for axis in reduced}
    pins |= {Term("tile", (task.block.block, axis, "register")): one for axis in ("od", "oh")[-len(reduced) :]}
    device = LocalDevice(task, Limits(repeats=1, repeat_ms=1))
    for candidate in part.sample(3, np.random.default_rng(0), pins):
        *_, last = task.calls(candidate)
        assert last.primitive == "skip_zeros"
        assert len(last.arguments) == 1 + len(reduced)
        found = device.measure(candidate)
        assert (found.status, found.error) == (Status.CORRECT, "")


def test_what_is_skipped_is_padding_in_every_step(zen4: Target) -> None:
    task = Task(operator("conv2d", CASES[0][1]), zen4)
    pins = {parse("tile(y, oh, register)"): frozenset({1}), parse("tile(y, kh, unroll)"): frozenset({1})}
    candidate = task.space.parts[0].sample(1, np.random.default_rng(1), pins)[0]
    text = task.program(candidate).module["main"].script()
    assert text.count(" >= 1 and ") == 1  # rows 1 .. 6 of 8 are no padding
    assert " < 7:" in text
    pins[parse("tile(y, oh, register)")] = frozenset({6})
    candidate = task.space.parts[0].sample(1, np.random.default_rng(1), pins)[0]
    assert "skip_zeros" not in {call.primitive for call in task.calls(candidate)}


COLUMNS = [  # with the products of columns of the result and of the window that are not padding
    ("conv2d", {"n": 1, "h": 5, "w": 7, "ci": 32, "co": 16, "kh": 3, "kw": 3, "padding": 1}, 19),
    ("conv2d", {"n": 1, "h": 4, "w": 7, "ci": 32, "co": 16, "kh": 3, "kw": 3, "padding": 1, "stride": 2}, 10),
    ("conv2d", {"n": 1, "h": 5, "w": 6, "ci": 32, "co": 16, "kh": 3, "kw": 3, "padding": 2, "dilation": 2}, 14),
    ("conv2d", {"n": 2, "h": 3, "w": 7, "ci": 8, "co": 20, "kh": 2, "kw": 5, "padding": 2}, 29),
    ("conv2d", {"n": 1, "h": 4, "w": 5, "ci": 4, "co": 16, "kh": 1, "kw": 4, "padding_left": 3}, 14),
    ("conv2d_transposed", {"n": 1, "h": 3, "w": 7, "ci": 16, "co": 16, "kh": 3, "kw": 3, "padding": 1}, 19),
    ("conv3d", {"n": 1, "d": 2, "h": 3, "w": 7, "ci": 8, "co": 16, "kd": 2, "kh": 3, "kw": 3, "padding": 1}, 19),
    ("conv1d", {"n": 1, "w": 11, "ci": 16, "co": 16, "kw": 3, "padding": 1}, 31),
]


def columns(task: Task) -> SketchSpace:
    """The sketch that leaves out columns of padding."""
    return next(part for part in task.space.parts if ("y", "columns") in part.sketch.of("variant"))


@pytest.mark.parametrize(("name", "shape", "products"), COLUMNS)
def test_columns_of_padding_are_left_out_of_the_code(zen4: Target, name, shape, products: int) -> None:
    """What is left is there as often as the loops around are unrolled: a few times 2 and 3."""
    from tvm import compile as build

    task = Task(operator(name, shape), zen4)
    pins = {term: frozenset({1}) for term in columns(task).sketch.knobs if str(term).endswith(", unroll)")}
    candidate = columns(task).sample(1, np.random.default_rng(2), pins)[0]
    code = build(task.program(candidate).module, target=tvm_target(zen4, 1)).mod.inspect_source("asm")
    assert code.count("vpdpbusd") > 0
    assert code.count("vpdpbusd") % products == 0


@pytest.mark.parametrize(("name", "shape"), [*CASES, *((name, shape) for name, shape, _ in COLUMNS)])
@pytest.mark.parametrize("threads", [1, 2])
def test_programs_that_skip_columns_are_right(runnable: Target, name: str, shape: dict[str, int], threads: int) -> None:
    task = Task(operator(name, shape), runnable, threads)
    device = LocalDevice(task, Limits(repeats=1, repeat_ms=1))
    for candidate in columns(task).sample(3, np.random.default_rng(0)):
        assert task.calls(candidate)[-1].primitive == "skip_zeros"
        found = device.measure(candidate)
        assert (found.status, found.error) == (Status.CORRECT, "")


def test_wide_results_keep_their_columns_unless_asked(zen4: Target) -> None:
    made = operator("conv2d", {"n": 1, "h": 5, "w": 17, "ci": 8, "co": 16, "kh": 3, "kw": 3, "padding": 1})
    assert not any("columns" in sketch.name for sketch in Task(made, zen4).sketches)
    assert columns(Task(made, zen4, relaxed=["columns"])).size > 0


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_useful_share_is_counted(zen4: Target, name: str, shape: dict[str, int]) -> None:
    made = operator(name, shape)
    every = made.extents
    share = 1.0
    for dim in "dhw" if name == "conv3d" else "hw":
        stride, dilation, padding = shape.get("stride", 1), shape.get("dilation", 1), shape["padding"]
        rows = [
            0 <= at * stride + tap * dilation - padding < every[dim]
            for at, tap in product(range(every[f"o{dim}"]), range(every[f"k{dim}"]))
        ]
        share *= sum(rows) / len(rows)
    assert Task(made, zen4).useful_operations == pytest.approx(made.operations * share)


def test_without_padding_all_is_useful(zen4: Target) -> None:
    task = Task(operator("gemm", {"m": 3, "n": 5, "k": 7}), zen4)
    assert task.useful_operations == task.operator.operations
