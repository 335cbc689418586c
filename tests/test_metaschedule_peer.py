"""The parts of the comparison with MetaSchedule that decide what it says: workloads, choices, resuming, failures."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from heron_asp.errors import HeronError
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.target import Target

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from peers.contest import REPETITIONS, in_turn, speedup  # noqa: E402
from peers.match import Case, Match, Options, Result, fastest, fitting, run_peer  # noqa: E402
from peers.metaschedule import (  # noqa: E402
    KEPT,
    Harness,
    Request,
    Row,
    read_rows,
    rows_file,
)
from peers.packed import Packed, packed  # noqa: E402

SHAPES = [
    ("gemm", {"m": 3, "n": 32, "k": 8}),
    ("conv1d", {"n": 2, "w": 9, "ci": 4, "co": 16, "kw": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("conv2d", {"n": 1, "h": 6, "w": 5, "ci": 8, "co": 32, "kh": 3, "kw": 2, "stride": 1, "padding": 2, "dilation": 1}),
    ("conv2d", {"n": 2, "h": 7, "w": 7, "ci": 4, "co": 16, "kh": 1, "kw": 1, "stride": 3, "padding": 0, "dilation": 1}),
]
OPTIONS = Options("zen4", 4, 3, 1, 4, 4, "wall", 60.0)


def made(number: int, elapsed: float, seconds: float | None) -> Row:
    status = Status.CORRECT if seconds else Status.COMPILE
    return Row(number, elapsed, Measurement(status, seconds, error="" if seconds else "no"))


@pytest.fixture(scope="module")
def command() -> ModuleType:
    """The script itself, by another name than the peer's."""
    specification = importlib.util.spec_from_file_location("compare_metaschedule", BENCHMARKS / "metaschedule.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


# -- workloads ---------------------------------------------------------------------------------------------------------


def by_definition(workload: Packed, activation: Any, weights: Any) -> Any:
    """The sum over taps and channels, an element at a time; the weights are read from where the kernel reads them."""
    result = np.zeros(workload.result_shape, np.int64)
    for image, *across, co in product(*map(range, workload.result_shape)):
        for *tap, ci in product(*map(range, (*workload.taps, workload.ci))):
            read = [
                o * workload.stride + t * workload.dilation - workload.padding for o, t in zip(across, tap, strict=True)
            ]
            if all(0 <= at < extent for at, extent in zip(read, workload.extents, strict=True)):
                weight = weights[(co // 16, *tap, ci // 4, co % 16, ci % 4)]
                result[(image, *across, co)] += int(activation[(image, *read, ci)]) * int(weight)
    return result


@pytest.mark.parametrize(("operator", "shape"), SHAPES)
def test_the_reference_and_the_packing_agree_with_the_definition(operator: str, shape: dict[str, int]) -> None:
    workload = packed(operator, shape)
    for activation, weights, expected in workload.cases():
        assert activation.shape == workload.activation_shape
        assert weights.shape == workload.weight_shape
        assert (by_definition(workload, activation, weights) == expected).all()


@pytest.mark.parametrize(("operator", "shape"), SHAPES)
def test_a_program_is_checked_and_timed(runnable: Target, operator: str, shape: dict[str, int]) -> None:
    workload = packed(operator, shape)
    harness = Harness(workload, runnable, 1, Limits(repeats=1, repeat_ms=1))
    measured = harness.finish(harness.start(workload.prim_func()), None)
    assert measured.status is Status.CORRECT, measured.error
    assert measured.seconds


def test_a_wrong_program_and_one_that_does_not_build_are_rows(runnable: Target) -> None:
    workload = packed("gemm", {"m": 2, "n": 16, "k": 4})
    harness = Harness(workload, runnable, 1, Limits(repeats=1, repeat_ms=1))
    harness.cases = [case._replace(expected=case.expected + 1) for case in harness.cases]
    assert harness.finish(harness.start(workload.prim_func()), None).status is Status.CORRECTNESS
    broken = harness.finish(harness.start("not a program"), None)
    assert broken.status is Status.COMPILE
    assert broken.error


def test_a_compiler_that_ends_the_process_is_a_row(runnable: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(packed("gemm", {"m": 2, "n": 16, "k": 4}), runnable, 1, Limits(repeats=1, repeat_ms=1))
    monkeypatch.setattr("peers.metaschedule.PackedKernel", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    measured = harness.finish(harness.start(None), None)
    assert (measured.status, measured.seconds) == (Status.COMPILE, None)
    assert "signal 9" in measured.error


def test_what_does_not_pack_is_refused_with_a_hint() -> None:
    with pytest.raises(HeronError, match="20 result channels and 8 input channels do not pack by 16 and 4"):
        packed("gemm", {"m": 2, "n": 20, "k": 8})
    with pytest.raises(HeronError, match="the shape lacks 'kw'"):
        packed("conv1d", {"n": 1, "w": 4, "ci": 4, "co": 16})
    with pytest.raises(HeronError, match="scan: no workload with packed weights"):
        packed("scan", {"m": 2})


# -- what is compared --------------------------------------------------------------------------------------------------


def test_the_programs_of_every_prefix_are_among_those_kept() -> None:
    """A program is written when it is among the fastest so far: enough for any number of first trials."""
    seconds = np.random.default_rng(0).permutation(40) + 1.0
    rows = [made(number, float(number), float(one)) for number, one in enumerate(seconds, start=1)]
    kept = {row.number for row in rows if row in fastest(rows[: row.number])}
    for first in range(1, len(rows) + 1):
        best = fastest(rows[:first])
        assert {row.number for row in best} <= kept
        assert len(best) == min(KEPT, first)
        assert best[0].measurement.seconds == min(seconds[:first])


def test_failed_trials_are_never_the_fastest() -> None:
    assert [row.number for row in fastest([made(1, 1, None), made(2, 2, 3.0), made(3, 3, 1.0)])] == [3, 2]


def test_trials_that_go_into_a_time() -> None:
    assert fitting(64, 32.0, 96.0) == 192
    assert fitting(64, 100.0, 25.0) == 16
    assert fitting(64, 1000.0, 0.1) == 1


def test_the_ratio_is_above_one_where_ours_takes_less_time() -> None:
    assert speedup([1.0, 2.0, 9.0], [3.0, 2.0, 5.0]) == 2.0
    assert speedup([], [1.0]) is None
    assert speedup([1.0], None) is None


def test_programs_are_timed_in_turn_and_backwards() -> None:
    order: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def seconds(self) -> float:
            order.append(self.name)
            return float(len(order))

    times = in_turn({name: Fake(name) for name in "ab"}, 3)
    assert "".join(order) == "".join(name * REPETITIONS for name in "abbaab")
    assert times == {"a": [1.0, 13.0, 17.0], "b": [5.0, 9.0, 21.0]}


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_read_back_without_a_torn_one(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []
    rows = [made(1, 0.5, 2.0), made(2, 1.5, None)]
    lines = [json.dumps(row.to_json()) + "\n" for row in rows]
    rows_file(tmp_path).write_text("".join(lines) + lines[0][:7])
    assert read_rows(tmp_path) == rows


def test_only_whole_rows_are_kept(command: ModuleType, tmp_path: Path) -> None:
    folder = command.opened(tmp_path, OPTIONS)
    whole, broken = Result("a", 1, "stock", ratios={"trials": 1.5}), Result("b", 1, "stock", error="theirs: signal 6")
    for result in (whole, broken):
        (folder / f"{result.case}.json").write_text(json.dumps(asdict(result)))
    assert command.recorded(folder / "a.json") == whole
    assert command.recorded(folder / "b.json") is None
    assert command.recorded(folder / "c.json") is None
    assert command.opened(tmp_path, OPTIONS) == folder
    with pytest.raises(HeronError, match="trials 4, asked 5"):
        command.opened(tmp_path, replace(OPTIONS, trials=5))


def test_the_better_rules_are_those_that_ours_beats_by_less(command: ModuleType) -> None:
    results = [
        Result("a", 1, "stock", ratios={"trials": 2.0}),
        Result("a", 1, "mended", ratios={"trials": 1.5}),
        Result("b", 1, "stock", ratios={"trials": 0.5}),
        Result("b", 1, "mended", error="theirs: signal 6"),
    ]
    said = command.by_rules(results)
    assert said["stock, equal trials"] == [2.0, 0.5]
    assert said["the better of stock and mended, equal trials"] == [1.5]
    command.print_results(results)


def test_the_cases_are_data(command: ModuleType) -> None:
    cases = command.load_cases(BENCHMARKS / "metaschedule.toml", [])
    assert len({case.name for case in cases}) == len(cases) >= 10
    for case in cases:
        assert packed(case.operator, case.shape).operations > 0
    with pytest.raises(HeronError, match="--only G9"):
        command.load_cases(BENCHMARKS / "metaschedule.toml", ["G9"])


def test_what_ends_the_other_side_is_said(tmp_path: Path) -> None:
    request = Request("gemm", {"m": 2, "n": 20, "k": 4}, "zen4", 1, 1, 0.0, 1, "stock", 1, 1, "wall", str(tmp_path))
    assert run_peer(request, 0.05) == "theirs: not done after 0.05 s"
    assert "exit code 1: gemm: 20 result channels and 4 input channels do not pack" in run_peer(request, 300)
    assert read_rows(tmp_path) == []


def test_a_run_that_ended_well_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = ["theirs: signal 6", "", "", "never asked for"]
    asked: list[float] = []

    def run(request: Request, timeout: float) -> str:
        asked.append(request.seconds)
        rows_file(Path(request.out)).write_text(json.dumps(made(1, 1.0, 2.0).to_json()) + "\n")
        return errors[len(asked) - 1]

    monkeypatch.setattr("peers.match.run_peer", run)
    match = Match(Case("a", "gemm", {"m": 2, "n": 16, "k": 4}), 1, OPTIONS, tmp_path)
    ends = [match.searched("stock", seconds)[2] for seconds in (5.0, 5.0, 5.0, 6.0, 6.0)]
    assert ends == ["theirs: signal 6", "", "", "", ""]
    assert asked == [5.0, 5.0, 6.0]
    assert len(match.searched("stock", 6.0)[1]) == 1


def test_a_case_that_packs_for_nobody_is_a_row_with_its_error(tmp_path: Path) -> None:
    case = Case("odd", "gemm", {"m": 2, "n": 20, "k": 4})
    result = Match(case, 1, OPTIONS, tmp_path).result("stock")
    assert "do not pack by 16 and 4" in result.error
    assert not result.ratios
