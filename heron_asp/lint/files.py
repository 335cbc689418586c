"""Rule files as lint sees them: those to look at, and the shipped ones around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import clingo
from clingo import ast

from heron_asp.errors import HeronError
from heron_asp.lint.finding import Code, Finding
from heron_asp.resources import is_own_family, rules_folder
from heron_asp.rulefile import SPACE, Statement, offences, read_statements, walk

CORE, CSP = "core", "csp"
_MESSAGE = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?:\d[\d:-]*:)? *(?:error: |warning: |info: )?(?P<text>.*)$")
_NEXT = re.compile(r"\n(?=\S)")  # a message's further lines are indented
_UNSAFE = re.compile(r"note: '(.+)' is unsafe")
_INCLUDE = re.compile(r'^\s*#include\s*[<"]([^>"]+)[>"]')
_SILENT = re.compile(r"^(?P<rule>.*?)%\s*silent: +(?P<reason>\S.*)$")


@dataclass(frozen=True)
class RuleFile:
    """A rule file.

    Attributes:
        path: where it is.
        folder: its folder among the shipped rules (`core`, `csp` or a family), or that of a family of the user's own;
            None for a file of the user's own that further constrains a family.
        statements: what it says and includes; none where it does not parse.
    """

    path: Path
    folder: str | None
    statements: tuple[Statement, ...]

    @property
    def rules(self) -> tuple[Statement, ...]:
        """Rules, choices and constraints."""
        return tuple(one for one in self.statements if one.node.ast_type == ast.ASTType.Rule)

    def of(self, stage: str) -> tuple[Statement, ...]:
        """Statements of a stage: `base`, the derivation, or `space`, the constraint problem of a sketch."""
        if self.folder == CSP:
            return self.statements if stage == SPACE else ()
        return tuple(one for one in self.statements if one.part == stage)

    @cached_property
    def expected_silent(self) -> dict[int, int]:
        """Lines about which a `% silent: reason` speaks, each with the line of that comment.

        Beside a rule it speaks of this line; on a line of its own, of all lines up to the next empty one.
        """
        lines: dict[int, int] = {}
        comment = 0
        for number, text in enumerate(self.path.read_text(errors="replace").splitlines(), 1):
            found = _SILENT.match(text)
            if not text.strip():
                comment = 0
            elif found and not found["rule"].strip():
                comment = number
            if found and found["rule"].strip():
                lines[number] = number
            elif comment:
                lines[number] = comment
        return lines


@dataclass(frozen=True)
class Files:
    """The files to look at, and what surrounds them.

    Attributes:
        given: files to look at.
        shipped: all shipped files, and all of the families that some of the given files belong to.
        homes: the folders that hold `rules/` and `targets/` of families of the user's own, by family.
    """

    given: tuple[RuleFile, ...]
    shipped: tuple[RuleFile, ...]
    homes: Mapping[str, Path]

    @property
    def own(self) -> tuple[RuleFile, ...]:
        """Files of the user's own that further constrain a family."""
        return tuple(one for one in self.given if one.folder is None)

    @property
    def families(self) -> tuple[str, ...]:
        """Families with rules."""
        return tuple(sorted({one.folder for one in self.shipped if one.folder} - {CORE, CSP}))

    def around(self, folder: str | None) -> tuple[RuleFile, ...]:
        """The derivation that a file of this folder takes part in: a family never meets another one."""
        if folder == CSP:
            return ()
        families = (folder,) if folder in self.families else self.families
        shipped = tuple(one for one in self.shipped if one.folder in (CORE, *families))
        return (*shipped, *self.own) if folder is None else shipped

    @property
    def csp(self) -> tuple[RuleFile, ...]:
        """The constraint problem of a sketch."""
        return tuple(one for one in self.shipped if one.folder == CSP)


def shown(path: Path) -> str:
    """A path as the user would type it."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)


def rule_paths(paths: Sequence[Path]) -> list[Path]:
    """The rule files of some files and folders, those of folders below included.

    Raises:
        HeronError: a folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        below = sorted(path.rglob("*.lp")) if path.is_dir() else [path]
        if not below:
            raise HeronError(f"no rule files (*.lp) in {path}")
        found.update((one.resolve(), None) for one in below)
    return list(found)


def read_files(paths: Sequence[Path]) -> tuple[Files, list[Finding]]:
    """Reads the rule files of some files and folders, and all shipped ones around them.

    Files of a family of the user's own are seen as such: with the core, and without any other family.

    Returns:
        The files, and what speaks against reading them.

    Raises:
        HeronError: a folder holds no rule files; families of one name stand in several folders; or a file that is
            around the given ones and not among them does not parse.
    """
    findings: list[Finding] = []
    given: dict[Path, RuleFile] = {}
    for path in rule_paths(paths):
        try:
            statements = tuple(read_statements(path))
        except HeronError as error:
            findings += _from_messages(
                _NEXT.split(error.message.removeprefix("the rules do not parse:\n")), path, error.hint
            )
            statements = ()
        given[path] = RuleFile(path, _folder(path), statements)
        findings += _offences(given[path])
    homes = _homes(given)
    around = [path for path in rule_paths([rules_folder()]) if _folder(path) not in homes]
    around += rule_paths([home / "rules" / family for family, home in homes.items()]) if homes else []
    shipped = [given.get(path) or RuleFile(path, _folder(path), tuple(read_statements(path))) for path in around]
    return Files(tuple(given.values()), tuple(shipped), homes), findings


def _homes(paths: Iterable[Path]) -> dict[str, Path]:
    """The folders of the families of the user's own that some files belong to, by family."""
    homes: dict[str, Path] = {}
    for folder in dict.fromkeys(path.parent for path in paths if is_own_family(path.parent)):
        home = folder.parent.parent
        if homes.setdefault(folder.name, home) != home:
            where = f"{homes[folder.name]} and in {home}"
            raise HeronError(f"family '{folder.name}' stands in {where}", "look at one of them")
    return homes


def grounding_findings(file: RuleFile) -> Iterator[Finding]:
    """What clingo says of a file's statements when it grounds them, without any facts: unsafe variables, say."""
    messages: list[str] = []

    def note(code: clingo.MessageCode, message: str) -> None:
        if code != clingo.MessageCode.AtomUndefined:
            messages.append(message)

    control = clingo.Control(["--warn=all"], logger=note)
    try:
        with ast.ProgramBuilder(control) as builder:
            for one in file.statements:
                builder.add(one.node)
        control.ground([("base", [])])
    except RuntimeError as error:
        if not messages:
            messages.append(str(error))
    yield from _from_messages(messages, file.path)


def _folder(path: Path) -> str | None:
    rules = rules_folder().resolve()
    parts = path.relative_to(rules).parts if path.is_relative_to(rules) else ()
    if len(parts) > 1:
        return parts[0]
    return path.parent.name if is_own_family(path.parent) else None


def _offences(file: RuleFile) -> Iterator[Finding]:
    for statement, what in offences(file.statements, file.path, rules_folder()):
        if statement.node.ast_type == ast.ASTType.Script:
            yield Finding(shown(statement.file), statement.line, Code.SCRIPT, f"{what}; rules are data")
        else:
            said = f"{shown(statement.file.resolve())}: {what}"
            yield Finding(shown(file.path), _including_line(file.path, statement.file), Code.INCLUDE, said)
    for statement in file.statements:
        for node in walk(statement.node):
            if node.ast_type == ast.ASTType.Function and node.external:
                said = f"{node} runs code; rules are data"
                yield Finding(shown(statement.file), node.location.begin.line, Code.SCRIPT, said)


def _including_line(path: Path, included: Path) -> int:
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = _INCLUDE.match(text)
        if found and Path(found[1]).name == included.name:
            return number
    return 1


def _from_messages(messages: Iterable[str], path: Path, hint: str = "") -> Iterator[Finding]:
    """Findings from clingo's messages: a line with a place and a sentence, and what belongs to it on further lines."""
    for message in messages:
        head, *rest = message.strip().splitlines()
        found = _MESSAGE.match(head)
        if not found:
            yield Finding(shown(path), 1, Code.SYNTAX, f"{head}; {hint}" if hint else head)
            continue
        said = found["text"].removesuffix(":")
        unbound = _UNSAFE.findall(message)
        if unbound:
            said = f"{' and '.join(sorted(unbound))} unbound: no positive literal of the body gives a value"
        elif rest:
            said += f": {rest[0].strip()}"
        yield Finding(shown(Path(found["file"])), int(found["line"]), Code.SYNTAX, f"{said}; {hint}" if hint else said)
