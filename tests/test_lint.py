"""lint: each broken file is a small mistake as it happens, with the very message it gets; what is shipped has none."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode, HeronError
from heron_asp.lint import lint
from heron_asp.lint.files import read_files
from heron_asp.lint.vocabulary import entries
from heron_asp.resources import rules_folder, targets_folder

ROOT = Path(__file__).parent.parent
BROKEN = Path(__file__).parent / "broken_rules"
NAMELESS = "the constraint has no name; derive constraint(Rule, Id, Kind), which can be explained and lifted [unnamed]"
NEVER = "never fires on a shipped operator and target; if that is meant, say why: `% silent: reason` [silent]"
PRIVATE = "but is not public: no comment"
EXPECTED = {
    "undefined": ["4: tiles/3 is read, but no rule derives it; did you mean 'tile'? [undefined]"],
    "unused": ["3: parts/4 is derived, but nothing reads it; did you mean 'part'? [unused]"],
    "arity": [
        "3: part has 3 arguments here; right is part(Rule, Id, Coefficient, Variable) [arity]",
        "3: tile has 2 arguments here; right is tile(Block, Axis, Level) [arity]",
    ],
    "undocumented": [
        f"2: grain/3 is read in s1_padding.lp, {PRIVATE} `%*! grain(...)` documents it [undocumented]",
        f"3: next/4 comes from s1_padding.lp, {PRIVATE} `%*! next(...)` documents it [undocumented]",
    ],
    "unnamed": [f"2: {NAMELESS}", f"3: {NAMELESS}"],
    "overflow": [
        "2: M * N * K may exceed 32 bits, and wraps then; a guard such as M <= 2147483647 / N / K is missing [overflow]"
    ],
    "silent": [f"2: {NEVER}"],
    "unbound": ["2: Axis unbound: no positive literal of the body gives a value [syntax]"],
    "script": [
        "2: #script runs code; rules are data [script]",
        "6: @up(Extent,8) runs code; rules are data [script]",
    ],
    "space": [
        "3: value/2 is derived by rules/csp and cannot be defined here; read it only, or choose another name [space]",
        "4: values/2 is read, but no rule derives it; did you mean 'value'? [undefined]",
    ],
}


def said(*paths: Path, fire: bool = True) -> list[str]:
    """Findings without their file."""
    return [f"{one.line}: {one.message} [{one.code}]" for one in lint(paths, fire).findings]


def test_what_is_shipped_is_clean() -> None:
    report = lint()
    assert not report.findings
    assert report.files == len(list(rules_folder().rglob("*.lp")))
    assert report.rules > 200
    assert not lint([ROOT / "examples"]).findings


@pytest.mark.parametrize("name", sorted({*EXPECTED, *(path.stem for path in BROKEN.glob("*.lp"))}))
def test_a_mistake_has_its_message(name: str) -> None:
    assert said(BROKEN / f"{name}.lp") == EXPECTED[name]


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run(["lint", "tests/broken_rules/unused.lp", "--no-fire"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"tests/broken_rules/unused.lp:{EXPECTED['unused'][0]}", "1 file, 3 rules: 1 finding"]
    assert run(["lint", "tests/broken_rules/unused.lp", "--no-fire", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["files"], found["rules"]) == (1, 3)
    assert [(one["file"], one["line"], one["code"]) for one in found["findings"]] == [
        ("tests/broken_rules/unused.lp", 3, "unused")
    ]
    assert run(["lint", "examples", "--no-fire"]) == ExitCode.OK
    assert "no findings" in capsys.readouterr().out
    assert run(["lint", "tests/nowhere.lp"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p(X) :- block(X)\nq(X) :- p(X).", "2: syntax error, unexpected <IDENTIFIER>"),
        ("#program other.", "1: #program other.: no such part; what speaks of programs follows #program space."),
        ('% x\n#include "gone.lp".', "2: file could not be opened: gone.lp"),
    ],
    ids=["period", "part", "include"],
)
def test_what_does_not_parse_is_a_finding(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.lp"
    file.write_text(text)
    assert said(file) == [f"{message} [syntax]"]


def test_an_include_from_outside_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    outside, file = tmp_path / "outside.lp", tmp_path / "rules" / "own.lp"
    outside.write_text("variant(Block, big) :- block(Block).")
    file.write_text('% mine\n#include "../outside.lp".')
    (finding,) = lint([file]).findings
    assert (finding.line, finding.code) == (2, "include")
    assert finding.message.startswith(f"{outside}: own.lp includes this file, which lies outside of ")


def test_an_include_from_the_own_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tall.lp").write_text("tall(Block) :- blocks(Block).")
    file = tmp_path / "own.lp"
    file.write_text('#include "parts/tall.lp".\naside(Block, tall) :- tall(Block), axis(Block, m, _, 1).')
    (finding,) = lint([file], fire=False).findings
    assert Path(finding.file) == tmp_path / "parts" / "tall.lp"
    assert finding.code == "undefined"


def test_a_folder_without_rules_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeronError, match="no rule files"):
        lint([tmp_path])


@pytest.mark.parametrize(
    ("body", "fine"),
    [
        ("Y = X * X'", False),
        ("Y = X * X', X <= 1000000 / X'", True),
        ("Y = X * X', X' >= 1, 1000000 / X' >= X", True),
        ("Y = X * X', |X| <= 1000000 / (|X'| + 1)", True),
        ("Y = X * X', X > 1000000 / X'", False),  # the wrong way round
        ("Y = X * X', not X <= 1000000 / X'", False),
        ("Y = X * X', X <= 1000000", False),  # the other factor may be anything
        ("Y = X * X', X * X' <= 1000000", False),  # wraps itself
        ("Y = X * X' * X, X <= 1000000 / X'", False),  # a factor more
        ("Y = X * X' * X, X <= 1000000 / X' / X", True),
        ("Y = X * X' * X, X <= 1000000 / (X' * X), X <= 1000000 / X'", True),
        ("Y = 16 * X + 4 * X'", True),
        ("Y = X * F, F = 2..16", True),
        ("Y = X * F, F = 2..16, X' > F", True),
        ("Y = X * (X' \\ 8)", True),
        ("Y = X * X', 0 <= X', X' <= 100", True),
        ("Y = X * X', X' <= 100", False),  # may be far below zero
        ("Y = X * ((X' + X - 1) / X)", True),
        ("Y = X * (X' / 2)", False),
        ("Y = X ** 2", False),
        ("Y = #sum { X * Z : axis(_, _, _, Z) }", False),
        ("Y = #sum { X * Z : axis(_, _, _, Z), Z <= 1000000 / X }", True),
        ("Y = 1, limit(Z, _) : pays(Z, X * X')", False),
    ],
)
def test_products_need_a_guard(tmp_path: Path, body: str, fine: bool) -> None:
    file = tmp_path / "own.lp"
    file.write_text(f"aside(Block, Y) :- axis(Block, A, _, X), axis(Block, B, _, X'), A < B, {body}.")
    assert [one.code for one in lint([file], fire=False).findings if "missing" in one.message] == (
        [] if fine else ["overflow"]
    )


def test_a_nameless_constraint_may_narrow_down_a_choice_of_its_file(tmp_path: Path) -> None:
    choice = "{ variant(Block, tall); variant(Block, wide) } :- block(Block).\n"
    narrows = ":- variant(Block, tall), axis(Block, m, spatial, 1).\n:- variant(Block, tall), variant(Block, wide).\n"
    file = tmp_path / "own.lp"
    file.write_text(choice + narrows)
    assert not said(file, fire=False)
    file.write_text(choice + ":- tile(Block, _, unit), variant(Block, tall).\n:- axis(_, _, _, 1).\n")
    assert said(file, fire=False) == [f"2: {NAMELESS}", f"3: {NAMELESS}"]
    file.write_text(narrows)
    assert said(file, fire=False) == [f"1: {NAMELESS}", f"2: {NAMELESS}"]


def test_what_an_own_file_documents_is_public(tmp_path: Path) -> None:
    one, two = tmp_path / "one.lp", tmp_path / "two.lp"
    one.write_text("slim(Block) :- axis(Block, _, _, 1).\n")
    two.write_text("aside(Block, slim) :- slim(Block).\n")
    assert said(tmp_path) == [f"1: slim/1 comes from one.lp, {PRIVATE} `%*! slim(...)` documents it [undocumented]"]
    one.write_text("%*! slim(Block)\nHas an axis of a single step.\n*%\n" + one.read_text())
    assert not said(tmp_path)
    one.write_text("%*! slim(Block)\nHas an axis of a single step.\n*%\n")
    assert "1: slim/1 is documented, but no rule derives it [undefined]" in said(tmp_path)


def test_rules_on_programs_read_both_stages(tmp_path: Path) -> None:
    file = tmp_path / "own.lp"
    file.write_text(
        "wanted(Block, 8) :- axis(Block, m, spatial, Extent), Extent > 8.\n"
        "#program space.\n"
        "low(Variable) :- value(Variable, X), X < 8, knob(Variable).\n"
        ":- wanted(Block, _), low(tile(Block, m, register)), low(tile(Block, n, register)).\n"
    )
    assert not said(file)
    file.write_text(file.read_text() + ":- value(Variable, 2000000), member(_, _, Variable).\n")
    assert said(file) == [f"5: member/3 comes from csp.lp, {PRIVATE} `%*! member(...)` documents it [undocumented]"]


def test_a_rule_may_say_why_it_is_silent(tmp_path: Path) -> None:
    file = tmp_path / "own.lp"
    silent = "capacity(Block, l3, task, Bytes) :- block(Block), scope(l3, Bytes)."
    fires = "unrolled(Block, strip) :- block(Block)."
    file.write_text(
        f"{silent}   % silent: for machines with a third cache\n{silent}\n"
        f"{silent}   % silent:\n\n"
        f"% silent: for machines with a third cache\n{fires}\n{silent}\n\n"
        f"% silent: is not so\n{fires}\n"
    )
    stale = "the comment speaks of rules that all fire: take it away [silent]"
    assert said(file) == [f"2: {NEVER}", f"3: {NEVER}", f"9: {stale}"]
    file.write_text(f"% silent: is not so\n{fires}\n")
    assert said(file) == [f"1: {stale}"]


def test_rules_that_make_no_sketch_are_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "own.lp"
    file.write_text(
        "constraint(c6, few(Block), atmost(8)) :- block(Block).\n"
        "#program space.\n"
        ":- value(Variable, 7), knob(Variable).\n"
    )
    (finding,) = lint([file]).findings
    assert finding.code == "run"
    assert "there is no kind 'atmost'; did you mean 'at_most'" in finding.message


def own_family(home: Path, name: str) -> Path:
    """Copies a family, with one machine; returns its folder of rules."""
    rules = home / "rules" / name
    shutil.copytree(rules_folder() / "dlboost", rules)
    (home / "targets" / "families").mkdir(parents=True)
    for said, to in (("families/dlboost", f"families/{name}"), ("zen4", "one")):
        text = (targets_folder() / f"{said}.toml").read_text()
        (home / "targets" / f"{to}.toml").write_text(text.replace('family = "dlboost"', f'family = "{name}"'))
    return rules


@pytest.mark.parametrize("name", ["mine", "dlboost"])
def test_a_family_of_ones_own_meets_no_other_one(tmp_path: Path, name: str) -> None:
    rules = own_family(tmp_path, name)
    assert not said(rules)
    (rules / "more.lp").write_text(
        "% One rule that fires, and one that never does.\n"
        "constraint(c6, more(Block), at_most(8)) :- block(Block).\n"
        "constraint(c6, less(Block), at_most(8)) :- block(Block), limit(vector_registers, 31).\n"
    )
    assert said(rules) == [f"3: {NEVER}"]
    (tmp_path / "targets" / "two.toml").write_text(
        (tmp_path / "targets" / "one.toml").read_text().replace("vector_registers = 32", "vector_registers = 31")
    )
    assert not said(rules)
    (tmp_path / "targets" / "two.toml").write_text("family")
    with pytest.raises(HeronError, match="not TOML"):
        lint([rules])


def test_families_of_one_name_are_looked_at_one_by_one(tmp_path: Path) -> None:
    folders = [own_family(tmp_path / home, "mine") for home in ("one", "two")]
    with pytest.raises(HeronError, match="family 'mine' stands in"):
        lint(folders, fire=False)


def test_python_reads_public_predicates_only() -> None:
    files, _ = read_files([rules_folder()])
    public = {name for file in files.given for (name, _), _ in entries(file)}
    read = {
        name
        for path in (ROOT / "heron_asp").rglob("*.py")
        for name in re.findall(r'\.of\(\s*"(\w+)"\s*\)', path.read_text())
    }
    assert len(read) > 20
    assert read <= public
