"""What each rule file derives for GEMM 1024^3, kept as text. `pytest --update-golden` rewrites it; review it like code.

Every rule of a file gets a twin whose head carries the file's name, so that an answer set tells which file derived
what.
"""

from __future__ import annotations

from pathlib import Path

import clingo
import pytest
from clingo import ast

from heron_asp.operators import operator
from heron_asp.resources import rule_files, rules_folder, targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from heron_asp.terms import add_facts, fact, text, to_symbol
from tests.conftest import make_task

CORE = rules_folder() / "core"
FILES = [path for path in rule_files(CORE, rules_folder() / "dlboost") if path.stem != "interface"]
VTA = rule_files(rules_folder() / "vta")
TENSORCORE = rule_files(rules_folder() / "tensorcore")


def derived(task: Task, threads: int) -> dict[Path, set[str]]:
    files = rule_files(CORE, rules_folder() / task.target.family)
    control = clingo.Control(["0"], logger=lambda *_: None)
    with ast.ProgramBuilder(control) as builder:
        for number, path in enumerate(files):

            def add(statement: ast.AST, number: int = number) -> None:
                builder.add(statement)
                if statement.ast_type == ast.ASTType.Rule and statement.head.ast_type == ast.ASTType.Literal:
                    atom = statement.head.atom
                    if atom.ast_type == ast.ASTType.SymbolicAtom:
                        location = statement.location
                        mark = ast.SymbolicTerm(location, clingo.Number(number))
                        twin = ast.Function(location, "derived", [mark, atom.symbol], False)
                        head = ast.Literal(location, ast.Sign.NoSign, ast.SymbolicAtom(twin))
                        builder.add(ast.Rule(location, head, statement.body))

            ast.parse_files([str(path)], add)
    add_facts(control, [*task.block.facts(), *task.target.facts(), fact("threads", threads)])
    control.ground([("base", [])])
    found: dict[Path, set[str]] = {path: set() for path in files}
    with control.solve(yield_=True) as handle:
        for model in handle:
            for atom in model.symbols(atoms=True):
                if atom.name == "derived":
                    found[files[atom.arguments[0].number]].add(str(atom.arguments[1]))
    return found


@pytest.fixture(scope="module")
def by_file(zen4: Target) -> dict[Path, set[str]]:
    task = make_task(zen4, m=1024, n=1024, k=1024)
    one, two = derived(task, 1), derived(task, 2)
    return {path: one[path] | two[path] for path in one}


@pytest.fixture(scope="module")
def of_vta() -> dict[Path, set[str]]:
    target = load_target(targets_folder() / "vta-pynq.toml")
    usual = target.shared.defaults
    shape = {"n": 1, "h": 14, "w": 14, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": 1}
    return derived(Task(operator("conv2d", shape, usual.dtype, None, f"bias,{usual.epilogue}"), target), 1)


@pytest.fixture(scope="module")
def of_tensorcore() -> dict[Path, set[str]]:
    target = load_target(targets_folder() / "a100.toml")
    gemm = operator("gemm", {"m": 64, "n": 48, "k": 96}, "f16f16f32")
    return derived(Task(gemm, target), 1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(by_file: dict[Path, set[str]], golden, path: Path) -> None:
    what = "for GEMM 1024x1024x1024 on zen4 with 1 or 2 threads, all sketches together"
    text = f"% What rules/{path.parent.name}/{path.name} derives {what}.\n"
    golden(f"{path.parent.name}-{path.stem}.lp", text + "".join(f"{atom}.\n" for atom in sorted(by_file[path])))


@pytest.mark.parametrize("path", VTA, ids=lambda path: f"vta/{path.stem}")
def test_golden_of_vta(of_vta: dict[Path, set[str]], golden, path: Path) -> None:
    text = f"% What rules/vta/{path.name} derives for a convolution 3x3 of 14x14x64 with a bias on vta-pynq.\n"
    golden(f"vta-{path.stem}.lp", text + "".join(f"{atom}.\n" for atom in sorted(of_vta[path])))


@pytest.mark.parametrize("path", TENSORCORE, ids=lambda path: f"tensorcore/{path.stem}")
def test_golden_of_tensorcore(of_tensorcore: dict[Path, set[str]], golden, path: Path) -> None:
    text = f"% What rules/tensorcore/{path.name} derives for GEMM 64x48x96 on a100, all sketches together.\n"
    golden(f"tensorcore-{path.stem}.lp", text + "".join(f"{atom}.\n" for atom in sorted(of_tensorcore[path])))


def test_the_audit_of_gemm(zen4: Target, golden) -> None:
    from heron_asp.cli.audit import examine

    found = examine(make_task(zen4, m=1024, n=1024, k=1024))
    lines = [f"{c['id']:<24} {c['force']:<5} {c['text']}" for c in sorted(found["constraints"], key=lambda c: c["id"])]
    golden("audit-gemm1024.txt", "\n".join(lines) + "\n")
    assert all(one["step"] for one in found["constraints"])
    assert all(one["force"] == "must" or one["evidence"] for one in found["constraints"])
    assert {one["rule"] for one in found["constraints"]} == {
        "c1",
        "c3",
        "c4",
        "c5",
        "c6",
    }  # one thread: nothing is fused
    assert "c2" in {c["rule"] for c in examine(make_task(zen4, m=1024, n=1024, k=1024, threads=2))["constraints"]}
    assert not [v for v in found["variables"] if v["origin"] == "unknown"]


def test_the_space_of_a_convolution(zen4: Target, golden) -> None:
    """A window, zero padding, and a channel that an instruction reduces: what a product does not have."""
    task = make_task(zen4, "conv2d", n=1, h=6, w=8, ci=8, co=32, kh=3, kw=3, padding=1)
    lines = [f"% The space of {task.operator.label} on zen4 with 1 thread."]
    for part in task.space:
        assert part.exact
        lines += ["", f"% {part.name}: {part.size:,} programs", "% steps"]
        lines += [text(step) for _, step in sorted(part.sketch.of("step"), key=lambda pair: to_symbol(pair[0]))]
        lines += ["% knobs"]
        lines += [
            f"{text(variable)} = {', '.join(map(text, part.program.values[number]))}"
            for variable, number in sorted(part.variables.items(), key=lambda pair: text(pair[0]))
            if variable in part.sketch.knobs
        ]
        lines += ["% constraints"]
        lines += [f"{one.name} {one.thumb or 'must'}" for one in sorted(part.constraints, key=lambda one: one.name)]
    golden("space-conv2d.txt", "\n".join(lines) + "\n")
