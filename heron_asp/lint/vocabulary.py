"""Predicates: who derives them, who reads them, and what the vocabulary says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from clingo import ast

from heron_asp.lint.files import RuleFile
from heron_asp.rulefile import Statement, functions

Signature: TypeAlias = tuple[str, int]
_DOCUMENTED = re.compile(r"%\*! (\w+)(?:\(([^)]*)\))?")
_SECTION = re.compile(r"^%# (.+)$")


@dataclass(frozen=True)
class Mention:
    """An atom in a rule file.

    Attributes:
        signature: its name and number of arguments.
        file: the file.
        line: its line.
    """

    signature: Signature
    file: Path
    line: int


@dataclass(frozen=True)
class Entry:
    """A predicate that a `%*! name(Arguments)` comment documents.

    Attributes:
        text: e.g. `tile(Block, Axis, Level)`.
        given: whether facts give it; otherwise rules derive it, and its section's title says so.
        file: the file.
        line: its line.
    """

    text: str
    given: bool
    file: Path
    line: int


@dataclass
class Vocabulary:
    """All predicates of a derivation, or of the constraint problem of a sketch.

    Attributes:
        derived: where each predicate is derived.
        read: where each predicate is read.
        declared: predicates that may be missing (`#defined`).
        documented: predicates that are public: the product, other files and the user may rely on them.
    """

    derived: dict[Signature, list[Mention]] = field(default_factory=dict)
    read: dict[Signature, list[Mention]] = field(default_factory=dict)
    declared: set[Signature] = field(default_factory=set)
    documented: dict[Signature, Entry] = field(default_factory=dict)

    def add(self, statements: Iterable[Statement]) -> None:
        """Takes up what some statements derive, read and declare."""
        for statement in statements:
            for mention in derived(statement):
                self.derived.setdefault(mention.signature, []).append(mention)
            for mention in read(statement):
                self.read.setdefault(mention.signature, []).append(mention)
            if statement.node.ast_type == ast.ASTType.Defined:
                self.declared.add((statement.node.name, statement.node.arity))

    def document(self, files: Iterable[RuleFile]) -> None:
        """Takes up what some files document."""
        for file in files:
            self.documented.update(entries(file))

    def has(self, signature: Signature) -> bool:
        """Whether something may derive it, or facts give it."""
        entry = self.documented.get(signature)
        return signature in self.derived or signature in self.declared or (entry is not None and entry.given)

    def names(self) -> set[str]:
        """Names of all predicates that there are."""
        return {name for name, _ in (*self.derived, *self.declared, *self.documented)}

    def alike(self, signature: Signature, public: bool = False) -> list[str]:
        """Predicates of the same name with another number of arguments, as they should be written."""
        known = {*self.documented, *self.declared, *(() if public else self.derived)}
        others = sorted(one for one in known if one[0] == signature[0] and one != signature)
        return [self.documented[one].text if one in self.documented else f"{one[0]}/{one[1]}" for one in others]


def derived(statement: Statement) -> Iterator[Mention]:
    """Atoms that a statement derives: of heads, without their conditions."""
    node = statement.node
    if node.ast_type == ast.ASTType.External:
        yield from mentions(node.atom, statement.file)
    if node.ast_type != ast.ASTType.Rule:
        return
    if node.head.ast_type == ast.ASTType.Literal:
        yield from mentions(node.head, statement.file)
    for element in getattr(node.head, "elements", ()):
        conditional = element.condition if element.ast_type == ast.ASTType.HeadAggregateElement else element
        if conditional.ast_type == ast.ASTType.ConditionalLiteral:
            yield from mentions(conditional.literal, statement.file)


def read(statement: Statement) -> Iterator[Mention]:
    """Atoms that a statement reads: of bodies, conditions and `#show`."""
    node = statement.node
    if node.ast_type == ast.ASTType.ShowSignature:
        yield Mention((node.name, node.arity), statement.file, statement.line)
    for part in getattr(node, "body", ()):
        yield from mentions(part, statement.file)
    for element in getattr(getattr(node, "head", None), "elements", ()):
        conditional = element.condition if element.ast_type == ast.ASTType.HeadAggregateElement else element
        for part in getattr(conditional, "condition", ()):
            yield from mentions(part, statement.file)


def mentions(node: ast.AST, file: Path) -> Iterator[Mention]:
    """All atoms at or below a node; one with a pool is several."""
    for one in functions(node):
        yield Mention((one.name, len(one.arguments)), file, one.location.begin.line)


def entries(file: RuleFile) -> Iterator[tuple[Signature, Entry]]:
    """What a file documents. Rules derive it unless it stands in a section, and `derive` not in the section's title."""
    given = False
    for number, text in enumerate(file.path.read_text(errors="replace").splitlines(), 1):
        section = _SECTION.match(text)
        if section:
            given = "derive" not in section[1]
        for name, arguments in _DOCUMENTED.findall(text):
            arity = len(arguments.split(",")) if arguments else 0
            yield (name, arity), Entry(f"{name}({arguments})" if arguments else name, given, file.path, number)


Select: TypeAlias = Callable[[RuleFile], tuple[Statement, ...]]


def vocabulary(files: Iterable[RuleFile], select: Select) -> Vocabulary:
    """The vocabulary of some files: of the statements that are selected, and of all comments."""
    found = Vocabulary()
    for file in files:
        found.add(select(file))
        found.document([file])
    return found
