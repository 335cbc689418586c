"""Broken files, odd numbers, closed pipes: an error that says what is wrong, and never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heron_asp.cli import app, common, tune
from heron_asp.cli.app import run
from heron_asp.errors import ExitCode, HeronError
from heron_asp.library import export
from heron_asp.measure.result import Measurement, Status
from heron_asp.outcome import Progress
from heron_asp.runs import load_run
from heron_asp.store import RunDirectory, read_trials, write_whole
from heron_asp.target import Target
from heron_asp.tuning import TuneOptions, header
from tests.conftest import make_task

SHAPE = ["-s", "m=16,n=32,k=16"]
GEMM = ["gemm", *SHAPE, "-t", "zen4"]
HEADER, TRIALS, RESULT = "run.json", "trials.jsonl", "result.json"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    """Runs a command: exit code, standard output, standard error."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(code), captured.out, captured.err

    return invoke


@pytest.fixture(scope="session")
def recorded(zen4: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory as `tune` leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "good"
    task = make_task(zen4, m=16, n=32, k=16)
    (candidate,) = task.space.sample(1, np.random.default_rng(0))
    said = {"trial": 1, "candidate": candidate.key}
    directory = RunDirectory(folder)
    directory.open(header(task, TuneOptions(trials=1)), resume=False)
    directory.append({"event": "started", **said, "sketch": candidate.sketch, "values": candidate.to_json()})
    directory.append({"event": "finished", **said, **Measurement(Status.CORRECT, 1e-6, (1e-6,)).to_json()})
    best = {"seconds": 1e-6, "sketch": candidate.sketch, "values": candidate.to_json()}
    write_whole(directory.result_file, {"best": best})
    directory.close()
    return folder


@pytest.fixture
def broken(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    return Path(shutil.copytree(recorded, tmp_path / "bad"))


def changed(file: Path, **values: object) -> bytes:
    return json.dumps({**json.loads(file.read_bytes()), **values}).encode()


def resume(folder: Path) -> None:
    """What `tune --resume` does first."""
    said = json.loads((folder.parent / "header").read_text())
    directory = RunDirectory(folder)
    try:
        directory.open(said, resume=True)
        directory.append({})
        directory.trials()
    finally:
        directory.close()


@pytest.mark.parametrize(
    ("name", "content", "said", "told_by"),
    [
        (HEADER, b"{}", "run.json: (no|key 'key')", "report export resume"),
        (HEADER, b"[]", "run.json: not a JSON object", "report export resume"),
        (HEADER, b"\xff\x00", "run.json: not text in UTF-8", "report export resume"),
        (HEADER, b"[" * 100_000, "run.json: .*nested too deeply", "report export resume"),
        (HEADER, None, "run.json: Is a directory", "report export resume"),
        (HEADER, {"shape": {"m": "64"}}, "run.json: shape.m: |shape: recorded", "report export resume"),
        (HEADER, {"operator": "gem"}, "bad: unknown operator 'gem'|operator: recorded gem", "report export resume"),
        (HEADER, {"target_file": "/no/x.toml"}, "bad: made with /no/x.toml|target_file: rec", "export resume"),
        (TRIALS, b"{}\n", r"trials.jsonl:1: key 'event' is missing", "report resume"),
        (TRIALS, b"[]\n", r"trials.jsonl:1: not a JSON object", "report resume"),
        (TRIALS, b"\xff\n", r"trials.jsonl:1: not text in UTF-8", "report resume"),
        (TRIALS, b'{"event":"finished","trial":1,"candidate":"x"}\n', r"trials.jsonl:1: key 'status'", "report resume"),
        (TRIALS, None, "trials.jsonl: Is a directory", "report resume"),
        (RESULT, b"[1]", "result.json: not a JSON object", "report export"),
        (RESULT, b'{"best": {"seconds": "1"}}', "result.json: best.seconds: ", "report export"),
        (RESULT, b'{"best": {"seconds": 1, "sketch": "nix", "values": {}}}', "bad: there is no sketch 'nix'", "export"),
        ("lock", None, "lock: Is a directory", "resume"),
    ],
)
def test_a_broken_run_names_file_and_fault(
    call, broken: Path, name: str, content: bytes | dict[str, object] | None, said: str, told_by: str
) -> None:
    file = broken / name
    shutil.copy(broken / HEADER, broken.parent / "header")
    data = changed(file, **content) if isinstance(content, dict) else content
    file.unlink(missing_ok=True)
    file.mkdir() if data is None else file.write_bytes(data)
    acts: dict[str, Callable[[Path], object]] = {
        "report": lambda folder: _raised(call("report", str(folder), "--json")),
        "export": lambda folder: export([folder], folder.parent / "out"),
        "resume": resume,
    }
    for act in told_by.split():
        with pytest.raises(HeronError, match=said):
            acts[act](broken)
        assert not (broken.parent / "out").exists()


def _raised(answer: tuple[int, str, str]) -> None:
    code, out, _ = answer
    if code:
        raise HeronError(json.loads(out)["error"], code=ExitCode(code))


def test_half_a_line_at_the_end_is_tolerated_and_further_keys_too(call, broken: Path) -> None:
    (broken / HEADER).write_bytes(changed(broken / HEADER, new=1))
    with (broken / TRIALS).open("ab") as file:
        file.write(b'{"event":"sta')
    assert list(read_trials(broken)) == [1]
    assert load_run(broken).best()[2] == 1e-6
    assert call("report", str(broken))[0] == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", *GEMM, "--threads=-1"], "--threads"),
        (["check", *GEMM, "--threads", "257"], "256"),
        (["tune", *GEMM, "--threads", "9" * 30], "--threads"),
        (["check", "gemm", "-t", "zen4"], "lacks the shape keys m, n, k"),
        (["check", "gemm", *SHAPE], "Missing option"),
        (["check", *GEMM, "--rules", "none.lp"], "none.lp"),
        (["nope"], "No such command"),
        (["check", *GEMM, "--space-seconds", "inf"], "--space-seconds"),
        (["check", *GEMM, "--space-seconds", "nan"], "--space-seconds"),
        (["tune", *GEMM, "--build-timeout", "inf"], "--build-timeout"),
        (["tune", *GEMM, "--run-timeout", "nan"], "--run-timeout"),
        (["tune", *GEMM, "--keys", "nan"], "--keys"),
        (["check", *GEMM, "--space-memory", "9" * 17], "--space-memory"),
        (["sample", *GEMM, "-n", "100000000"], "--number"),
        (["check", "gemm", "-s", "m=٣,n=4,k=4", "-t", "zen4"], "plain digits"),
        (["check", "gemm", "-s", f"m={'9' * 5000},n=4,k=4", "-t", "zen4"], "plain digits"),
        (["check", "gemm", *SHAPE, "-t", "/"], "a directory"),
        (["check", *GEMM, "--pin", "tile(c,m,registr)=4"], "no sketch has such a variable"),
        (["sample", *GEMM, "--pin", "tile(c,m,registr)=4"], "no sketch has such a variable"),
        (["check", *GEMM, "--pin", f"{'f(' * 999}=4"], "not a term"),
        (["audit", *GEMM, "--rule", "c9"], "known: c1, c2, c3"),
        (["audit", *GEMM, "--rule", ""], "no such rule"),
    ],
)
def test_a_usage_error_is_one_json_object(call, arguments: list[str], said: str) -> None:
    code, out, error = call(*arguments, "--json")
    assert code == ExitCode.USAGE
    found = json.loads(out)
    assert found["exit_code"] == code
    assert said in found["error"] + found["hint"]
    assert found["error"].splitlines()[0] in error
    assert error.lower().count("error: ") == 1


def test_an_interruption_is_one_json_object(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(common, "_task", interrupt)
    code, out, _ = call("check", *GEMM, "--json")
    assert code == json.loads(out)["exit_code"] == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        ("explain --program", b"[" * 100_000, "nested too deeply"),
        ("explain --program", b"{}", "not a program"),
        ("explain --program", b'{"sketch": "nix", "values": {"a": 1}}', "there is no sketch 'nix'"),
        ("explain --program", b'{"a\\u0000": "\\ud800"}', "is not a term"),
        ("audit --diff", b"[" * 100_000, "not the output of audit --json"),
        ("audit --diff", b"[]", "not the output of audit --json"),
        ("audit --diff", b'{"programs": "x"}', "not the output of audit --json"),
        ("check --rules", b"\xff\x00a", "not text in UTF-8"),
    ],
)
def test_a_broken_file_is_named(call, tmp_path: Path, command: str, content: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(content)
    name, option = command.split()
    code, out, _ = call(name, *GEMM, option, str(tmp_path / "file"), "--json")
    assert code == ExitCode.USAGE
    assert said in json.loads(out)["error"]


def test_an_audit_of_something_else_is_no_comparison(call, tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    file.write_text(call("audit", *GEMM, "--json")[1])
    assert call("audit", *GEMM, "--diff", str(file))[0] == ExitCode.OK
    code, _, error = call("audit", *GEMM, "--threads", "2", "--diff", str(file))
    assert code == ExitCode.USAGE
    assert "is of threads 1, not of 2" in error


def test_lint_of_a_binary_file_is_a_finding(call, tmp_path: Path) -> None:
    (tmp_path / "binary.lp").write_bytes(b"\xff\xfe\x00")
    code, out, _ = call("lint", str(tmp_path / "binary.lp"), "--json")
    assert code == ExitCode.USAGE
    assert "not text in UTF-8" in json.loads(out)["findings"][0]["message"]


def test_pins(call) -> None:
    only_sliced = ["--pin", "tile(c,k,slice)=2"]  # a variable that one sketch has
    assert call("sample", *GEMM, *only_sliced)[0] == call("check", *GEMM, *only_sliced, "--json")[0] == ExitCode.OK
    for command in ("check", "sample"):
        code, out, _ = call(command, *GEMM, "--pin", "tile(c,m,register)=3", "--json")
        assert code == ExitCode.INFEASIBLE
        assert "tile(c, m, register) = 3 is none of its values: 1, 2, 4, 8, 16" in out


def test_what_export_refuses(call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_directory, out = str(recorded), str(tmp_path / "out")
    assert "given twice" in call("export", run_directory, f"{run_directory}/../good", "-o", out)[2]
    assert "a run directory" in call("export", run_directory, "-o", run_directory)[2]
    monkeypatch.setenv("CC", "/bin/true")
    code, _, error = call("export", run_directory, "-o", out)
    assert code == ExitCode.MISSING
    assert "/bin/true cannot make a shared library" in error
    assert not (tmp_path / "out").exists()


def test_a_folder_without_targets_is_named(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERON_ASP_TARGETS", "/nonexist")
    code, _, error = call("check", *GEMM)
    assert code == ExitCode.USAGE
    assert "/nonexist" in error


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        ("| head -1", 0, ""),
        (">&-", 2, "error: standard output is closed\n"),
        ("> /dev/full", 2, "error: No space left on device\n"),
        ("--json > /dev/full", 2, "error: No space left on device\n"),
        ("2>&-", 0, ""),
    ],
)
def test_standard_output_that_is_gone(redirection: str, code: int, said: str) -> None:
    script = f"set -o pipefail; {sys.executable} -m heron_asp lint --no-fire {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_progress_that_nobody_reads_does_not_end_a_run(zen4: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as gone, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", gone)
        with tune._Reporter(make_task(zen4, m=16, n=32, k=16), 2, quiet=False) as reporter:
            for trial in (1, 2):
                reporter.progress(Progress(trial, 2, None, {}, 1.0, None, 1, 1.0))
        app._tell("x", "", ExitCode.USAGE, [])
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_a_limit_of_the_shell_bounds_ours() -> None:
    script = f"ulimit -v 4000000; {sys.executable} -c 'from heron_asp import limits; limits._limit_memory(2**20)'"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0
