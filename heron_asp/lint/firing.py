"""Findings about rules that never fire: every shipped operator is derived on every shipped target until all rules have.

Each rule gets a twin that derives its number from its body. A constraint fires where its body may hold before anything
is chosen; any other rule, where its body holds in some answer set. A rule that waits for what is not shipped yet says
so: `% silent: reason`.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product as combinations
from typing import TypeAlias

import clingo
from clingo import ast

from heron_asp.analysis import BlockFacts, analyse
from heron_asp.derivation import derive
from heron_asp.errors import HeronError, InternalError
from heron_asp.lint.constraints import is_constraint
from heron_asp.lint.files import CORE, CSP, Files, RuleFile, shown
from heron_asp.lint.finding import Code, Finding
from heron_asp.operators import KINDS, OperatorKind, operator
from heron_asp.resources import targets_folder
from heron_asp.rulefile import DERIVATION, SPACE, Statement, atoms
from heron_asp.target import Family, Target, load_target, target_names
from heron_asp.terms import Term, add_facts, fact

EXTENTS = (48, 21, 1, 8192)  # fits an instruction, has to be padded, is less than an instruction takes, is large
IMAGES = {"n": 2, "d": 5, "h": 7, "w": 8}  # what windows slide over
WINDOWS: tuple[Mapping[str, int], ...] = (  # each with an extent of its number, and the one after it
    {"kd": 3, "kh": 2, "kw": 2, "padding": 1, "dilation": 2, "groups": 3},
    {"kd": 2, "kh": 3, "kw": 4, "padding": 2, "stride": 2, "output_padding": 1},
    {"kd": 3, "kh": 3, "kw": 3, "padding": 1},
    {"kd": 1, "kh": 1, "kw": 1},
)
DTYPES = ("u8s8s32", "s8s8s32", "bf16bf16f32", "f32f32f32")
THREADS = (1, 2)
MOST_DERIVATIONS = 600  # all that fires does after 20
MOST_PROBLEMS = (
    96  # constraint problems, which take some 20 times longer than a derivation; all that fires does after 8
)
_FIRED = "__fired"
_LEFT_OUT = (ast.ASTType.ShowSignature, ast.ASTType.ShowTerm, ast.ASTType.Minimize)

Place: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True)
class _Watched:
    """A rule that has not fired yet.

    Attributes:
        file: the file to look at that says or includes it.
        stage: the derivation, or the constraint problem of a sketch.
        statement: the rule.
    """

    file: RuleFile
    stage: str
    statement: Statement

    @property
    def place(self) -> Place:
        """Where it begins: file, line and column."""
        begin = self.statement.node.location.begin
        return begin.filename, begin.line, begin.column

    @property
    def lines(self) -> range:
        """The lines of its text."""
        return range(self.statement.line, self.statement.node.location.end.line + 1)

    @property
    def comment(self) -> int | None:
        """The line of the comment by which it may stay silent."""
        expected = self.file.expected_silent
        if self.statement.file.resolve() != self.file.path:
            return None
        return next((expected[line] for line in self.lines if line in expected), None)


@dataclass(frozen=True)
class _Case:
    """An operator on a target with a number of threads."""

    block: BlockFacts
    target: Target
    threads: int

    def facts(self) -> list[Term]:
        """What the derivation starts from."""
        return [*self.block.facts(), *self.target.facts(), fact("threads", self.threads)]


def silent_findings(files: Files, explained: Container[tuple[str, int]] = ()) -> Iterator[Finding]:
    """Rules of the given files that never fire, and comments `% silent:` about rules that all do.

    Args:
        files: the files.
        explained: files and lines of other findings; their rules are not watched.
    """
    families = [family for family in files.families if _targets(files, family)]
    checked = [file for file in files.given if families and file.folder in (CORE, CSP, None, *families)]
    waiting = {
        one.place: one
        for file in checked
        for stage in (DERIVATION, SPACE)
        for statement in file.of(stage)
        if statement.node.ast_type == ast.ASTType.Rule and len(statement.node.body)
        for one in [_Watched(file, stage, statement)]
        if not any((shown(statement.file), line) in explained for line in one.lines)
    }
    commented = {(file.path, comment) for file in checked for comment in file.expected_silent.values()}
    unwatched = commented - {(one.file.path, one.comment) for one in waiting.values()}
    try:
        for family in families:
            _fire_derivation(files, family, waiting)
            _fire_space(files, family, waiting)
    except (HeronError, InternalError) as error:
        said = str(error).replace("\n", "; ")
        yield Finding(shown((*files.own, *files.given)[0].path), 1, Code.RUN, f"the rules make no sketch: {said}")
        return
    for one in waiting.values():
        if one.comment is None:
            said = "never fires on a shipped operator and target; if that is meant, say why: `% silent: reason`"
            yield Finding(shown(one.statement.file), one.statement.line, Code.SILENT, said)
    for path, comment in commented - unwatched - {(one.file.path, one.comment) for one in waiting.values()}:
        yield Finding(shown(path), comment, Code.SILENT, "the comment speaks of rules that all fire: take it away")


def _fire_derivation(files: Files, family: str, waiting: dict[Place, _Watched]) -> None:
    """Takes away the rules that fire in the derivation of some case of a family."""
    around = [*(one for one in files.shipped if one.folder in (CORE, family)), *files.own]
    text = _text(statement for file in around for statement in file.of(DERIVATION))
    for number, case in enumerate(_cases(files, family)[:MOST_DERIVATIONS]):
        part = _watched(waiting, DERIVATION, (CORE, family, None))
        if not part or (number and not _may_not_wait(part)):
            return
        _strike(waiting, part, text, case.facts())


def _fire_space(files: Files, family: str, waiting: dict[Place, _Watched]) -> None:
    """Takes away the rules that fire in the constraint problem of some sketch of a family."""
    own = [statement for file in files.own for statement in file.of(SPACE)]
    stage = [statement for file in files.csp for statement in file.of(SPACE)]
    text = _text([*stage, *own])
    taken = {predicate for one in stage for predicate in atoms(one.node)}
    used = {predicate for one in own for predicate in atoms(one.node)} - taken
    for number, case in enumerate(_cases(files, family)[:MOST_PROBLEMS]):
        part = _watched(waiting, SPACE, (CSP, None))
        if not part or (number and not _may_not_wait(part)):
            return
        for sketch in derive(case.block, case.target, case.threads, [one.path for one in files.own]).sketches:
            passed_on = [one for one in sketch.facts() if (one.name, len(one.arguments)) in used]
            _strike(waiting, _watched(waiting, SPACE, (CSP, None)), text, [*sketch.problem(), *passed_on])


def _watched(waiting: Mapping[Place, _Watched], stage: str, folders: Container[str | None]) -> list[_Watched]:
    return [one for one in waiting.values() if one.stage == stage and one.file.folder in folders]


def _may_not_wait(part: Iterable[_Watched]) -> bool:
    """Whether some rule has to fire."""
    return any(one.comment is None for one in part)


def _strike(waiting: dict[Place, _Watched], part: list[_Watched], text: str, facts: Iterable[Term]) -> None:
    """Grounds and solves rules over some facts, and takes away those of the watched ones that fire."""
    twins = [f"{_FIRED}({number}) :- {_body(one.statement)}." for number, one in enumerate(part)]
    messages: list[str] = []
    control = clingo.Control(["0", "--enum-mode=brave"], logger=lambda _code, message: messages.append(message.strip()))
    try:
        control.add("base", [], "\n".join([text, *twins, f"#show {_FIRED}/1."]))
        add_facts(control, facts)
        control.ground([("base", [])])
    except RuntimeError as error:
        raise HeronError(messages[-1] if messages else str(error)) from None
    possible = {one.symbol.arguments[0].number for one in control.symbolic_atoms.by_signature(_FIRED, 1)}
    fired = {number for number in possible if is_constraint(part[number].statement)}
    if fired < possible:
        with control.solve(yield_=True) as handle:
            for model in handle:
                fired |= {atom.arguments[0].number for atom in model.symbols(shown=True)}
    for number in fired:
        del waiting[part[number].place]


def _text(statements: Iterable[Statement]) -> str:
    return "\n".join(str(one.node) for one in statements if one.node.ast_type not in _LEFT_OUT)


def _body(statement: Statement) -> str:
    return "; ".join(map(str, statement.node.body))


def _targets(files: Files, family: str) -> tuple[Target, ...]:
    """The machines of a family: those beside its rules where it is the user's own, those that are shipped otherwise."""
    home = files.homes.get(family)
    shipped = [targets_folder() / f"{name}.toml" for name in target_names()]
    found = map(load_target, shipped if home is None else sorted((home / "targets").glob("*.toml")))
    return tuple(one for one in found if one.family == family)


def _blocks(family: Family) -> tuple[BlockFacts, ...]:
    usual = family.defaults
    own = ["".join(part.dtype for part in (*one.operands, one.result)) for one in family.intrinsics]
    dtypes = tuple(dict.fromkeys([usual.dtype, *own])) if usual.dtype else DTYPES
    epilogues = ("", usual.epilogue, f"bias,{usual.epilogue}") if usual.epilogue else ("",)
    found = []
    for kind in KINDS.values():
        for shape, dtype, layout, epilogue in combinations(_shapes(kind), dtypes, kind.layouts, epilogues):
            with suppress(HeronError):  # an operator may refuse a type, an epilogue, or tensors of that size
                made = operator(kind.name, shape, dtype, layout, epilogue)
                found.append(analyse(made, **family.seen_as(family.intrinsics)))
    return tuple(found)


def _shapes(kind: OperatorKind) -> Iterator[dict[str, int]]:
    """Shapes of all extents; of what windows slide over, those of channels, and with each some windows."""
    slides = any(key in kind.keys for window in WINDOWS for key in window)
    for number, extent in enumerate(
        EXTENTS[: 3 if slides else None]
    ):  # solving a large window exceeds clasp's integers
        for window in (WINDOWS[number - 1], WINDOWS[number]) if slides else ({},):
            given = {**IMAGES, **window} if slides else {}
            yield {key: given.get(key, extent) for key in kind.keys} | {
                k: given[k] for k in kind.defaults if k in given
            }


def _cases(files: Files, family: str) -> list[_Case]:
    """All cases of a family, in an order that soon shows most of what differs."""
    targets = _targets(files, family)
    blocks = _blocks(targets[0].shared) if targets else ()
    found = [_Case(block, target, threads) for block in blocks for target in targets for threads in THREADS]
    random.Random(0).shuffle(found)  # noqa: S311
    return found
