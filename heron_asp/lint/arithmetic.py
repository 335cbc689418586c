"""Findings about products: clingo computes in 32 bits, and wraps without a word.

A product of variables needs a guard in the same body, which divides instead: `X <= bound / Y`. It bounds one factor,
or its absolute value, by a quotient whose divisors are the other factors (`Y + 1` will do for `Y`, and cannot be zero).
Constant factors need no guard, nor do those that the body confines to a short interval of numbers, nor `X * (Y / X)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import clingo
from clingo import ast

from heron_asp.lint.files import shown
from heron_asp.lint.finding import Code, Finding
from heron_asp.rulefile import Statement, walk

_SHORT = 4096  # products of two such numbers and a constant are far from 32 bits
_FLIPPED = {
    ast.ComparisonOperator.GreaterThan: ast.ComparisonOperator.LessThan,
    ast.ComparisonOperator.GreaterEqual: ast.ComparisonOperator.LessEqual,
}
_TIMES, _DIVIDED = ast.BinaryOperator.Multiplication, ast.BinaryOperator.Division
_CONDITIONAL = (ast.ASTType.ConditionalLiteral, ast.ASTType.BodyAggregateElement)


@dataclass(frozen=True)
class _Context:
    """What the literals around a term say of its variables.

    Attributes:
        below: pairs of terms of which the first is no larger than the second.
        equal: pairs of equal terms.
    """

    below: tuple[tuple[ast.AST, ast.AST], ...] = ()
    equal: tuple[tuple[ast.AST, ast.AST], ...] = field(default=())

    def within(self, literals: Iterable[ast.AST]) -> _Context:
        """The context together with the comparisons among some literals."""
        below, equal = list(self.below), list(self.equal)
        for literal in literals:
            if literal.ast_type != ast.ASTType.Literal or literal.sign != ast.Sign.NoSign:
                continue
            if literal.atom.ast_type != ast.ASTType.Comparison:
                continue
            left = literal.atom.term
            for guard in literal.atom.guards:
                pair, operator = (left, guard.term), guard.comparison
                if operator in _FLIPPED:
                    pair, operator = (guard.term, left), _FLIPPED[operator]
                if operator in (ast.ComparisonOperator.LessThan, ast.ComparisonOperator.LessEqual):
                    below.append(pair)
                elif operator == ast.ComparisonOperator.Equal:
                    equal.append(pair)
                left = guard.term
        return _Context(tuple(below), tuple(equal))

    def is_short(self, term: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a term has values from a short interval of numbers only."""
        number = _number(term)
        if number is not None:
            return abs(number) <= _SHORT
        kind = term.ast_type
        if kind == ast.ASTType.Interval:
            return self.is_short(term.left, seen) and self.is_short(term.right, seen)
        if kind == ast.ASTType.UnaryOperation:
            return self.is_short(term.argument, seen)
        if kind == ast.ASTType.BinaryOperation:
            if term.operator_type == ast.BinaryOperator.Modulo:
                return self.is_short(term.right, seen)
            return self.is_short(term.left, seen) and (
                term.operator_type == _DIVIDED or self.is_short(term.right, seen)
            )
        if kind != ast.ASTType.Variable or term.name in seen:
            return False
        seen = seen | {term.name}
        equals = [
            right if str(left) == term.name else left
            for left, right in self.equal
            if term.name in map(str, (left, right))
        ]
        upper = [high for low, high in self.below if str(low) == term.name]
        lower = [low for low, high in self.below if str(high) == term.name]
        return any(self.is_short(one, seen) for one in equals) or (
            any(self.is_short(one, seen) for one in upper) and any(self.is_short(one, seen) for one in lower)
        )


def arithmetic_findings(statement: Statement) -> Iterator[Finding]:
    """Products of a statement that may wrap."""
    literals = getattr(statement.node, "body", ())
    for line, factors in _products(statement.node, _Context().within(literals)):
        first, *others = factors
        product = " * ".join(factors)
        guard = f"{first} <= 2147483647 / {' / '.join(others)}"
        said = f"{product} may exceed 32 bits, and wraps then; a guard such as {guard} is missing"
        yield Finding(shown(statement.file), line, Code.OVERFLOW, said)


def _products(node: ast.AST, context: _Context) -> Iterator[tuple[int, list[str]]]:
    """Unguarded products below a node: the line, and the factors that are neither constant nor short."""
    if node.ast_type in _CONDITIONAL:
        context = context.within(node.condition)
    elif node.ast_type == ast.ASTType.HeadAggregateElement:
        context = context.within(node.condition.condition)
    below = _children(node)
    if node.ast_type == ast.ASTType.BinaryOperation and node.operator_type == ast.BinaryOperator.Power:
        if not (context.is_short(node.left) and context.is_short(node.right)):
            yield node.location.begin.line, [str(node.left)] * 2
    elif _is(node, _TIMES):
        below = _factors(node)
        heavy = [one for one in below if not _is_constant(one) and not context.is_short(one)]
        if len(heavy) > 1 and not _cancels(heavy) and not any(_guards(heavy, *pair) for pair in context.below):
            yield node.location.begin.line, [str(one) for one in heavy]
    for one in below:
        yield from _products(one, context)


def _guards(heavy: Sequence[ast.AST], low: ast.AST, high: ast.AST) -> bool:
    """Whether `low <= high` keeps the product of the factors within what `high` divides."""
    divisors = _names(_divisors(high))
    bounded = _names(one for one in _factors(_magnitude(low)) if not _is_constant(one))
    rest = _names(heavy)
    if not divisors or not bounded or bounded - rest:
        return False
    return not rest - bounded - divisors


def _cancels(heavy: Sequence[ast.AST]) -> bool:
    """Whether it is `X * (Y / X)`, which is no larger than `Y`."""
    if len(heavy) != 2:
        return False
    return any(_names([one]) == _names(_divisors(_magnitude(other))) for one, other in (heavy, heavy[::-1]))


def _divisors(term: ast.AST) -> list[ast.AST]:
    """What a quotient is divided by, constants left out: Y and Z of `X / Y / Z`, and of `X / (Y * Z)`."""
    if not _is(term, _DIVIDED):
        return []
    return [*_divisors(term.left), *(one for one in _factors(term.right) if not _is_constant(one))]


def _factors(term: ast.AST) -> list[ast.AST]:
    if _is(term, _TIMES):
        return [*_factors(term.left), *_factors(term.right)]
    if term.ast_type == ast.ASTType.UnaryOperation and term.operator_type == ast.UnaryOperator.Minus:
        return _factors(term.argument)
    return [term]


def _names(terms: Iterable[ast.AST]) -> Counter[str]:
    """Terms as text: their absolute values, without a number that is added."""
    return Counter(str(_magnitude(_less_constant(_magnitude(one)))) for one in terms)


def _less_constant(term: ast.AST) -> ast.AST:
    if term.ast_type == ast.ASTType.BinaryOperation and term.operator_type == ast.BinaryOperator.Plus:
        number = _number(term.right)
        if number is not None and number >= 0:
            left: ast.AST = term.left
            return left
    return term


def _magnitude(term: ast.AST) -> ast.AST:
    while term.ast_type == ast.ASTType.UnaryOperation and term.operator_type in (
        ast.UnaryOperator.Absolute,
        ast.UnaryOperator.Minus,
    ):
        term = term.argument
    return term


def _number(term: ast.AST) -> int | None:
    if term.ast_type == ast.ASTType.SymbolicTerm and term.symbol.type == clingo.SymbolType.Number:
        return int(term.symbol.number)
    if term.ast_type == ast.ASTType.UnaryOperation and term.operator_type == ast.UnaryOperator.Minus:
        number = _number(term.argument)
        return None if number is None else -number
    return None


def _is_constant(term: ast.AST) -> bool:
    return all(one.ast_type not in (ast.ASTType.Variable, ast.ASTType.Interval) for one in walk(term))


def _is(term: ast.AST, operator: int) -> bool:
    return bool(term.ast_type == ast.ASTType.BinaryOperation and term.operator_type == operator)


def _children(node: ast.AST) -> list[ast.AST]:
    parts = [getattr(node, key) for key in node.child_keys]
    below = [one for part in parts for one in (part if isinstance(part, ast.ASTSequence) else [part])]
    return [one for one in below if isinstance(one, ast.AST)]
