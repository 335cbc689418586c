"""All findings about some rule files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_asp.errors import HeronError
from heron_asp.lint.arithmetic import arithmetic_findings
from heron_asp.lint.constraints import constraint_findings
from heron_asp.lint.files import CSP, Files, RuleFile, grounding_findings, read_files, shown
from heron_asp.lint.finding import Code, Finding
from heron_asp.lint.predicates import documented_findings, predicate_findings
from heron_asp.lint.vocabulary import Vocabulary, vocabulary
from heron_asp.resources import rules_folder
from heron_asp.rulefile import DERIVATION, SPACE

_NOT_RUN = (Code.SYNTAX, Code.SCRIPT, Code.INCLUDE, Code.SPACE)


@dataclass(frozen=True)
class Report:
    """What lint found.

    Attributes:
        findings: by file and line.
        files: how many files were looked at.
        rules: how many rules they have.
    """

    findings: tuple[Finding, ...]
    files: int
    rules: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `heron-asp lint`."""
        rows = [
            {"file": one.file, "line": one.line, "code": str(one.code), "message": one.message} for one in self.findings
        ]
        return {"findings": rows, "files": self.files, "rules": self.rules}


def lint(paths: Sequence[Path] = (), fire: bool = True) -> Report:
    """Looks at rule files.

    Args:
        paths: files and folders; all shipped rules if there are none. Files of the user's own are seen together, and
            together with what is shipped.
        fire: also derive the sketches of shipped operators on shipped targets, to find rules that never fire.

    Raises:
        HeronError: a folder holds no rule files; or a shipped file that is not among those to look at does not parse.
    """
    files, found = read_files(paths or [rules_folder()])
    looked_at = {statement.file for file in files.given for statement in file.statements}
    folders = {file.folder for file in files.given}
    vocabularies = {folder: _derivation_vocabulary(folder, files) for folder in folders}
    for file in files.given:
        if not any(one.code in (Code.SCRIPT, Code.INCLUDE) for one in found):
            found += grounding_findings(file)
        found += _derivation(file, vocabularies[file.folder], looked_at)
        found += _space(file, files, looked_at)
        for statement in file.statements:
            found += arithmetic_findings(statement)
    if fire and not any(one.code in _NOT_RUN for one in found):
        from heron_asp.lint.firing import silent_findings

        silent = silent_findings(files, {(one.file, one.line) for one in found})
        found += [one for one in silent if not (found and one.code is Code.RUN)]
    return Report(tuple(sorted(set(found))), len(files.given), sum(len(one.rules) for one in files.given))


def _derivation(file: RuleFile, known: Vocabulary, looked_at: set[Path]) -> Iterator[Finding]:
    statements = file.of(DERIVATION)
    if file.folder == CSP:
        return
    yield from predicate_findings(statements, known, looked_at)
    yield from constraint_findings(statements, known)
    yield from documented_findings(file, known)


def _derivation_vocabulary(folder: str | None, files: Files) -> Vocabulary:
    around = files.around(folder)
    known = vocabulary(around, lambda file: file.of(DERIVATION))
    later = vocabulary(around, lambda file: file.of(SPACE))
    for signature, mentions in later.read.items():
        known.read.setdefault(signature, []).extend(mentions)
    return known


def _space(file: RuleFile, files: Files, looked_at: set[Path]) -> Iterator[Finding]:
    statements = file.of(SPACE)
    if not statements:
        return
    if file.folder == CSP:
        yield from predicate_findings(statements, vocabulary(files.csp, lambda one: one.of(SPACE)), looked_at)
        return
    yield from _allowed(file)
    around = {one.path: one for one in (*files.around(file.folder), *files.csp)}
    yield from predicate_findings(statements, vocabulary(around.values(), lambda one: one.statements), looked_at)


def _allowed(file: RuleFile) -> Iterator[Finding]:
    """What `#program space.` does not allow."""
    from heron_asp.space import own_rules

    try:
        own_rules([file.path])
    except HeronError as error:
        place, _, said = error.message.partition(": ")
        line = place.rpartition(":")[2]
        yield Finding(shown(file.path), int(line) if line.isdigit() else 1, Code.SPACE, f"{said}; {error.hint}")
