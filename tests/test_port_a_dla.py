"""The two families of examples/port_a_dla: no mistakes, as many programs as it says, and those are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode
from heron_asp.host import missing_flags
from heron_asp.lint import lint
from heron_asp.measure.peak import ACCUMULATORS, peak_program
from heron_asp.target import Target, load_target

HOME = Path(__file__).parent.parent / "examples" / "port_a_dla"
EDGE, MADD = (HOME / name / "targets" / f"{name}.toml" for name in ("edge", "madd"))
GEMM = ["gemm", "-s", "m=32,n=64,k=64"]
CONV = ["conv2d", "-s", "n=1,h=6,w=6,ci=8,co=8,kh=3,kw=3"]


def call(capsys: pytest.CaptureFixture[str], command: str, operator: list[str], *options: str) -> tuple[int, Any]:
    """A command's exit code and JSON object."""
    code = run([command, *operator, *options, "--json"])
    return code, json.loads(capsys.readouterr().out)


def require(target: Target) -> None:
    if missing := missing_flags(target):
        pytest.skip(f"the CPU lacks {', '.join(missing)}")


@pytest.mark.parametrize("name", ["edge", "madd"])
def test_lint_finds_nothing(name: str) -> None:
    findings = lint([HOME / name / "rules" / name]).findings
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize(
    ("target", "operator", "programs"), [(EDGE, GEMM, 21_770), (EDGE, CONV, 27_850), (MADD, GEMM, 7_326)]
)
def test_programs_are_counted_and_correct(
    capsys: pytest.CaptureFixture[str], target: Path, operator: list[str], programs: int
) -> None:
    code, found = call(capsys, "check", operator, "-t", str(target), "--tensorized")
    assert (code, found["programs"]) == (ExitCode.OK, programs)
    require(load_target(target))
    code, found = call(capsys, "sample", operator, "-t", str(target), "-n", "2", "--verify")
    assert code == ExitCode.OK, found
    assert [one["status"] for one in found["samples"]] == ["correct", "correct"]


def test_the_rule_of_weights_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = call(capsys, "explain", GEMM, "-t", str(EDGE), "--pin", "slots(wgt(b))=2")
    assert code == ExitCode.INFEASIBLE
    assert "c6:single_port(wgt(b))" in json.dumps(found)


def test_the_peak_multiplies_each_time(zen4: Target) -> None:
    """One `vpmaddwd` has half the products of a `vpdpbusd`, and needs an addition beside."""
    madd = load_target(MADD)
    for target in (madd, zen4):
        require(target)
    peaks = [
        max(peak_program(target.intrinsics[name], target, 1, sums).measure(20) for sums in ACCUMULATORS)
        for target, name in ((madd, "vpmaddwd"), (zen4, "vpdpbusd"))
    ]
    assert peaks[0] < 0.75 * peaks[1]
