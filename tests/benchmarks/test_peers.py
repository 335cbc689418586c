"""The sides of the comparisons compute what they should, and rows say what came of them."""

from __future__ import annotations

import argparse
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlboost_suite import Suite, seconds
from peers.compare import Bench, Comparison, Timing, onednn
from peers.interpreted import NUMPY, ONNXRUNTIME, numpy_side, onnxruntime_side
from peers.machine import Level, Machine
from peers.native import Clock, Side
from peers.onednn import NAME as ONEDNN
from peers.ours import NAME as OURS
from peers.ours import caller
from peers.rows import CAP, Found, Row, row_of, summary, to_json, total
from peers.suite import Case
from peers.tuned import Tuner
from peers.workload import Array, Workload, workload

from heron_asp.errors import MissingError
from heron_asp.library.interface import Interface
from heron_asp.operators import KINDS
from heron_asp.target import Target

_PLANE = {"n": 2, "h": 9, "w": 7, "ci": 8, "co": 16, "kh": 3, "kw": 2}
WORKLOADS = [
    workload("gemm", {"m": 7, "n": 33, "k": 20}),
    workload("scan", {"m": 5, "n": 12, "k": 8}),
    workload("scan", {"m": 5, "n": 8, "k": 12}),
    workload("batch_matmul", {"batch": 3, "m": 7, "n": 33, "k": 20}),
    workload("gemv", {"m": 33, "k": 20}),
    workload("conv1d", {"n": 2, "w": 20, "ci": 8, "co": 16, "kw": 3, "stride": 2, "padding": 3, "dilation": 2}),
    workload("conv2d", {**_PLANE, "stride": 2, "padding": 1, "groups": 2}),
    workload("conv2d_dilated", {**_PLANE, "padding": 1, "dilation": 2}),
    workload("conv2d_transposed", {**_PLANE, "stride": 2, "padding": 1, "output_padding": 1}),
    workload("conv3d", {**_PLANE, "d": 5, "kd": 2, "padding": 1}),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    try:
        return Bench(tmp_path_factory.mktemp("bench"))
    except MissingError as error:
        pytest.skip(str(error))


def _lopsided() -> Workload:
    one = workload("conv2d", _PLANE)
    windows = tuple(replace(window, before=1, after=2 * number) for number, window in enumerate(one.windows))
    result = {"n": 2, "oh": windows[0].result, "ow": windows[1].result, "co": 16}
    return replace(one, windows=windows, result=result)


@pytest.mark.parametrize("one", [*WORKLOADS, _lopsided()], ids=lambda one: one.operator)
def test_onednn_computes_the_reference(bench: Bench, one: Workload) -> None:
    if bench.onednn is None:
        pytest.skip(bench.missing)
    found = bench.compare(one, 1, {ONEDNN: onednn(bench.onednn, one, 1)}, {}, 1)
    assert not found.errors
    assert found.timings[ONEDNN].seconds > 0
    assert found.timings[ONEDNN].implementation


@pytest.mark.parametrize("one", WORKLOADS, ids=lambda one: one.operator)
@pytest.mark.parametrize(("name", "make"), [(NUMPY, numpy_side), (ONNXRUNTIME, onnxruntime_side)])
def test_python_peers_compute_the_reference(bench: Bench, one: Workload, name: str, make: object) -> None:
    found = bench.compare(one, 1, {}, {name: make(one, 1)}, 1)  # type: ignore[operator]
    if name in found.errors:
        assert found.errors[name].startswith(("no ", "numpy has no", "onnxruntime has no"))
        pytest.skip(found.errors[name])
    assert "called from Python" in found.timings[name].implementation


class _Fake:
    """A side that is wrong from some call on."""

    name, implementation, tolerance = "fake", "", 0.0

    def __init__(self, right: Array, good: int) -> None:
        self.right, self.good = right, good

    def run(self) -> Array:
        self.good -= 1
        return self.right if self.good >= 0 else self.right + 1

    def seconds(self, calls: int) -> float:
        return 0.02

    def expects(self, exact: Array) -> Array:
        return exact


def test_what_is_wrong_or_crashes_is_an_error(bench: Bench) -> None:
    one = workload("gemm", {"m": 2, "n": 2, "k": 2})

    def side(good: int):  # type: ignore[no-untyped-def]
        def make(_: Clock, source: Array, weights: Array) -> Side:
            return _Fake(one.reference(source, weights), good)

        return make

    def crash(_: Clock, _source: Array, _weights: Array) -> Side:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed by now")

    found = bench.compare(one, 1, {"right": side(9), "wrong": side(0), "late": side(1)}, {}, 1)
    assert set(found.timings) == {"right"}
    assert found.errors == {
        "wrong": "4 of 4 elements are wrong",
        "late": "after the rounds, 4 of 4 elements are wrong",
    }
    assert "signal 9" in bench.compare(one, 1, {"crash": crash}, {}, 1).errors["crash"]


def test_callers_take_arguments_from_a_block() -> None:
    text = caller(Interface(KINDS["gemv"], "u8s8s32").call)
    assert "(int)said[0], (int)said[1], (const void *)(intptr_t)said[2]" in text
    assert text.count("gemv_u8s8s32") == 2
    struct = caller(Interface(KINDS["conv1d"], "u8s8s32").call)
    assert "(const struct conv1d_shape *)(intptr_t)said[0], (const uint8_t *)(intptr_t)said[1]" in struct


def test_a_suite_end_to_end(runnable: Target, bench: Bench, tmp_path: Path) -> None:
    case = Case("G", "gemm", {"m": 8, "n": 32, "k": 16})
    said: list[str] = []
    suite = Suite([case], Tuner(runnable, tmp_path / "runs", None, said.append), tmp_path, 2, [])
    suite.tune([case], 1, 2)
    found = suite.compare_all([(case, 1)])["G", 1]
    assert OURS not in {**found.comparison.errors, **found.errors}
    row = row_of(found, suite.machine(1, [found]))
    assert row.sides[OURS].gops > 0
    assert row.sides[OURS].share_of_bound > 0
    assert row.trials == 2
    again = Suite([case], Tuner(runnable, tmp_path / "runs", 0.0, said.append), tmp_path, 2, [])
    again.tune([case], 1, 2)  # what was tuned is there without any budget
    assert not again.tuner.errors
    again.tune([case], 1, 3)
    assert "within the budget" in said[-1]


def _row(
    name: str,
    ours: float | None,
    theirs: float,
    implementation: str = "brg",
    operator: str = "gemm",
    quiet: bool = True,
) -> Row:
    timings = {ONEDNN: Timing(theirs, (theirs,) * 3, implementation)}
    errors = {}
    if ours is None:
        errors[OURS] = "not tuned"
    else:
        timings[OURS] = Timing(ours, (ours,) * 3, "vector")
    machine = Machine(1, 1e12, (Level("DRAM", None, 1e9),), 0.0)
    case = Case(name, operator, {"m": 4, "n": 4, "k": 4}, count=3)
    return row_of(Found(case, 1, Comparison(timings, errors, 1e12, (quiet,) * 3), 64, {}), machine)


def test_means_are_capped_and_leave_out_what_is_no_comparison() -> None:
    rows = [
        _row("fast", 1.0, 16.0),
        _row("tie", 1.0, 1.015),
        _row("slow", 1.0, 0.5, quiet=False),
        _row("reference", 1.0, 100.0, "ref:any"),
        _row("scan", 1.0, 100.0, operator="scan"),
        _row("failed", None, 1.0),
    ]
    found = summary(rows, 1)
    assert (found.cases, found.compared, found.faster, found.ties, found.slower) == (6, 3, 1, 1, 1)
    assert found.mean == pytest.approx((CAP * 1.015 * 0.5) ** (1 / 3))
    assert found.median == pytest.approx(1.015)
    assert (found.worst, found.worst_case) == (0.5, "slow")
    assert (found.failed, found.outside, found.busy) == (("failed",), ("reference", "scan"), ("slow",))
    assert total(rows[:3] + rows[5:], 1).ours == 9.0
    assert total(rows[:3] + rows[5:], 1).missing == ("failed",)
    said = to_json(rows, {1: Machine(1, 1e12, (), 0.0)}, {}, None)
    assert [row["errors"] for row in said["rows"]] == [{}] * 5 + [{OURS: "not tuned"}]


def test_a_ratio_is_the_median_of_quiet_rounds() -> None:
    sides = {
        "a": Timing(1.0, (1.0, 2.0, 4.0, 1.0), ""),
        "b": Timing(1.5, (2.0, 2.0, 40.0, 1.5), ""),
        "apart": Timing(3.0, (3.0,), ""),
    }
    assert Comparison(sides, quiet=(True, True, True, False)).ratio("a", "b") == 2.0
    assert Comparison(sides, quiet=(True, True, False, False)).ratio("a", "b") == 1.5
    assert Comparison(sides, quiet=(True,) * 4).ratio("a", "apart") == 3.0
    assert Comparison(sides).ratio("a", "c") is None


def test_durations() -> None:
    assert [seconds(text) for text in ("90", "90s", "30m", "1.5h")] == [90, 90, 1800, 5400]
    with pytest.raises(argparse.ArgumentTypeError, match="no duration"):
        seconds("soon")


def test_random_inputs_are_extreme_too() -> None:
    source, weights = workload("gemm", {"m": 64, "n": 64, "k": 64}).inputs(np.random.default_rng(0))
    assert (source.min(), source.max(), weights.min(), weights.max()) == (0, 255, -128, 127)
