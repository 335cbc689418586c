"""The tools of the house: lint, format, types, and what the README promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WHERE = ["heron_asp", "tests", "benchmarks", "examples"]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", *WHERE],
        ["ruff", "format", "--check", *WHERE],
        ["mypy"],
        ["mypy", "--explicit-package-bases", "benchmarks"],
    ],
    ids=["ruff", "format", "mypy", "mypy of benchmarks"],
)
def test_tools(command: list[str]) -> None:
    where = {**os.environ, "MYPYPATH": "benchmarks"}  # where its modules find one another
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rule_files_open_with_their_purpose() -> None:
    for path in sorted((ROOT / "rules").rglob("*.lp")):
        lines = path.read_text().splitlines()
        assert lines[0].startswith("%"), path
        assert max(map(len, lines)) <= 140, path
        assert path.name == "interface.lp" or len(lines) <= 80, path


def test_modules_have_one_job() -> None:
    for path in sorted((ROOT / "heron_asp").rglob("*.py")):
        assert len(path.read_text().splitlines()) <= 400, path


def test_no_merge_is_left_half_done() -> None:
    where = [ROOT / name for name in (*WHERE, "rules", "targets")]
    files = [ROOT / "README.md", *(path for folder in where for path in folder.rglob("*.*"))]
    marker = re.compile(rb"^ *(<{7}|>{7}) ", re.MULTILINE)
    assert not [path for path in files if path.is_file() and marker.search(path.read_bytes())]


def test_the_readme_opens_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first, second = text.index("### Set up and run"), text.index("### Set up and run the tests")
    assert first < second < 1500
    assert text.count("```sh", 0, text.index("```", second + 100) + 3) == 2
