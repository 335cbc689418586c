"""A new family: its own tests pass as they are and fail where they should; what is asked wrongly changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heron_asp.cli.app import run
from heron_asp.errors import ExitCode, HeronError
from heron_asp.host import runnable_targets
from heron_asp.resources import rules_folder, targets_folder
from heron_asp.scaffold import Made, new_family
from heron_asp.target import family_names, load_target

ROOT = Path(__file__).parent.parent.parent
FOREIGN = 'cpu_flags = ["sme2", '  # a flag of another architecture


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return new_family("mydla", "dlboost", tmp_path_factory.mktemp("new"))


@pytest.fixture(scope="module", params=family_names())
def of_each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return new_family("mine", request.param, tmp_path_factory.mktemp("new"))


def own_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a family as its README says, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def edited(made: Made, into: Path, old: str, new: str) -> Path:
    """A copy of a family with another target file."""
    folder = into / "copy"
    shutil.copytree(made.folder, folder)
    file = folder / "targets" / made.target.name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return folder


def test_its_own_tests_pass(of_each: Made) -> None:
    done = own_tests(of_each.folder)
    runs_here = of_each.pattern.name in runnable_targets()
    assert done.returncode == 0, done.stdout
    assert ("7 passed" if runs_here else "5 passed, 2 skipped") in done.stdout


def test_the_tests_notice_other_programs(made: Made, tmp_path: Path) -> None:
    folder = edited(made, tmp_path, "[compiler]", "[pays.registers]\nvalue = 20\n\n[compiler]")
    done = own_tests(folder, "-k", "as_many")
    assert "2 failed" in done.stdout, done.stdout


def test_what_cannot_run_here_is_skipped_with_the_reason(made: Made, tmp_path: Path) -> None:
    done = own_tests(edited(made, tmp_path, "cpu_flags = [", FOREIGN), "-k", "samples")
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert re.search(r"SKIPPED.*its CPU lacks .*sme2", done.stdout)


def test_it_is_a_copy_in_its_own_name(made: Made) -> None:
    target = load_target(made.target)
    assert (target.name, target.family, target.shared.family) == ("mydla", "mydla", "mydla")
    assert target.rules[1] == made.folder / "rules" / "mydla"
    pattern = {path.name.replace("dlboost", "mydla"): path for path in made.pattern.rules[1].glob("*.lp")}
    copies = {path.name: path for path in target.rules[1].iterdir()}
    assert copies.keys() == pattern.keys()
    for name, path in copies.items():
        text, source = path.read_text(), pattern[name].read_text()
        assert text.startswith(f"% mydla: began as dlboost's {pattern[name].name}; it is yours to edit.\n% Change ")
        assert text.endswith(source.partition("\n")[2]) or "dlboost" in source
        assert re.sub(r"%.*", "", text).split() == re.sub(r"%.*", "", source).split()
    assert "DL Boost" not in "".join(path.read_text().splitlines()[3] for path in copies.values())
    readme = (made.folder / "README.md").read_text()
    assert all(f"`rules/mydla/{name}`" in readme for name in copies)


def test_the_files_are_tidy(of_each: Made) -> None:
    options = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(of_each.folder)]
    for command in (["check", "--ignore", "S,D"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_any_family_is_a_pattern(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not shipped, with rules in the core's company and no comment in common."""
    rules, targets = tmp_path / "rules", tmp_path / "targets"
    for folder in ("core", "csp"):
        shutil.copytree(rules_folder() / folder, rules / folder)
    shutil.copytree(made.folder / "rules" / "mydla", rules / "mydla")
    shutil.copytree(made.folder / "targets", targets)
    (rules / "mydla" / "schedule.lp").write_text(
        "% The nest of mydla, or of mydla_2: not mydlas.\n" + (rules / "mydla" / "schedule.lp").read_text()
    )
    monkeypatch.setenv("HERON_ASP_RULES", str(rules))
    monkeypatch.setenv("HERON_ASP_TARGETS", str(targets))
    second = new_family("second", "mydla", tmp_path)
    assert [case.programs for case in second.cases] == [case.programs for case in made.cases]
    assert (
        "% The nest of second, or of second_2: not mydlas.\n"
        in (second.folder / "rules" / "second" / "schedule.lp").read_text()
    )
    assert (second.folder / "rules" / "second" / "c6_second.lp").is_file()
    with pytest.raises(HeronError) as caught:
        new_family("third", "mydia", tmp_path)
    assert caught.value.hint == "did you mean 'mydla'?"


def test_of_a_family_that_does_not_run_here_the_machine_with_most_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_asp.host.cpu_flags", lambda: frozenset({"neon"}))
    most = max((load_target(path) for path in targets_folder().glob("*.toml")), key=lambda t: len(t.machine.cpu_flags))
    assert len(new_family("mydla", "dlboost", tmp_path).pattern.machine.cpu_flags) == len(most.machine.cpu_flags)
    assert new_family("other", "icelake", tmp_path).pattern.name == "icelake"


@pytest.mark.parametrize(
    "name", ["", "Dla", "2dla", "my-dla", "_dla", "class", "not", "core", "a/b", "dla.lp", "a" * 41]
)
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(HeronError, match="cannot be a family's name"):
        new_family(name, "dlboost", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["dlboost", "zen4"])
def test_a_name_that_is_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(HeronError, match="there is a family or a machine"):
        new_family(name, "dlboost", tmp_path)


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mydla").mkdir()
    with pytest.raises(HeronError, match="mydla exists"):
        new_family("mydla", "dlboost", tmp_path)
    assert not list((tmp_path / "mydla").iterdir())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HeronError, match="file: not a folder"):
        new_family("mydla", "dlboost", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_asp.scaffold.family.cases", lambda _: ())
    with pytest.raises(HeronError, match="no instruction of it computes"):
        new_family("mydla", "zen4", tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "mydla", "--like", "zen4", "--into", str(tmp_path), "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["family"], found["like"], found["machine"]) == ("mydla", "dlboost", "zen4")
    assert all((tmp_path / "mydla" / file).is_file() for file in found["files"])
    assert len(found["cases"]) == 2
    assert run(["check", "gemm", "-s", "m=4,n=16,k=8", "-t", found["target"], "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["target"] == "mydla"
    assert run(["check", "gemm", "-s", "m=4,n=16,k=8", "-t", found["folder"]]) == ExitCode.USAGE
    assert f"such as {found['target']}" in capsys.readouterr().err
    assert run(["new", "mydla", "--like", "zen4", "--into", str(tmp_path)]) == ExitCode.USAGE
    assert "exists" in capsys.readouterr().err
