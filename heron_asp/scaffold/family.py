"""Makes the folder of a new family: rules, targets, tests and a README of the next steps."""

from __future__ import annotations

import keyword
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from heron_asp.errors import HeronError
from heron_asp.host import resolve_target
from heron_asp.resources import rule_files, rules_folder, suggestion
from heron_asp.scaffold.cases import Case, cases
from heron_asp.target import Target, family_names, load_target, target_names

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TAKEN = ("core", "csp", "families", "not")  # folders beside the families', and clingo's word
_COMMENT = re.compile(r"(?m)^\s*%.*$|(?<=\s)%.*$")
_SAMPLES = 4  # programs that the tests run of each operator


@dataclass(frozen=True)
class RuleCopy:
    """A rule file of the new family.

    Attributes:
        name: the name of the file.
        role: what the file of the pattern is called without its family, e.g. `c6`.
        source: the file of the pattern.
        text: its text, in the new family's name.
    """

    name: str
    role: str
    source: Path
    text: str

    @property
    def purpose(self) -> str:
        """The sentence that the file opens with."""
        first = self.text.partition("\n")[0].lstrip("%*! ")
        return (first.partition(", ")[2] or first).partition(". ")[0].rstrip(".")


@dataclass(frozen=True)
class Made:
    """A new family.

    Attributes:
        folder: what was made.
        name: the family's name.
        pattern: the machine that it begins as.
        files: all files, relative to the folder.
        cases: the operators that its tests try.
    """

    folder: Path
    name: str
    pattern: Target
    files: tuple[Path, ...]
    cases: tuple[Case, ...]

    @property
    def target(self) -> Path:
        """The target file, which `-t` takes."""
        return self.folder / "targets" / f"{self.name}.toml"

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `heron-asp new`."""
        return {
            "family": self.name,
            "folder": str(self.folder),
            "target": str(self.target),
            "like": self.pattern.family,
            "machine": self.pattern.name,
            "files": [str(path) for path in self.files],
            "cases": [{"operator": case.operator.label, "programs": case.programs} for case in self.cases],
        }


def new_family(name: str, like: str, into: Path = Path()) -> Made:
    """Makes the folder `into/name`: a family that begins as a copy of a known one.

    Args:
        name: the family's name.
        like: the family to copy, or one of its machines; of a family, the machine that this host is, if it is one.
        into: where the folder is made; folders above are made too.

    Raises:
        HeronError: the name is no name or taken, the family is unknown, or the folder exists, which is left as it is.
    """
    _require_name(name)
    pattern = _machine_of(like)
    folder = into / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        hint = "nothing was written; take another name, or --into another folder"
        raise HeronError(f"{folder} exists", hint) from None
    except NotADirectoryError:
        raise HeronError(f"--into {into}: not a folder") from None
    try:
        return _fill(folder, name, pattern)
    except BaseException:  # an interrupt too leaves nothing half-made
        shutil.rmtree(folder)
        raise


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _TAKEN:
        raise HeronError(
            f"{name!r} cannot be a family's name",
            "it names folders, a clingo constant and a Python module: a lower-case letter, then up to 39 letters, "
            f"digits and underscores, and none of {', '.join(_TAKEN)} or Python's words",
        )
    if name in family_names() or name in target_names() or (rules_folder() / name).exists():
        raise HeronError(f"there is a family or a machine '{name}' already", "take a name of its own")


def _machine_of(like: str) -> Target:
    """The machine to copy: the one that is named, else the family's that runs here, else the one with most flags.

    Raises:
        HeronError: there is no such family or machine.
    """
    if like in target_names():
        return resolve_target(like)
    if like not in family_names():
        raise HeronError(f"--like {like}: no such family", suggestion(like, family_names()))
    machines = [one for one in map(resolve_target, target_names()) if one.family == like]
    if not machines:
        raise HeronError(f"--like {like}: the family has no machine", "a new family begins as one of the machines")
    try:
        return resolve_target(like)
    except HeronError:  # this host is none of them
        return max(machines, key=lambda one: len(one.machine.cpu_flags))


def _fill(folder: Path, name: str, pattern: Target) -> Made:
    environment = _environment()
    copies = _copies(name, pattern)
    words = {"name": name, "pattern": pattern, "copies": copies, "samples": _SAMPLES}
    texts = {
        Path("rules", name, one.name): environment.get_template("rule.lp.j2").render(copy=one, **words)
        for one in copies
    }
    for path, source, template in (
        (Path("targets", f"{name}.toml"), pattern.path, "machine.toml.j2"),
        (Path("targets", "families", f"{name}.toml"), pattern.shared_path, "family.toml.j2"),
    ):
        copied = _renamed(source.read_text(), name)
        texts[path] = environment.get_template(template).render(copied=copied, **words)
    _write(folder, texts)
    tried = cases(load_target(folder / "targets" / f"{name}.toml"))
    if not tried:
        raise HeronError(f"--like {pattern.name}: no instruction of it computes an operator that tests could try")
    shown = {"cases": tried, **words}
    tests = {
        Path("tests", f"test_{name}.py"): environment.get_template("test_family.py.j2").render(shown),
        Path("README.md"): environment.get_template("README.md.j2").render(shown),
    }
    _write(folder, tests)
    return Made(folder, name, pattern, tuple(sorted({**texts, **tests})), tried)


def _write(folder: Path, texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _copies(name: str, pattern: Target) -> list[RuleCopy]:
    """The rule files of a family in the name of a new one: names of files and comments change, rules do not."""
    files = rule_files(pattern.rules[1])
    texts = [path.read_text() for path in files]
    headings = {text.partition(",")[0] for text in texts}  # `% DL Boost`: what all files call the family, if they agree
    heading = headings.pop() if len(headings) == 1 and len(texts) > 1 else ""
    return [
        _copy(path, text.replace(heading, f"% {name}", 1) if heading else text, name, pattern.family)
        for path, text in zip(files, texts, strict=True)
    ]


def _copy(path: Path, text: str, name: str, family: str) -> RuleCopy:
    word = re.compile(rf"(?<![a-zA-Z0-9]){re.escape(family)}(?![a-zA-Z0-9])")
    renamed = _COMMENT.sub(lambda comment: word.sub(name, comment[0]), text)
    role = word.sub("", path.stem).strip("_")
    return RuleCopy(word.sub(name, path.name), role, path, renamed)


def _renamed(text: str, name: str) -> str:
    """A target or family file in the name of a new family: the keys before its first table."""
    table = re.search(r"(?m)^\s*\[", text)
    end = table.start() if table else len(text)
    return re.sub(r"""(?m)^(name|family)(\s*=\s*)(["'])[^"']*\3""", rf'\1\2"{name}"', text[:end]) + text[end:]


def _environment() -> Environment:
    return Environment(  # noqa: S701 - rules, TOML, Python and Markdown, not HTML
        loader=PackageLoader("heron_asp.scaffold", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
