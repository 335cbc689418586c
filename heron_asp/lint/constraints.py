"""Findings about constraints without a name.

What a sketch's programs must satisfy is a term, `constraint(Rule, Id, Kind)`, so that it can be counted, explained and
lifted; `:- body.` in the derivation would make sketches disappear without a trace. It may only narrow down a choice of
its own file: its body reads nothing but what is chosen there, once at least, and what the operator and the target say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clingo import ast

from heron_asp.lint.files import shown
from heron_asp.lint.finding import Code, Finding
from heron_asp.lint.vocabulary import Signature, Vocabulary, derived, read
from heron_asp.rulefile import Statement


def constraint_findings(statements: Sequence[Statement], known: Vocabulary) -> Iterator[Finding]:
    """Constraints in the derivation that do more than narrow down a choice of their file.

    Args:
        statements: those of a file that belong to the derivation.
        known: the vocabulary of the derivation.
    """
    chosen = {
        mention.signature
        for statement in statements
        if statement.node.ast_type == ast.ASTType.Rule and statement.node.head.ast_type == ast.ASTType.Aggregate
        for mention in derived(statement)
    }
    for statement in statements:
        if is_constraint(statement) and not _narrows(statement, chosen, known):
            said = "the constraint has no name; derive constraint(Rule, Id, Kind), which can be explained and lifted"
            yield Finding(shown(statement.file), statement.line, Code.UNNAMED, said)


def is_constraint(statement: Statement) -> bool:
    """Whether it only forbids: `:- body.` or `not head :- body.`."""
    node = statement.node
    if node.ast_type != ast.ASTType.Rule or node.head.ast_type != ast.ASTType.Literal:
        return False
    return bool(node.head.atom.ast_type == ast.ASTType.BooleanConstant or node.head.sign != ast.Sign.NoSign)


def _narrows(statement: Statement, chosen: set[Signature], known: Vocabulary) -> bool:
    used = {mention.signature for mention in read(statement)}
    given = {one for one in used if one in known.documented and known.documented[one].given}
    return bool(used & chosen) and used <= chosen | given
