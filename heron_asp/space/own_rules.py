"""Constraints of a user's own on the programs of a sketch.

They stand in a rule file after `#program space.` and may be any rules without recursion over `value(Variable, Value)`
and what the sketch derived. Each constraint gets the name of its file and line, so that it can be counted, lifted and
explained like those of the C-rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import clingo
from clingo import ast

from heron_asp.errors import HeronError
from heron_asp.resources import rule_files, rules_folder
from heron_asp.rulefile import SPACE, Statement, atoms, read_statements
from heron_asp.sketch import Constraint
from heron_asp.terms import Term, add_facts, fact

_PASSED_ON = (ast.ASTType.Definition, ast.ASTType.Defined, ast.ASTType.Comment)
_READ_ONLY = ("value", "excused", "enforced", "violated")


@dataclass(frozen=True)
class OwnRules:
    """Definitions and named constraints.

    Attributes:
        definitions: statements to add as they are.
        constraints: by name, e.g. `own.lp:3`.
    """

    definitions: tuple[Statement, ...] = ()
    constraints: tuple[Statement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.constraints)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return tuple(one.place for one in self.constraints)

    def as_constraints(self) -> list[Constraint]:
        """The constraints as others see them: their rule is the file, their text the source."""
        return [
            Constraint(rule=one.file.name, id=one.line, kind=Term("own", (str(one.node),))) for one in self.constraints
        ]

    def add_to(self, control: clingo.Control, sketch: Iterable[Term]) -> None:
        """Adds the rules to a control, and the sketch's atoms that they may read."""
        with ast.ProgramBuilder(control) as builder:
            for one in self.definitions:
                builder.add(one.node)
            for one in self.constraints:
                location = one.node.location
                name = ast.SymbolicTerm(location, clingo.String(one.place))
                violated = ast.SymbolicAtom(ast.Function(location, "violated", [name], False))
                builder.add(ast.Rule(location, ast.Literal(location, ast.Sign.NoSign, violated), one.node.body))
        read = {predicate for one in (*self.definitions, *self.constraints) for predicate in atoms(one.node)} - _stage()
        add_facts(control, (atom for atom in sketch if (atom.name, len(atom.arguments)) in read))


def own_rules(files: Sequence[Path]) -> OwnRules:
    """What some rule files say of the programs of a sketch.

    Raises:
        HeronError: a statement is neither a definition nor a constraint, or defines what is not the user's.
    """
    definitions: list[Statement] = []
    constraints: list[Statement] = []
    stage = _stage()
    for path in files:
        for one in read_statements(path):
            if one.part != SPACE:
                continue
            if one.node.ast_type == ast.ASTType.Rule and _is_constraint(one.node.head):
                constraints.append(one)
            else:
                _require_definition(one, stage)
                definitions.append(one)
    return OwnRules(tuple(definitions), tuple(constraints))


def enforced(names: Iterable[str]) -> list[Term]:
    """Facts that put constraints into force."""
    return [fact("enforced", f"{name}") for name in names]


def _is_constraint(head: ast.AST) -> bool:
    return bool(head.ast_type == ast.ASTType.Literal and head.atom.ast_type == ast.ASTType.BooleanConstant)


def _require_definition(one: Statement, stage: frozenset[tuple[str, int]]) -> None:
    if one.node.ast_type in _PASSED_ON:
        return
    if one.node.ast_type != ast.ASTType.Rule or one.node.head.ast_type != ast.ASTType.Literal:
        raise HeronError(
            f"{one.place}: {one.node}",
            f"after #program {SPACE}. there are definitions (a :- b.) and constraints (:- b.) only",
        )
    for name, arity in atoms(one.node.head):
        if (name, arity) in stage or name in _READ_ONLY:
            raise HeronError(
                f"{one.place}: {name}/{arity} is derived by rules/csp and cannot be defined here",
                "read it only, or choose another name",
            )


def _stage() -> frozenset[tuple[str, int]]:
    """The predicates of the stage itself."""
    files = rule_files(rules_folder() / "csp")
    return frozenset(found for path in files for one in read_statements(path) for found in atoms(one.node))
