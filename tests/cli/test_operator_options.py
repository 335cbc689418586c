"""The options that say what to compute: operator, shape, types, layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.cli.tune import run_name
from heron_asp.errors import ExitCode
from heron_asp.operators import KINDS, operator
from heron_asp.runs import load_run
from heron_asp.target import Target
from heron_asp.task import Task
from heron_asp.tuning import TuneOptions, header

CONV = {"n": 1, "h": 8, "w": 8, "ci": 16, "co": 16, "kh": 3, "kw": 3}


def test_help_names_every_operator(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    run(["check", "--help"])
    said = capsys.readouterr().out
    assert [name for name in KINDS if name not in said] == []


def test_a_layout_is_part_of_the_task(zen4: Target, tmp_path: Path) -> None:
    first, last = (Task(operator("conv2d", CONV, layout=name), zen4) for name in ("channels-first", None))
    assert first.operator.label == "conv2d u8s8s32 channels-first n=1,h=8,w=8,ci=16,co=16,kh=3,kw=3"
    assert last.operator.label == "conv2d u8s8s32 n=1,h=8,w=8,ci=16,co=16,kh=3,kw=3"
    assert first.key != last.key
    assert run_name(first, 0) == "conv2d-u8s8s32-1x8x8x16x16x3x3-channels-first-zen4-t1-s0"
    (tmp_path / "run.json").write_text(json.dumps(header(first, TuneOptions(1))))
    assert load_run(tmp_path).operator == first.operator


def test_optional_keys_tell_runs_apart(zen4: Target) -> None:
    padded = Task(operator("conv2d", CONV | {"padding": 1, "stride_h": 2}), zen4)
    assert run_name(padded, 3) == "conv2d-u8s8s32-1x8x8x16x16x3x3-padding1-stride_h2-zen4-t1-s3"


def test_runs_of_before_layouts_are_read(zen4: Target, tmp_path: Path) -> None:
    task = Task(operator("gemm", {"m": 8, "n": 16, "k": 8}), zen4)
    said = header(task, TuneOptions(1))
    del said["layout"]
    (tmp_path / "run.json").write_text(json.dumps(said))
    assert load_run(tmp_path).operator == task.operator


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gemm", "-s", "m=8,n=16,k=8", "--layout", "channels-last"], "gemm has no layout 'channels-last'"),
        (["gemm", "-s", "m=0,n=16,k=8"], "gemm: m=0 is outside 1..16777216"),
        (["conv2d", "-s", "n=1,h=3,w=3,ci=4,co=4,kh=5,kw=5"], "kh=5 spans 5 along h, more than the 3"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *arguments, "-t", "zen4"]) == ExitCode.USAGE
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_epilogue_is_part_of_the_task(zen4: Target, tmp_path: Path) -> None:
    task = Task(operator("gemm", {"m": 8, "n": 16, "k": 8}, epilogue="bias,clip=-1:6,requantize=u8:per-channel"), zen4)
    assert task.key != Task(operator("gemm", task.operator.shape), zen4).key
    assert run_name(task, 0) == "gemm-u8s8s32-8x16x8-bias-clip--1-6-requantize-u8-per-channel-zen4-t1-s0"
    (tmp_path / "run.json").write_text(json.dumps(header(task, TuneOptions(1))))
    assert load_run(tmp_path).operator == task.operator
