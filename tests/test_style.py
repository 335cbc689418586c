"""The tools of the house: lint, format, types, and what the README promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from clingo import ast

ROOT = Path(__file__).parent.parent
WHERE = ["heron_asp", "tests", "benchmarks", "examples"]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", *WHERE], ["ruff", "format", "--check", *WHERE], ["mypy"]],
    ids=["ruff", "format", "mypy"],
)
def test_tools(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
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


def test_every_predicate_that_crosses_a_file_is_documented() -> None:
    interface = (ROOT / "rules" / "core" / "interface.lp").read_text()
    documented = {(name, len(args.split(","))) for name, args in re.findall(r"%\*! (\w+)\(([^)]*)\)", interface)}
    derived: dict[tuple[str, int], set[str]] = {}
    read: dict[tuple[str, int], set[str]] = {}
    for path in sorted((ROOT / "rules").rglob("*.lp")):
        if path.parent.name == "csp":  # a stage of its own, with the vocabulary of a single sketch
            continue

        def note(statement: ast.AST, file: str = path.name) -> None:
            if statement.ast_type == ast.ASTType.Rule:
                for found, place in ((derived, statement.head), *((read, one) for one in statement.body)):
                    for predicate in _predicates(place):
                        found.setdefault(predicate, set()).add(file)

        ast.parse_files([str(path)], note)
    crossing = {one for one, files in read.items() if derived.get(one, set()) - files or one not in derived}
    assert crossing <= documented


def _predicates(node: ast.AST) -> set[tuple[str, int]]:
    """Name and arity of every atom in a statement's head or in a literal of its body."""
    if node.ast_type == ast.ASTType.SymbolicAtom:
        return {(node.symbol.name, len(node.symbol.arguments))}
    parts = [getattr(node, key) for key in node.child_keys]
    nodes = [one for part in parts for one in (part if isinstance(part, ast.ASTSequence) else [part])]
    return {found for one in nodes if isinstance(one, ast.AST) for found in _predicates(one)}


def test_the_readme_opens_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first, second = text.index("### Set up and run"), text.index("### Set up and run the tests")
    assert first < second < 1500
    assert text.count("```sh", 0, text.index("```", second + 100) + 3) == 2
