"""The command line: what agrees, what differs, what cannot be read."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heron_asp.backends.vta.__main__ import main
from tests.backends.vta.conftest import DATA


def lines(name: str, count: int) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line, _ in zip(file, range(count), strict=False)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return str(path)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_as_a_command(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", lines("cycles.jsonl.gz", 2))
    command = [
        sys.executable,
        "-m",
        "heron_asp.backends.vta",
        path,
        "--encodings",
        str(DATA / "encodings.json.gz"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["agree"] is True
    [file] = report["files"]
    summary = {key: value for key, value in file["summary"].items() if key != "programs_per_second"}
    assert summary == {
        "programs": 2, "outputs_equal": 2, "counters_equal": 2, "timed": 2, "mean_error": 0.0, "max_error": 0.0,
    }  # fmt: skip
    assert file["programs"][0] == {
        "id": "public-gemm-000", "outputs": True, "counters": True, "cycles": 3959, "rtl_cycles": 3959, "error": 0.0,
    }  # fmt: skip
    assert report["encodings"][0]["count"] == 148


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines("functional.jsonl.gz", 2)
    rows[1]["counters"]["alu_counter"] += 1
    assert main([write(tmp_path / "a.jsonl.gz", rows)]) == 1
    said = capsys.readouterr().out
    assert f"{rows[1]['id']}: alu_counter is" in said
    assert "DIFFERS: programs 2, outputs equal 2, counters equal 1" in said


def test_a_plain_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(lines("functional.jsonl.gz", 1)[0]) + "\n")
    assert run([str(path)], capsys)[0] == 0


def test_a_wrong_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = lines("functional.jsonl.gz", 1)
    data = bytearray(base64.b64decode(row["output"][0]["bytes"]))
    data[-1] ^= 1
    row["output"][0]["bytes"] = base64.b64encode(data).decode()
    code, report = run([write(tmp_path / "a.jsonl.gz", [row])], capsys)
    assert code == 1
    [found] = report["files"][0]["programs"]
    assert found["outputs"] is False
    assert found["counters"] is True
    assert "1 bytes of memory differ" in found["notes"][0]


def test_a_write_outside_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = lines("functional.jsonl.gz", 1)
    del row["output"][0]
    code, report = run([write(tmp_path / "a.jsonl.gz", [row])], capsys)
    assert code == 1
    assert report["files"][0]["programs"][0]["outputs"] is False


@pytest.mark.parametrize(("factor", "code"), [(1.004, 0), (1.006, 1), (0.97, 1)])
def test_cycles_have_bounds(factor: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = lines("cycles.jsonl.gz", 1)
    row["rtl_cycles"] = round(row["rtl_cycles"] * factor)
    path = write(tmp_path / "a.jsonl.gz", [row])
    assert run([path], capsys)[0] == code
    assert run([path, "--mean-error", "0.05", "--max-error", "0.05"], capsys)[0] == 0
    capsys.readouterr()


def test_a_refused_program_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = lines("functional.jsonl.gz", 1)
    row["instructions"] = row["instructions"][:-1]
    path = write(tmp_path / "a.jsonl.gz", [row])
    code, report = run([path], capsys)
    assert code == 1
    [found] = report["files"][0]["programs"]
    assert "outputs" not in found
    assert found["notes"] == ["refused: the program has no FINISH; its last instruction must have this opcode"]
    assert run([path, "--unchecked"], capsys)[0] == 0


def test_a_wrong_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(gzip.decompress((DATA / "encodings.json.gz").read_bytes()))
    content["instructions"][33]["fields"]["uop_bgn"] = 8190
    content["micro_ops"][0]["hex"] = "000003ff"
    path = tmp_path / "e.json"
    path.write_text(json.dumps(content))
    code, report = run(["--encodings", str(path)], capsys)
    assert code == 1
    assert report["encodings"][0]["wrong"][0] == "public-default-033: uop_bgn is 8191, not 8190"
    assert "public-default-uop-000: decoded as" in report["encodings"][0]["wrong"][1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "line 1: KeyError: 'config'"),
        ('{"config": {"log_block": 99}}', "line 1: configuration: log_block"),
        ('{"config": {}, "memory_size": 16, "memory": [{"address": 0, "bytes": "?"}]}', "line 1: Error: "),
        (
            '{"config": {}, "memory_size": 2, "memory": [{"address": 0, "bytes": "AAAA"}]}',
            "line 1: bytes 0 to 3 lie outside the 2 of memory_size",
        ),
        ('{"config": {}, "memory_size": 16, "memory": [], "id": "x", "instructions": ["7"]}', "line 1: the word"),
    ],
)
def test_unreadable_files(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    code, report = run([str(path)], capsys)
    assert code == 2
    assert message in report["error"]


def test_nothing_is_no_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("")
    assert run([str(path)], capsys)[0] == 1
    with pytest.raises(SystemExit) as usage:
        main([])
    assert usage.value.code == 2
    capsys.readouterr()
    assert main([str(tmp_path / "missing.jsonl.gz")]) == 2
    assert "missing.jsonl.gz: cannot be read" in capsys.readouterr().err
