"""One answer set of the derivation, typed: the schedule's steps, the knobs and the constraints of a sketch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heron_asp.errors import InternalError
from heron_asp.terms import Term, Value, fact, text


@dataclass(frozen=True)
class Level:
    """A row of the loop nest."""

    number: int
    name: str
    kind: str


@dataclass(frozen=True)
class Step:
    """A schedule primitive, and when it is replayed.

    Attributes:
        order: lower first.
        primitive: TVM's primitive with its arguments.
        unless: it is left out where a knob has one of these values.
        when: it is taken only where each of these knobs has one of its values.
    """

    order: Value
    primitive: Term
    unless: tuple[tuple[Value, Value], ...] = ()
    when: tuple[tuple[Value, Value], ...] = ()

    def taken(self, values: Mapping[Value, Value]) -> bool:
        """Whether an assignment replays the step."""
        if any(values[knob] == value for knob, value in self.unless):
            return False
        wanted: dict[Value, set[Value]] = {}
        for knob, value in self.when:
            wanted.setdefault(knob, set()).add(value)
        return all(values[knob] in allowed for knob, allowed in wanted.items())


@dataclass(frozen=True)
class Constraint:
    """A named constraint with its origin.

    Attributes:
        rule: `c1` .. `c6`. id: its name within the rule. kind: `product(T)`, `sum(T, K)`, `select(T, Knob)`,
        `at_most(M)`, `equal(A, B)`, `among(V, X)`, `balanced(V, W, P)`. members: (coefficient, variable) of products
        and sums. cases: (value, variable) of selections. only_if: (knob, value) under which it holds; None if always.
        steps: schedule primitives that give rise to it. thumb: name of the rule of thumb, None for a must.
    """

    rule: str
    id: Value
    kind: Term
    members: tuple[tuple[int, Value], ...] = ()
    cases: tuple[tuple[Value, Value], ...] = ()
    only_if: tuple[Value, Value] | None = None
    steps: tuple[Term, ...] = ()
    thumb: str | None = None

    @property
    def force(self) -> str:
        """`must`: the machine or the compiler refuses, or the result is wrong; `pays`: never worth it otherwise."""
        return "must" if self.thumb is None else "pays"

    @property
    def name(self) -> str:
        """Rule and id in one word, unique in a sketch."""
        return f"{self.rule}:{text(self.id)}"

    @property
    def variables(self) -> tuple[Value, ...]:
        """All variables that it mentions, the defined one first."""
        named: list[Value] = []
        if self.kind.name in ("product", "sum", "select", "among", "balanced"):
            named.append(self.kind.arguments[0])
        if self.kind.name == "select":
            named.append(self.kind.arguments[1])
        if self.kind.name == "equal":
            named += self.kind.arguments
        named += [variable for _, variable in self.members] + [variable for _, variable in self.cases]
        if self.only_if:
            named.append(self.only_if[0])
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Sketch:
    """What the rules derived for one choice of intrinsic, mapping and variant.

    Attributes:
        number: its place among the sketches.
        atoms: arguments of every atom, by predicate.
    """

    number: int
    atoms: Mapping[str, tuple[tuple[Value, ...], ...]]

    def of(self, predicate: str) -> tuple[tuple[Value, ...], ...]:
        """Arguments of all atoms of a predicate, sorted as clingo sorts them."""
        return self.atoms.get(predicate, ())

    @property
    def intrinsics(self) -> tuple[str, ...]:
        """Names of the intrinsics that the sketch runs on."""
        return tuple(str(intrinsic) for _, intrinsic in self.of("tensorize"))

    @property
    def tensorized(self) -> bool:
        """Whether every block runs on an intrinsic."""
        return not self.of("plain")

    @property
    def name(self) -> str:
        """The choices that make the sketch, e.g. `dot sliced`."""
        parts = [*self.intrinsics, *(["plain vector code"] if not self.tensorized else [])]
        for _, way in self.of("chosen"):
            if isinstance(way, tuple) and way[1] != "straight":
                parts.append(text(way[1]))
        parts += [text(variant) for _, variant in self.of("variant")]
        return " ".join(parts)

    @property
    def aside(self) -> str | None:
        """The rule of thumb by which the sketch is not searched; None if it is."""
        reasons = [text(reason) for _, reason in self.of("aside")]
        return reasons[0] if reasons else None

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The loop nest, outermost level first."""
        rows = [Level(_int(number), text(name), text(kind)) for _, number, name, kind in self.of("level")]
        return tuple(sorted(rows, key=lambda level: level.number))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The schedule, in order."""
        unless, when = _grouped(self.of("unless")), _grouped(self.of("when"))
        steps = []
        for order, primitive in self.of("step"):
            if not isinstance(primitive, Term):
                raise InternalError(f"step({text(order)}, {text(primitive)}): a primitive needs arguments")
            steps.append(Step(order, primitive, unless.get(primitive, ()), when.get(primitive, ())))
        return tuple(steps)

    @cached_property
    def knobs(self) -> tuple[Value, ...]:
        """Variables that are chosen."""
        return tuple(knob for (knob,) in self.of("knob"))

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """All named constraints, by rule."""
        members: dict[tuple[Value, Value], list[tuple[int, Value]]] = {}
        for rule, name, variable in self.of("factor"):
            members.setdefault((rule, name), []).append((1, variable))
        for rule, name, coefficient, variable in self.of("part"):
            members.setdefault((rule, name), []).append((_int(coefficient), variable))
        cases: dict[tuple[Value, Value], list[tuple[Value, Value]]] = {}
        for rule, name, value, variable in self.of("case"):
            cases.setdefault((rule, name), []).append((value, variable))
        only_if = {(rule, name): (knob, value) for rule, name, knob, value in self.of("only_if")}
        steps: dict[tuple[Value, Value], list[Term]] = {}
        for rule, name, primitive in self.of("because"):
            if isinstance(primitive, Term):
                steps.setdefault((rule, name), []).append(primitive)
        thumbs = {(rule, name): text(thumb) for rule, name, thumb in self.of("thumb")}
        return tuple(
            Constraint(
                rule=text(rule),
                id=name,
                kind=_kind(kind),
                members=tuple(members.get((rule, name), ())),
                cases=tuple(cases.get((rule, name), ())),
                only_if=only_if.get((rule, name)),
                steps=tuple(steps.get((rule, name), ())),
                thumb=thumbs.get((rule, name)),
            )
            for rule, name, kind in self.of("constraint")
        )

    def problem(self, relaxed: Iterable[str] = ()) -> Iterator[Term]:
        """The sketch as facts of `rules/csp/csp.lp`.

        Args:
            relaxed: names of constraints that only forbid (`Constraint.name`) and are left out.
        """
        dropped = set(relaxed)
        for predicate in ("knob", "candidate"):
            for arguments in self.of(predicate):
                yield fact(predicate, *arguments)
        kept = [constraint for constraint in self.constraints if constraint.name not in dropped]
        for constraint in kept:
            name: Value = (constraint.rule, constraint.id)
            yield fact("constraint", name, constraint.kind)
            for coefficient, variable in constraint.members:
                if constraint.kind.name == "product":
                    yield fact("factor", name, variable)
                else:
                    yield fact("part", name, coefficient, variable)
            for value, variable in constraint.cases:
                yield fact("case", name, value, variable)
            if constraint.only_if:
                yield fact("only_if", name, *constraint.only_if)


def _grouped(atoms: Iterable[tuple[Value, ...]]) -> dict[Value, tuple[tuple[Value, Value], ...]]:
    grouped: dict[Value, list[tuple[Value, Value]]] = {}
    for primitive, knob, value in atoms:
        grouped.setdefault(primitive, []).append((knob, value))
    return {primitive: tuple(pairs) for primitive, pairs in grouped.items()}


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise InternalError(f"{text(value)} should be an integer")
    return value


def _kind(value: Value) -> Term:
    if not isinstance(value, Term):
        raise InternalError(f"{text(value)} is no kind of constraint")
    return value


def sketch_from(number: int, atoms: Iterable[Any]) -> Sketch:
    """Collects the atoms of an answer set (clingo symbols)."""
    from heron_asp.terms import from_symbol

    grouped: dict[str, list[tuple[Value, ...]]] = {}
    for atom in sorted(atoms):
        grouped.setdefault(atom.name, []).append(tuple(from_symbol(argument) for argument in atom.arguments))
    return Sketch(number, {name: tuple(arguments) for name, arguments in grouped.items()})
