"""Between Python values and clingo symbols.

A value is an int, a string or a `Term`; a Python tuple is a clingo tuple. Strings that clingo would read as a constant
(`gemm`, `avx2`) become constants, all others become quoted strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, Union

import clingo

from heron_asp.errors import HeronError, InternalError

Value: TypeAlias = Union[int, str, "Term", tuple["Value", ...]]
_CONSTANT = re.compile(r"_*[a-z][A-Za-z0-9_']*")


@dataclass(frozen=True, slots=True)
class Term:
    """A term or an atom: a name with arguments, e.g. `tile(c, m, register)`."""

    name: str
    arguments: tuple[Value, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.arguments)))

    def __hash__(self) -> int:
        """Known from the start: terms are the keys of everything."""
        return self._hash

    def __reduce__(self) -> tuple[type[Term], tuple[str, tuple[Value, ...]]]:
        """A hash is only right in the process that made it."""
        return Term, (self.name, self.arguments)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(text, self.arguments))})"


@lru_cache(maxsize=2**16)
def text(value: Value) -> str:
    """A value as a rule file writes it, with a space after commas."""
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def plain(value: Value) -> int | str:
    """A value as JSON holds it: a number, or its text."""
    return value if isinstance(value, int) else text(value)


def fact(name: str, *arguments: Value) -> Term:
    """An atom."""
    return Term(name, arguments)


def to_symbol(value: Value) -> clingo.Symbol:
    """A value as a clingo symbol."""
    if isinstance(value, bool):
        raise InternalError(f"a truth value ({value}) is no term")
    if isinstance(value, int):
        if not -(2**31) < value < 2**31:
            raise InternalError(f"{value} does not fit clingo's 32-bit integers")
        return clingo.Number(value)
    if isinstance(value, str):
        return clingo.Function(value) if _CONSTANT.fullmatch(value) else clingo.String(value)
    if isinstance(value, tuple):
        return clingo.Tuple_([to_symbol(argument) for argument in value])
    return clingo.Function(value.name, [to_symbol(argument) for argument in value.arguments])


def from_symbol(symbol: clingo.Symbol) -> Value:
    """A clingo symbol as a value."""
    if symbol.type is clingo.SymbolType.Number:
        return symbol.number
    if symbol.type is clingo.SymbolType.String:
        return symbol.string
    if symbol.type is clingo.SymbolType.Function:
        arguments = tuple(from_symbol(argument) for argument in symbol.arguments)
        if not symbol.name:
            return arguments
        return Term(symbol.name, arguments) if arguments else symbol.name
    raise InternalError(f"{symbol} (#inf or #sup) is no value")


def parse(source: str) -> Value:
    """Reads a value such as `tile(c, m, register)` or `16`.

    Raises:
        HeronError: the text is not a ground term.
    """
    too_large = next((number for number in re.findall(r"\d+", source) if int(number) >= 2**31), None)
    if too_large:
        raise HeronError(f"'{source}': {too_large} does not fit clingo's 32-bit integers")
    try:
        return from_symbol(clingo.parse_term(source, logger=lambda _code, _message: None))
    except RuntimeError:
        raise HeronError(
            f"'{source}' is not a term", "write it as `audit` prints it, e.g. tile(c,m,register)"
        ) from None


def add_facts(control: clingo.Control, facts: Iterable[Term]) -> None:
    """Adds facts to a control as atoms: never as text, which would land in whatever program part came last."""
    with control.backend() as backend:
        for atom in facts:
            backend.add_rule([backend.add_atom(to_symbol(atom))])
