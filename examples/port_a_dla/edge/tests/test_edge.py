"""edge: its rules have no mistakes lint knows of, operators have as many programs as before, and those are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode
from heron_asp.lint import lint

HOME = Path(__file__).resolve().parent.parent
TARGET = str(HOME / "targets" / "edge.toml")

# Operator and options, and how many programs there are. A number that moves where no rule of yours was meant to move it
# is a mistake; where it was, write the new one. Another version of heron_asp may move it too.
CASES = [
    (["gemm", "-s", "m=32,n=64,k=64"], 21_770),
    (["conv2d", "-s", "n=1,h=14,w=14,ci=16,co=32,kh=3,kw=3,padding=1"], 485_224),
]
each_case = pytest.mark.parametrize(("operator", "programs"), CASES, ids=[said[0] for said, _ in CASES])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    """Runs a command of heron-asp: its exit code and its JSON object."""

    def invoke(command: str, operator: list[str], *options: str):
        code = run([command, *operator, "-t", TARGET, *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return invoke


def test_lint_finds_nothing() -> None:
    findings = lint([HOME / "rules" / "edge"]).findings
    assert not findings, "\n".join(map(str, findings))


@each_case
def test_an_instruction_computes_it(call, operator: list[str], programs: int) -> None:
    code, found = call("check", operator, "--tensorized")
    assert (code, found["feasible"]) == (ExitCode.OK, True), found.get("conflict", found)


@each_case
def test_there_are_as_many_programs(call, operator: list[str], programs: int) -> None:
    assert call("check", operator)[1].get("programs") == programs


@each_case
def test_samples_are_correct(call, operator: list[str], programs: int) -> None:
    code, found = call("sample", operator, "-n", "4", "--verify")
    if code == ExitCode.MISSING:
        pytest.skip(found["error"])
    assert code in (ExitCode.OK, ExitCode.NO_SURVIVOR), found
    wrong = [one for one in found["samples"] if one["status"] != "correct"]
    assert not wrong, json.dumps(wrong, indent=2)
    assert (code, found["valid"]) == (ExitCode.OK, 4)


def test_weights_have_one_buffer(call) -> None:
    code, found = call("explain", CASES[0][0], "--pin", "slots(wgt(b))=2")
    assert code == ExitCode.INFEASIBLE
    assert "c6:single_port(wgt(b))" in json.dumps(found)
