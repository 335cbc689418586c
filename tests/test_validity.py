"""Uniform samples of every sketch build, run and are right; the benchmark that tries many more says what is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import validity
from instances import MOST_OPERATIONS, random_operator, random_operators
from validity import NO_PROGRAM, Checker, Row, main, table

from heron_asp.errors import HeronError
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.operators import KINDS, Operator, operator
from heron_asp.target import Target

SAMPLES = 2
LIMITS = Limits(repeats=1, repeat_ms=1)
CASES = [  # kind, types, layout, shape, epilogue, threads
    ("gemm", "u8s8s32", None, {"m": 17, "n": 33, "k": 9}, "bias,relu,requantize=u8:per-channel", 2),
    ("gemv", "bf16bf16f32", None, {"m": 20, "k": 7}, "", 1),
    ("batch_matmul", "u8s8s32", None, {"batch": 3, "m": 5, "n": 20, "k": 10}, "", 2),
    ("conv1d", "u8s8s32", "channels-first",
     {"n": 2, "w": 11, "ci": 9, "co": 6, "kw": 3, "groups": 3, "stride": 2, "padding_left": 2}, "", 1),
    ("conv2d", "u8s8s32", None, {"n": 2, "h": 7, "w": 5, "ci": 7, "co": 20, "kh": 3, "kw": 2, "padding": 2}, "bias", 2),
    ("conv2d", "bf16bf16f32", "channels-first",
     {"n": 1, "h": 2, "w": 6, "ci": 5, "co": 17, "kh": 4, "kw": 3, "padding": 1, "stride_w": 3}, "", 1),
    ("conv2d_dilated", "u8s8s32", None,
     {"n": 1, "h": 8, "w": 9, "ci": 4, "co": 5, "kh": 3, "kw": 3, "padding": 1, "dilation": 2}, "", 2),
    ("conv3d", "u8s8s32", None,
     {"n": 1, "d": 3, "h": 4, "w": 5, "ci": 6, "co": 18, "kd": 2, "kh": 3, "kw": 1, "stride": 2, "padding": 1}, "", 1),
    ("conv2d_transposed", "u8s8s32", None,
     {"n": 1, "h": 4, "w": 3, "ci": 6, "co": 9, "kh": 3, "kw": 4, "stride": 2, "padding": 1, "output_padding_h": 1}, "",
     2),
    ("depthwise_conv2d", "u8s8s32", None, {"n": 1, "h": 6, "w": 7, "c": 20, "kh": 3, "kw": 3, "stride": 2}, "", 1),
    ("scan", "u8s8s32", None, {"m": 9, "n": 20, "k": 13}, "", 2),
    ("variance", "bf16bf16f32", None, {"m": 7, "k": 21}, "", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "dtype", "layout", "shape", "epilogue", "threads"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_samples_are_valid(runnable: Target, kind, dtype, layout, shape, epilogue, threads) -> None:
    made = operator(kind, shape, dtype, layout, epilogue)
    row = Checker(runnable, SAMPLES, 0, LIMITS).check(kind, made, threads)
    assert row.failures == []
    assert row.statuses[Status.CORRECT] % SAMPLES == 0
    assert row.statuses[Status.CORRECT] > 0
    assert row.programs >= SAMPLES


def test_random_operators_are_small_and_of_every_kind() -> None:
    made = list(random_operators(3 * len(KINDS), 5))
    assert {one.name for one in made} == set(KINDS)
    assert all(one.operations <= MOST_OPERATIONS for one in made)
    assert [one.label for one in made] == [one.label for one in random_operators(3 * len(KINDS), 5)]
    assert len({one.label for one in made}) == len(made)
    assert {one.layout for one in made} == {layout for kind in KINDS.values() for layout in kind.layouts}
    assert any(one.epilogue for one in made)


def test_shapes_that_never_make_sense_end_in_an_error() -> None:
    from random import Random

    with pytest.raises(HeronError, match="gemm: none of 1000 random shapes makes sense"):
        random_operator("gemm", Random(0), most=1)


def _main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["validity.py", *arguments])
    monkeypatch.setattr(validity, "require_host", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_all_of_the_suite_is_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tried: list[Operator] = []

    def correct(_: Checker, name: str, made: Operator, threads: int) -> Row:
        tried.append(made)
        row = Row(name, made.name, made.label, threads, programs=1)
        row.add("p", Status.CORRECT, "")
        return row

    monkeypatch.setattr(Checker, "check", correct)
    assert _main(monkeypatch, "--suite") == 0
    whole = [made.label for made in tried]
    assert len(whole) == 49
    assert "49 samples are correct, 0 findings" in capsys.readouterr().out
    tried.clear()
    for part in ("1/3", "2/3", "3/3"):
        assert _main(monkeypatch, "--suite", "--part", part) == 0
    assert [made.label for made in tried] == whole
    tried.clear()
    assert _main(monkeypatch, "--suite", "--only", "C2D[12]") == 0
    assert [made.name for made in tried] == ["conv2d", "conv2d"]
    assert _main(monkeypatch, "--suite", "--only", "nothing") == 1  # trying nothing shows nothing


def test_what_is_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], zen4: Target, tmp_path: Path
) -> None:
    class Wrong:
        def __init__(self, *_: object) -> None:
            pass

        def measure(self, _: object) -> Measurement:
            return Measurement(Status.CORRECTNESS, error="1 of 2 elements are wrong")

    monkeypatch.setattr(validity, "LocalDevice", Wrong)
    file = tmp_path / "rows.json"
    made = ["--random", "1", "--samples", "2", "--threads", "1", "--json", str(file)]
    assert _main(monkeypatch, "-t", str(zen4.path), *made) == 1
    said = capsys.readouterr().out
    assert "correctness: 1 of 2 elements are wrong" in said
    (row,) = json.loads(file.read_text())
    assert row["programs"] > 0
    assert row["statuses"] == {"correctness": len(row["failures"])}
    assert set(row["statuses"]) == {"correctness"}


def test_an_operator_without_a_program_is_a_finding(zen4: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty:
        space = ()

        def __init__(self, *_: object, **__: object) -> None:
            pass

    monkeypatch.setattr(validity, "Task", Empty)
    monkeypatch.setattr(validity, "LocalDevice", lambda *_: None)
    made = operator("gemm", {"m": 1, "n": 1, "k": 1})
    checker = Checker(zen4, SAMPLES, 0, LIMITS)
    assert checker.check("none", made, 1).failures == [("", NO_PROGRAM, "every sketch is empty")]
    monkeypatch.setattr(validity, "Task", lambda *_, **__: 1 / 0)
    row = checker.check("broken", made, 1)
    assert row.failures == [("", "error", "ZeroDivisionError: division by zero")]
    assert table([row])[-1].split() == ["all", "1", "1"]
