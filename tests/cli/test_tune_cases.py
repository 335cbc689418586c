"""`heron-asp tune --cases`: one command over many cases, and what may be wrong with it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from heron_asp.cli import tune_cases
from heron_asp.cli.app import run
from heron_asp.errors import ExitCode
from heron_asp.session import CaseProgress, SessionProgress
from heron_asp.session.summary import State
from heron_asp.store import RunDirectory
from heron_asp.target import Target
from tests.conftest import make_task
from tests.search.devices import invented

CASES = """
[[cases]]
case = "one"
operator = "gemm"
shape = { m = 12, n = 32, k = 16 }
count = 3

[[cases]]
case = "tiny"
operator = "gemm"
shape = { m = 2, n = 16, k = 8 }

[[cases]]
case = "again"
operator = "gemm"
shape = { m = 12, n = 32, k = 16 }
"""
QUICK = ["--population", "12", "--generations", "1"]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    """Runs a command: exit code, standard output, standard error."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(code), captured.out, captured.err

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.toml"
    path.write_text(CASES)
    return path


@pytest.fixture(scope="module")
def tables(zen4: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for each case that records every program, to replay."""
    folder = tmp_path_factory.mktemp("tables")
    for name, shape in (("one", {"m": 12, "n": 32, "k": 16}), ("tiny", {"m": 2, "n": 16, "k": 8})):
        table = invented(make_task(zen4, **shape)).table
        (folder / name).mkdir()
        directory = RunDirectory(folder / name)
        lines = [
            json.dumps({"event": "finished", "trial": number, "candidate": key, **one.to_json()})
            for number, (key, one) in enumerate(table.items(), start=1)
        ]
        directory.rows_file.write_text("\n".join(lines) + "\n")
    return folder


def test_many_cases_are_tuned_by_one_command(call, file: Path, tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["tune", "--cases", str(file), "-t", "zen4", "--device", f"replay:{tables}", "--out", str(out), *QUICK]
    code, said, _ = call(*asked, "--trials", "30", "--json")
    assert code == ExitCode.OK
    found = json.loads(said)
    assert [(one["name"], one["weight"], one["cases"]) for one in found["cases"]] == [
        ("one", 4.0, ["one", "again"]),
        ("tiny", 1.0, ["tiny"]),
    ]
    assert {"seconds", "before", "gops", "share_of_peak", "trials", "state", "run"} <= set(found["cases"][0])
    assert found["trials"] == 30
    assert found["weighted_seconds"]["after"] <= found["weighted_seconds"]["before"]
    assert found == json.loads((out / "result.json").read_text())
    code, said, progress = call(*asked, "--trials", "50", "--resume")
    assert code == ExitCode.OK
    assert "one: also again" in said
    assert "50 trials" in said
    assert f"heron-asp export {out}/* -o lib" in said
    assert "round " in progress
    assert json.loads(call("report", str(out / "one"), "--json")[1])["operator"] == "gemm u8s8s32 m=12,n=32,k=16"


def test_options_win_over_the_file(call, file: Path, tables: Path, tmp_path: Path) -> None:
    code, said, _ = call(
        "tune", "--cases", str(file), "-t", "zen4", "--device", f"replay:{tables}", "--trials", "4", "--json",
        "--dtype", "bf16bf16f32", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == ExitCode.NO_SURVIVOR  # the tables are of other types
    assert {one["operator"].split()[1] for one in json.loads(said)["cases"]} == {"bf16bf16f32"}
    assert {one["state"] for one in json.loads(said)["cases"]} == {"failed"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--cases", "{file}"], 2, "--cases needs a budget"),
        (["--cases", "{file}", "--budget", "30"], 2, "--budget 30: no time"),
        (["--cases", "{file}", "--budget", "-5s"], 2, "--budget -5s: no time"),
        (["--cases", "{file}", "--budget", "0.1s"], 2, "--budget 0.1s: no time"),
        (["--cases", "{file}", "--budget", "5m", "--list", "case"], 2, "no [[case]]"),
        (["--cases", "{file}", "--budget", "5m", "--device", "gpu"], 2, "--device gpu: no such device"),
        (["--cases", "none.toml", "--budget", "5m"], 2, "none.toml: No such file"),
        (["gemm", "--cases", "{file}", "--budget", "5m"], 2, "an operator or -s together with --cases"),
        (["gemm", "-s", "m=1,n=1,k=1", "--budget", "5m"], 2, "--budget 5m: without --cases"),
        (["-s", "m=1,n=1,k=1"], 2, "no operator is given"),
    ],
)
def test_mistakes(call, file: Path, arguments: list[str], code: int, said: str) -> None:
    got, out, error = call("tune", *(one.format(file=file) for one in arguments), "-t", "zen4", "--json")
    assert (got, json.loads(out)["exit_code"]) == (code, code)
    assert said in error


def test_a_mistake_in_the_file_names_its_line(call, file: Path) -> None:
    file.write_text(CASES.replace("count", "counts"))
    code, _, error = call("tune", "--cases", str(file), "-t", "zen4", "--budget", "5m")
    assert code == ExitCode.USAGE
    assert f"error: {file}:6: cases[0]: unknown key 'counts'\nhint: did you mean 'count'?" in error


def test_the_target_is_this_machine_by_default(call, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_asp.host.llvm_cpu", lambda: "none-of-ours")
    code, _, error = call("tune", "--cases", str(file), "--budget", "5m")
    assert code == ExitCode.MISSING
    assert "no target names this machine, which LLVM calls none-of-ours" in error


def progress(trials: int) -> SessionProgress:
    long = "a case with a name that is longer than a column of the table can be"
    cases = [
        CaseProgress(
            f"{long}-{number}",
            [long],
            "gemm",
            10**9,
            1e9,
            12345.678,
            Path(),
            state,
            trials,
            1.23456e-3,
            1.2345e-4,
            1e13,
        )
        for number, state in enumerate(State)
    ]
    return SessionProgress(cases, 1, 5.0, 60.0, 100)


def test_the_table_is_80_columns_wide() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(tune_cases._table(progress(1234).cases, "caption"))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) == 80
    assert sum("123.4 us" in line or "123.5 us" in line for line in lines) == len(State)
    assert all(any(str(state) in line for line in lines) for state in State)


def test_live_progress_is_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with tune_cases._Reporter(quiet=False) as reporter:
        reporter.progress(progress(1))
        first = terminal.getvalue()
        reporter.progress(progress(2))  # too soon after the last picture
        assert terminal.getvalue() == first
    assert "infeasible" in first
    assert f"{len(State)} of 100 trials, 5 of 60 s" in first


def test_cases_are_tuned_and_exported(call, runnable: Target, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said, _ = call(
        "tune", "--cases", str(file), "-t", "zen4", "--trials", "8", "--out", str(out), "--json", *QUICK
    )
    assert code == ExitCode.OK, said
    assert {one["state"] for one in json.loads(said)["cases"]} == {"confirmed"}
    code, said, _ = call("export", *map(str, sorted(out.iterdir())), "-o", str(tmp_path / "lib"), "--json")
    assert code == ExitCode.OK
    assert len(json.loads(said)["kernels"]) == 2
