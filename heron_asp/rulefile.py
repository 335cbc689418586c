"""Rule files as statements: they are looked at before any of them is run.

A file speaks of two stages. What stands before any `#program` takes part in the derivation of sketches; what follows
`#program space.` constrains the programs of each sketch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clingo import ast

from heron_asp.errors import HeronError

DERIVATION = "base"
SPACE = "space"


@dataclass(frozen=True)
class Statement:
    """A statement of a rule file.

    Attributes:
        part: the program part that it belongs to, `base` or `space`.
        node: clingo's syntax tree.
        file: the file that it stands in; another one than was asked for if it was included.
        line: its first line.
    """

    part: str
    node: ast.AST
    file: Path
    line: int

    @property
    def place(self) -> str:
        """Where it stands, e.g. `own.lp:3`."""
        return f"{self.file.name}:{self.line}"


def read_statements(path: Path) -> list[Statement]:
    """All statements of a file and of what it includes, `#program` lines left out.

    Raises:
        HeronError: the file does not parse, or has a program part of another name.
    """
    found: list[Statement] = []
    messages: list[str] = []
    wrong: list[HeronError] = []  # clingo mangles what its callbacks raise
    part = DERIVATION
    _require_text(path)

    def take(node: ast.AST) -> None:
        nonlocal part
        begin = node.location.begin
        if node.ast_type == ast.ASTType.Program:
            part = node.name
            if part not in (DERIVATION, SPACE) or node.parameters:
                said = f"{begin.filename}:{begin.line}: {node}: no such part"
                wrong.append(HeronError(said, f"what speaks of programs follows #program {SPACE}."))
            return
        found.append(Statement(part, node, Path(begin.filename), begin.line))

    _require_small_numbers(path)
    try:
        ast.parse_files([str(path)], take, logger=lambda _code, message: messages.append(message.strip()))
    except RuntimeError as failure:
        raise HeronError("the rules do not parse:\n" + ("\n".join(messages) or str(failure))) from None
    for error in wrong:
        raise error
    return found


def _require_small_numbers(path: Path) -> None:
    """Clingo would take 4294967297 for 1."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        bare = re.sub(r'"(\\.|[^"\\])*"', "", line).partition("%")[0]
        for digits in re.findall(r"(?<!\w)\d{10,}", bare):
            if int(digits) >= 2**31:
                raise HeronError(f"{path}:{number}: {digits} does not fit clingo's 32-bit integers")


def _require_text(path: Path) -> None:
    """Clingo ends the process where its messages quote what is not UTF-8."""
    try:
        if path.is_file():
            path.read_bytes().decode()
    except UnicodeDecodeError:
        raise HeronError(f"{path}: not text in UTF-8") from None


def require_safe(path: Path, allowed: Path, trusted: bool = False) -> None:
    """Refuses a file that runs code, or includes what lies elsewhere.

    Args:
        path: the file.
        allowed: the folder of rules that it may include from, besides its own.
        trusted: the user answers for the file.

    Raises:
        HeronError: it holds a `#script`, or includes a file from outside; or it does not parse.
    """
    if trusted:
        read_statements(path)
        return
    for statement, what in offences(read_statements(path), path, allowed):
        raise HeronError(f"{statement.file}:{statement.line}: {what}", "--trust-rules allows it")


def offences(statements: Iterable[Statement], path: Path, allowed: Path) -> Iterator[tuple[Statement, str]]:
    """Statements that run code, or come from a file that may not be included, each with what is wrong.

    Args:
        statements: all of a file.
        path: the file.
        allowed: the folder of rules that it may include from, besides its own.
    """
    folders = [allowed.resolve(), path.resolve().parent]
    outside: set[Path] = set()
    for statement in statements:
        if statement.node.ast_type == ast.ASTType.Script:
            yield statement, "#script runs code"
        file = statement.file.resolve()
        if file not in outside and not any(file.is_relative_to(folder) for folder in folders):
            outside.add(file)
            where = " and ".join(map(str, dict.fromkeys(folders)))
            yield statement, f"{path.name} includes this file, which lies outside of {where}"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node of the syntax tree and all nodes below it, in order of their text."""
    yield node
    for key in node.child_keys:
        part = getattr(node, key)
        below: Sequence[ast.AST] = part if isinstance(part, ast.ASTSequence) else [part]
        for one in below:
            if isinstance(one, ast.AST):
                yield from walk(one)


def atoms(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and arity of every atom at or below a node."""
    for one in functions(node):
        yield one.name, len(one.arguments)


def functions(node: ast.AST) -> Iterator[ast.AST]:
    """The name and arguments of every atom at or below a node; an atom with a pool is several."""
    for one in walk(node):
        if one.ast_type == ast.ASTType.SymbolicAtom:
            symbol = one.symbol
            while symbol.ast_type == ast.ASTType.UnaryOperation:  # classical negation
                symbol = symbol.argument
            yield from symbol.arguments if symbol.ast_type == ast.ASTType.Pool else [symbol]
