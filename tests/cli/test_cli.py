"""The command line: JSON that others rely on, exit codes, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode
from heron_asp.resources import targets_folder
from heron_asp.target import Target

GEMM = ["gemm", "-s", "m=16,n=32,k=16", "-t", "zen4"]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    """Runs a command: exit code, standard output, standard error."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return invoke


def test_check(call) -> None:
    code, out, _ = call("check", *GEMM, "--json")
    found = json.loads(out)
    assert code == ExitCode.OK
    assert {
        "feasible", "programs", "sketches", "variables", "constraints", "by_rule", "conflict", "remedies", "seconds",
    } <= set(found)  # fmt: skip
    assert found["feasible"]
    assert found["programs"] == sum(one["programs"] for one in found["sketches"] if one["searched"])
    assert [one["name"] for one in found["sketches"]] == ["vpdpbusd", "vpdpbusd sliced", "plain vector code"]
    assert sum(found["by_rule"].values()) == found["constraints"]
    assert "programs" in call("check", *GEMM)[1]


def test_check_names_plain_code_plainly(call, tmp_path: Path) -> None:
    code, out, _ = call("check", "gemm", "-s", "m=16,n=32,k=16", "-t", "zen4", "--dtype", "f16f16f32", "--json")
    dtype = json.loads(out)
    assert code == ExitCode.OK
    assert [one["name"] for one in dtype["sketches"]] == ["plain vector code"]
    assert "vpdpbusd: tensor a is f16 where the instruction takes u8" in dtype["conflict"]
    file = tmp_path / "bare.toml"
    file.write_text((targets_folder() / "zen4.toml").read_text().replace('"avx512_vnni", ', ""))
    code, out, _ = call("check", "gemm", "-s", "m=16,n=32,k=16", "-t", str(file), "--json")
    flag = json.loads(out)
    assert "vpdpbusd: the target lacks avx512_vnni" in flag["conflict"]
    assert flag["conflict"] != dtype["conflict"]
    for arguments in (("zen4", "f16f16f32"), (str(file), "u8s8s32")):
        target, dtype_name = arguments
        code, out, _ = call(
            "check", "gemm", "-s", "m=16,n=32,k=16", "-t", target, "--dtype", dtype_name, "--tensorized", "--json"
        )
        assert code == ExitCode.INFEASIBLE
        assert json.loads(out)["conflict"]
        assert json.loads(out)["remedies"]


def test_check_says_which_offset_cannot_be_made_up_for(call) -> None:
    shape = "batch=2,m=16,n=32,k=16"
    code, out, _ = call(
        "check", "batch_matmul", "-s", shape, "-t", "zen4", "--dtype", "s8s8s32", "--tensorized", "--json"
    )
    found = json.loads(out)
    assert code == ExitCode.INFEASIBLE
    said = "vpdpbusd: tensor a would be read with an offset, for which b has to be known ahead and fit itself"
    assert said in found["conflict"]
    assert found["remedies"] == ["the instructions of the target take bf16bf16f32, u8s8s32"]


def test_an_impossible_pin_is_infeasible_and_explained(call) -> None:
    code, out, _ = call("check", *GEMM, "--pin", "tile(c,m,register)=3", "--json")
    assert code == ExitCode.INFEASIBLE
    assert "tile(c, m, register) may be 2, 4, 8, 16" in json.loads(out)["remedies"][0] or "may be" in out
    code, out, _ = call("explain", *GEMM, "--pin", "accumulators(c)=32", "--json")
    assert code == ExitCode.INFEASIBLE
    sketch = json.loads(out)["sketches"][0]
    assert any("accumulators(c) <= 30" in sentence for sentence in sketch["conflict"])
    assert any("--relax registers" in remedy for remedy in sketch["remedies"])
    code, out, _ = call("check", *GEMM, "--pin", "accumulators(c)=32", "--relax", "registers", "--json")
    assert code == ExitCode.OK


def test_a_machine_too_small_is_infeasible_with_the_smallest_reason(call, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(
        (targets_folder() / "zen4.toml").read_text().replace("vector_registers = 32", "vector_registers = 4")
    )
    code, out, _ = call("check", "gemm", "-s", "m=16,n=32,k=16", "-t", str(file), "--json")
    found = json.loads(out)
    assert code == ExitCode.INFEASIBLE
    rules = {sentence.split(" ")[0] for sentence in found["conflict"]}
    assert rules == {"c6:latency(c)", "c6:registers(c)"}


def test_audit(call) -> None:
    found = json.loads(call("audit", *GEMM, "--json")[1])
    assert {"name", "values", "origin"} <= set(found["variables"][0])
    assert {"id", "rule", "kind", "force", "step", "variables", "text"} <= set(found["constraints"][0])
    only = json.loads(call("audit", *GEMM, "--rule", "c5", "--json")[1])
    assert {one["rule"] for one in only["constraints"]} == {"c5"}
    assert "C5" in call("audit", *GEMM)[1]


def test_sample(call) -> None:
    found = json.loads(call("sample", *GEMM, "-n", "3", "--json")[1])
    assert found["total"] == 3
    assert found["samples"][0]["status"] is None
    assert "tile(c, m, register)" in found["samples"][0]["values"]
    text = call("sample", *GEMM, "--show", "schedule")[1]
    assert "sch.tensorize(" in text
    compile(text, "schedule", "exec")
    assert "T.prim_func" in call("sample", *GEMM, "--show", "tir")[1]


def test_sample_verifies(call, runnable: Target) -> None:
    code, out, _ = call("sample", *GEMM, "-n", "2", "--verify", "--json")
    found = json.loads(out)
    assert (code, found["valid"], found["total"]) == (0, 2, 2)
    assert {one["status"] for one in found["samples"]} == {"correct"}


def test_the_schedule_text_runs_as_it_is(call, tmp_path: Path) -> None:
    file = tmp_path / "schedule.py"
    file.write_text(call("sample", *GEMM, "--show", "schedule")[1])
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "T.prim_func" in done.stdout


def test_tune_report_and_replay(call, runnable: Target, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = ["gemm", "-s", "m=2,n=16,k=8", "-t", "zen4", "--threads", "1"]
    code, text, _ = call("tune", *small, "--trials", "500", "--out", str(out), "--json")
    found = json.loads(text)
    assert code == ExitCode.OK
    assert {"seconds", "gops", "values", "status"} <= set(found["best"])
    assert {"best", "trials", "peak_gops", "wall_seconds", "run"} <= set(found)
    assert found["best"]["status"] == "correct"
    assert found["exhausted"]
    assert found["trials"]["correct"] == sum(found["trials"].values())
    code, text, _ = call("tune", *small, "--trials", "500", "--out", str(out), "--resume", "--json")
    assert (code, json.loads(text)["trials"]) == (0, found["trials"])
    report = json.loads(call("report", str(out), "--json")[1])
    assert report["state"] == "finished"
    assert report["trials"]["correct"] == found["trials"]["correct"]
    assert call("report", str(out))[0] == ExitCode.OK


def test_tune_on_a_machine_without_the_instructions(call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("heron_asp.host.cpu_flags", lambda: frozenset({"avx2"}))
    code, _, error = call("tune", *GEMM, "--out", str(tmp_path / "run"))
    assert code == ExitCode.MISSING
    assert "its CPU lacks avx512_vnni" in error or "avx512_vnni" in error
    assert "check, explain, audit and sample" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["check", "gem", "-s", "m=1,n=1,k=1", "-t", "zen4"], 2, "did you mean 'gemm' or 'gemv'?"),
        (["check", "gemm", "-s", "m=1,n=1", "-t", "zen4"], 2, "lacks the shape key k"),
        (["check", "gemm", "-s", "m=1,n=1,k=x", "-t", "zen4"], 2, "k=x"),
        (["check", "gemm", "-s", "m=1,n=1,k=1", "-t", "zen"], 2, "did you mean 'zen4'?"),
        (["check", "gemm", "-s", "m=1,n=1,k=1", "-t", "/no/such.toml"], 2, "/no/such.toml"),
        (["check", "gemm", "-s", "m=1,n=1,k=1", "-t", "zen4", "--dtype", "u8s8"], 2, "not three element types"),
        (["check", "gemm", "-s", "m=1,n=1,k=1", "-t", "zen4", "--pin", "x"], 2, "not variable=value"),
        (["check", "gemm", "-s", "m=1,n=1,k=1", "-t", "zen4", "--relax", "regsters"], 2, "did you mean 'registers'?"),
        (["check", *GEMM, "--no-such-option"], 2, "No such option"),
        (["report", "/no/such/run"], 5, "no run directory"),
        (["report", __file__], 5, "run.json does not exist"),
        (["tune", *GEMM, "--device", "gpu"], 2, "no such device"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_mistakes(call, arguments: list[str], code: int, said: str) -> None:
    got, _, error = call(*arguments)
    assert got == code
    assert said in error
    assert "Traceback" not in error


def test_errors_are_json_too(call) -> None:
    code, out, _ = call("check", "gem", "-s", "m=1", "-t", "zen4", "--json")
    assert json.loads(out) == {
        "error": "unknown operator 'gem'",
        "hint": "did you mean 'gemm' or 'gemv'?; one of your own: FILE.py:NAME",
        "exit_code": code,
    }


def test_a_rule_file_of_ones_own(call, tmp_path: Path) -> None:
    rule = tmp_path / "mine.lp"
    rule.write_text(
        "% No more than eight accumulators.\n"
        "constraint(c6, mine, at_most(8)).  part(c6, mine, 1, accumulators(Block)) :- block(Block).\n"
        "because(c6, mine, unroll(loop(Block, Axis, register))) :- tile(Block, Axis, register).\n"
    )
    before = json.loads(call("check", *GEMM, "--json")[1])["programs"]
    after = json.loads(call("check", *GEMM, "--rules", str(rule), "--json")[1])["programs"]
    assert 0 < after < before
    rule.write_text("constraint(c6, mine, at_most(8).\n")
    code, _, error = call("check", *GEMM, "--rules", str(rule))
    assert code == ExitCode.USAGE
    assert "mine.lp:1" in error


def test_doctor(call) -> None:
    found = json.loads(call("doctor", "--json")[1])["findings"]
    assert {"what", "found", "detail"} == set(found[0])
    assert any(one["what"] == "target zen4" for one in found)
    assert call("doctor")[0] == ExitCode.OK


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from heron_asp.cli.app import run; run(['--help']);"
        "heavy = [m for m in ('tvm', 'numpy', 'clingo', 'xgboost', 'pydantic') if m in sys.modules];"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_the_accelerator_is_nowhere_in_the_pipeline() -> None:
    """The first principle of the design, as a grep."""
    import re

    import heron_asp

    names = re.compile(
        r"wmma|vnni|vpdpbusd|tensorcore|dlboost|threadIdx|blockIdx|shared\.dyn|local\.(inp|wgt|acc)", re.I
    )
    package = Path(str(heron_asp.__file__)).parent
    found = [
        f"{path}:{number}"
        for path in package.rglob("*.py")
        if "backends" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if names.search(line)
    ]
    assert not found
