"""The first stage: operator and target facts through the S- and C-rules to sketches, one an answer set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import clingo

from heron_asp.analysis import BlockFacts
from heron_asp.errors import HeronError, InternalError
from heron_asp.limits import SpaceLimits
from heron_asp.resources import rule_files
from heron_asp.sketch import Sketch, sketch_from
from heron_asp.target import Target
from heron_asp.terms import Term, Value, add_facts, fact, text

MOST_SKETCHES = 16


@dataclass(frozen=True)
class Refusal:
    """Why an intrinsic cannot run a block.

    Attributes:
        block: the block.
        intrinsic: the intrinsic's name.
        seating: `straight` or `crossed`.
        reason: e.g. `lacks(flag)` or `dtype(a, f16, u8)`.
        misfits: where no axis can play a role, each axis of the role's kind with what speaks against it.
    """

    block: str
    intrinsic: str
    seating: str
    reason: Value
    misfits: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Derivation:
    """What the rules say of an operator on a target.

    Attributes:
        sketches: those that are kept, at most 16, searched ones first.
        dropped: names of further sketches.
        refusals: why intrinsics cannot run a block.
    """

    sketches: tuple[Sketch, ...]
    dropped: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def derive(
    block: BlockFacts,
    target: Target,
    threads: int,
    extra_rules: Sequence[Path] = (),
    relaxed: Sequence[str] = (),
    padding: bool = True,
    limits: SpaceLimits | None = None,
) -> Derivation:
    """Derives the sketches of an operator on a target.

    Args:
        block: operator facts.
        target: the machine.
        threads: how many threads a kernel may use.
        extra_rules: further rule files.
        relaxed: rules of thumb that are lifted, by their names in the target.
        padding: whether axes may be padded.
        limits: what rules of the user's own may take; those that are shipped are known to be small.

    Raises:
        HeronError: a rule file does not parse.
        InternalError: the rules have no answer set.
    """
    facts = [*block.facts(), *target.facts(), fact("threads", threads)]
    facts += [] if padding else [fact("no_padding")]
    facts = [one for one in facts if not (one.name == "pays" and one.arguments[0] in relaxed)]
    files = [*rule_files(*target.rules), *extra_rules]
    bounds = limits or SpaceLimits()
    if not extra_rules and not target.brings_rules:
        bounds = SpaceLimits(bounds.memory, None)
    sketches = bounds.call("deriving the sketches", lambda: sorted(_told_apart(_sketches(facts, files)), key=_rank))
    if not sketches:
        raise InternalError("the rules have no answer set: an S-rule failed where it should decline")
    misfits: dict[Value, list[tuple[str, Value]]] = {}
    for name, way, role, axis, why in sketches[0].of("misfit"):
        misfits.setdefault((name, way, Term("unplayed", (role,))), []).append((text(axis), why))
    refusals = tuple(
        Refusal(str(name), str(way[0]), str(way[1]), reason, tuple(misfits.get((name, way, reason), ())))
        for name, way, reason in sketches[0].of("refused")
        if isinstance(way, tuple)
    )
    return Derivation(tuple(sketches[:MOST_SKETCHES]), tuple(one.name for one in sketches[MOST_SKETCHES:]), refusals)


def _rank(sketch: Sketch) -> tuple[bool, bool, str]:
    return (sketch.aside is not None, not sketch.tensorized, sketch.name)


def _told_apart(sketches: Sequence[Sketch]) -> list[Sketch]:
    """The sketches, each with a name of its own: those of one name differ in the axes that play the roles."""
    named: dict[str, list[Sketch]] = {}
    for sketch in sketches:
        named.setdefault(sketch.name, []).append(sketch)
    found: list[Sketch] = []
    for alike in named.values():
        maps = [set(sketch.of("maps")) for sketch in alike]
        several = set[tuple[Value, ...]]().union(*maps) - set[tuple[Value, ...]].intersection(*maps)
        found += [replace(sketch, mapped=frozenset(role for _, role, _ in several)) for sketch in alike]
    return found


def _sketches(facts: Sequence[Term], files: Sequence[Path]) -> list[Sketch]:
    """One sketch an answer set."""
    messages: list[str] = []
    control = clingo.Control(["0", "--warn=all"], logger=lambda _code, message: messages.append(message))
    try:
        for path in files:
            control.load(str(path))
        add_facts(control, facts)
        control.ground([("base", [])])
    except RuntimeError as error:
        raise HeronError("the rules cannot be grounded:\n" + ("\n".join(messages) or str(error))) from None
    if messages:
        raise HeronError("the rules give warnings, which are errors here:\n" + "\n".join(messages))
    with control.solve(yield_=True) as handle:
        return [sketch_from(model.symbols(atoms=True)) for model in handle]
