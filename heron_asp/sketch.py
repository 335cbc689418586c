"""One answer set of the derivation, typed: the schedule's steps, the knobs and the constraints of a sketch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heron_asp.errors import HeronError, InternalError
from heron_asp.resources import suggestion
from heron_asp.terms import Term, Value, fact, from_symbol, text

DEFINES = ("product", "sum", "select")
FORBIDS = ("at_most", "among", "equal", "balanced")


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
        `at_most(M)`, `equal(A, B)`, `among(V, X, ...)`, `balanced(V, W, P)`. members: (coefficient, variable) of
        products and sums. cases: (value, variable) of selections. only_if: (knob, value) under which it holds; None if
        always. steps: schedule primitives that give rise to it. thumb: name of the rule of thumb, None for a must.
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
        """`must` or `pays`.

        A must defines a variable, keeps one form of each program, or forbids what cannot run or is wrong. What a rule
        of thumb forbids would run, but is never worth it.
        """
        return "must" if self.thumb is None else "pays"

    @property
    def name(self) -> str:
        """Rule and id in one word, unique in a sketch."""
        return f"{self.rule}:{text(self.id)}"

    @property
    def defines(self) -> Value | None:
        """The variable that it gives a value; None if it only forbids."""
        return self.kind.arguments[0] if self.kind.name in DEFINES else None

    @property
    def kinds(self) -> tuple[Term, ...]:
        """Its kind as rules write it: an `among` has an atom for each value."""
        if self.kind.name != "among":
            return (self.kind,)
        variable, *values = self.kind.arguments
        return tuple(Term("among", (variable, value)) for value in values)

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
        atoms: arguments of every atom, by predicate.
        mapped: roles of the intrinsic whose axes tell the sketch from others of the operator.
    """

    atoms: Mapping[str, tuple[tuple[Value, ...], ...]]
    mapped: frozenset[Value] = frozenset()

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
        """The choices that make the sketch, e.g. `dot a+128 sliced`; where axes play a role in turn, also `r=ci`."""
        parts = [*self.intrinsics, *(["plain vector code"] if not self.tensorized else [])]
        for _, way in self.of("chosen"):
            if isinstance(way, tuple) and way[1] != "straight":
                parts.append(text(way[1]))
        parts += [f"{text(tensor)}{offset:+}" for _, tensor, offset in self.of("shifts")]
        parts += [text(variant) for _, variant in self.of("variant")]
        parts += [f"{text(role)}={text(axis)}" for _, role, axis in self.of("maps") if role in self.mapped]
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
        """All named constraints, by rule.

        Raises:
            HeronError: a constraint is malformed: no such kind, an undefined variable, no step, or parts of none.
        """
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
        kinds = self._kinds()
        for said in (members, cases, only_if, steps, thumbs):
            for rule, name in said:
                if (rule, name) not in kinds:
                    known = [f"{text(one)}:{text(other)}" for one, other in kinds]
                    raise HeronError(
                        f"there is no constraint {text(rule)}:{text(name)}, but parts of it",
                        suggestion(f"{text(rule)}:{text(name)}", known),
                    )
        found = tuple(
            Constraint(
                rule=text(rule),
                id=name,
                kind=kind,
                members=tuple(members.get((rule, name), ())),
                cases=tuple(cases.get((rule, name), ())),
                only_if=only_if.get((rule, name)),
                steps=tuple(steps.get((rule, name), ())),
                thumb=thumbs.get((rule, name)),
            )
            for (rule, name), kind in kinds.items()
        )
        known_variables = {*self.knobs, *(one.defines for one in found if one.defines is not None)}
        for one in found:
            _check(one, known_variables)
        return found

    def _kinds(self) -> dict[tuple[Value, Value], Term]:
        """What each constraint is; an `among` lists its values in several atoms."""
        kinds: dict[tuple[Value, Value], Term] = {}
        for rule, name, kind in self.of("constraint"):
            if not isinstance(kind, Term) or kind.name not in (*DEFINES, *FORBIDS):
                said = kind.name if isinstance(kind, Term) else text(kind)
                raise HeronError(
                    f"constraint {text(rule)}:{text(name)}: there is no kind '{said}'",
                    suggestion(said, (*DEFINES, *FORBIDS)),
                )
            before = kinds.setdefault((rule, name), kind)
            if before == kind:
                continue
            if (before.name, before.arguments[0]) != ("among", kind.arguments[0]) or kind.name != "among":
                raise HeronError(f"constraint {text(rule)}:{text(name)} is two: {before} and {kind}")
            kinds[rule, name] = Term("among", (*before.arguments, kind.arguments[1]))
        return kinds

    def facts(self) -> Iterator[Term]:
        """All that the rules derived, as facts."""
        for predicate, rows in self.atoms.items():
            for arguments in rows:
                yield fact(predicate, *arguments)

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
            for kind in constraint.kinds:
                yield fact("constraint", name, kind)
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


def _check(constraint: Constraint, known: Collection[Value]) -> None:
    for variable in constraint.variables:
        if variable not in known:
            raise HeronError(
                f"constraint {constraint.name}: nothing defines {text(variable)}",
                suggestion(text(variable), map(text, known)),
            )
    if not constraint.steps:
        raise HeronError(
            f"constraint {constraint.name} has no origin",
            f"say which schedule step causes it: because({constraint.rule}, {text(constraint.id)}, Primitive)",
        )


def sketch_from(atoms: Iterable[Any]) -> Sketch:
    """Collects the atoms of an answer set (clingo symbols)."""
    grouped: dict[str, list[tuple[Value, ...]]] = {}
    for atom in sorted(atoms):
        grouped.setdefault(atom.name, []).append(tuple(from_symbol(argument) for argument in atom.arguments))
    return Sketch({name: tuple(arguments) for name, arguments in grouped.items()})
