"""Findings about predicates: undefined, unused, of another arity, or private to another file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from heron_asp.lint.files import RuleFile, shown
from heron_asp.lint.finding import Code, Finding
from heron_asp.lint.vocabulary import Mention, Signature, Vocabulary, derived, entries, read
from heron_asp.resources import suggestion
from heron_asp.rulefile import Statement


def predicate_findings(
    statements: Sequence[Statement], known: Vocabulary, looked_at: Container[Path]
) -> Iterator[Finding]:
    """What is wrong with the predicates of some statements of a file.

    Args:
        statements: those of one stage.
        known: the vocabulary of that stage, these statements included.
        looked_at: files that are looked at; a private predicate is reported where they read it.
    """
    own = {statement.file for statement in statements}
    for statement in statements:
        for mention in derived(statement):
            yield from _derived(mention, known, own, looked_at)
        for mention in read(statement):
            yield from _read(mention, known, own)


def documented_findings(file: RuleFile, known: Vocabulary) -> Iterator[Finding]:
    """Predicates that a file documents, and nothing derives."""
    for signature, entry in entries(file):
        if not entry.given and signature not in known.derived:
            said = f"{_name(signature)} is documented, but no rule derives it"
            yield Finding(shown(file.path), entry.line, Code.UNDEFINED, said)


def _derived(mention: Mention, known: Vocabulary, own: set[Path], looked_at: Container[Path]) -> Iterator[Finding]:
    signature = mention.signature
    first = next(one for one in known.derived[signature] if one.file in own)
    if mention != first:
        return  # once a file
    public = known.alike(signature, public=True)
    if public and signature not in known.documented and signature not in known.declared:
        yield _finding(mention, Code.ARITY, _wrong_arity(signature, public))
    elif signature in known.documented:
        return
    elif signature not in known.read:
        hint = _hint(signature, known.alike(signature), {name for name, _ in known.documented})
        yield _finding(mention, Code.UNUSED, f"{_name(signature)} is derived, but nothing reads it{hint}")
    elif not any(one.file in own for one in known.read[signature]):
        readers = [one.file for one in known.read[signature] if one.file not in looked_at]
        if readers:
            yield _finding(mention, Code.UNDOCUMENTED, _private(signature, f"is read in {readers[0].name}"))


def _read(mention: Mention, known: Vocabulary, own: set[Path]) -> Iterator[Finding]:
    signature = mention.signature
    elsewhere = [one for one in known.derived.get(signature, ()) if one.file not in own]
    if not known.has(signature):
        alike = known.alike(signature)
        if alike:
            yield _finding(mention, Code.ARITY, _wrong_arity(signature, alike))
        else:
            hint = _hint(signature, (), known.names())
            yield _finding(mention, Code.UNDEFINED, f"{_name(signature)} is read, but no rule derives it{hint}")
    elif elsewhere and signature not in known.documented:
        yield _finding(mention, Code.UNDOCUMENTED, _private(signature, f"comes from {elsewhere[0].file.name}"))


def _finding(mention: Mention, code: Code, message: str) -> Finding:
    return Finding(shown(mention.file), mention.line, code, message)


def _name(signature: Signature) -> str:
    return f"{signature[0]}/{signature[1]}"


def _wrong_arity(signature: Signature, right: Sequence[str]) -> str:
    name, arity = signature
    return f"{name} has {arity} argument{'' if arity == 1 else 's'} here; right is {' or '.join(right)}"


def _private(signature: Signature, where: str) -> str:
    return f"{_name(signature)} {where}, but is not public: no comment `%*! {signature[0]}(...)` documents it"


def _hint(signature: Signature, alike: Sequence[str], names: set[str]) -> str:
    """Suggests a predicate of the same name, or one of a name that is near."""
    if alike:
        return f"; did you mean {' or '.join(alike)}?"
    near = suggestion(signature[0], names - {signature[0]})
    return f"; {near}" if near.startswith("did you mean") else ""
