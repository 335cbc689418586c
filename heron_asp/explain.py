"""Why there is no program: the smallest set of constraints and pins that cannot hold together, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heron_asp.host import runnable_targets
from heron_asp.render import evidence, formula, nearest_refusals
from heron_asp.sketch import Constraint
from heron_asp.space import Pins, SketchSpace
from heron_asp.space.space import is_shown
from heron_asp.task import Task
from heron_asp.terms import Term, Value, text


@dataclass(frozen=True)
class Conflict:
    """A minimal reason why a sketch has no program.

    Attributes:
        sketch: the sketch.
        constraints: those that take part.
        pins: pinned variables that take part.
        remedies: what would help, checked by counting.
    """

    sketch: str
    constraints: tuple[Constraint, ...]
    pins: tuple[Value, ...]
    remedies: tuple[str, ...]


def forbidding(part: SketchSpace) -> list[Constraint]:
    """The constraints of a sketch that only forbid: lifting them leaves no variable undefined."""
    return [constraint for constraint in part.sketch.constraints if constraint.defines is None]


def conflict(part: SketchSpace, pins: Pins) -> Conflict | None:
    """The minimal conflict of a sketch under pins; None if it has programs.

    Found by deletion: each constraint and each pin is lifted in turn, for good if the rest still conflicts.
    """
    if _count(part, (), pins):
        return None
    kept = {constraint.name: constraint for constraint in forbidding(part)}
    lifted: list[str] = []
    fixed = dict(pins)
    for name in list(kept):
        if not _count(part, [*lifted, name], fixed):
            lifted.append(name)
            del kept[name]
    for variable in list(fixed):
        fewer = {one: values for one, values in fixed.items() if one != variable}
        if not _count(part, lifted, fewer):
            fixed = fewer
    remedies = tuple(_remedies(part, list(kept.values()), pins, fixed))
    return Conflict(part.name, tuple(kept.values()), tuple(fixed), remedies)


def _count(part: SketchSpace, lifted: Sequence[str], pins: Pins) -> int:
    space = SketchSpace(part.sketch, [*part.relaxed, *lifted]) if lifted else part
    return space.count(pins)


def _remedies(part: SketchSpace, kept: Sequence[Constraint], pins: Pins, fixed: Pins) -> Iterator[str]:
    for variable in fixed:
        others = {one: values for one, values in pins.items() if one != variable}
        possible = _possible(part, variable, others)
        if possible:
            yield f"{text(variable)} may be {_list(_nearest(possible, pins[variable]))}"
    for constraint in kept:
        programs = _count(part, [constraint.name], pins)
        if programs:
            what = f"lifting {constraint.name} ({constraint.force})"
            yield f"{what} would admit {programs} programs" + (
                f": --relax {constraint.thumb}" if constraint.thumb else ""
            )


def _possible(part: SketchSpace, variable: Value, pins: Pins) -> list[Value]:
    """Values of a variable that some program has under pins."""
    weights = part.weights(pins)
    if weights is None or part.circuit is None:
        return []
    shares = part.circuit.marginals(weights).get(part.variables[variable])
    if shares is None:
        return []
    values = part.tables.values[part.variables[variable]]
    return [value for value, share in zip(values, shares, strict=True) if share > 0]


def _nearest(possible: Sequence[Value], asked: frozenset[Value]) -> Sequence[Value]:
    """At most eight values; of numbers those next to one that was asked for."""
    wanted = [value for value in asked if isinstance(value, int)]
    numbers = [value for value in possible if isinstance(value, int)]
    if wanted and len(numbers) == len(possible):
        return sorted(sorted(numbers, key=lambda number: abs(number - wanted[0]))[:8])
    return possible[:8]


def _list(values: Sequence[Value]) -> str:
    return ", ".join(map(text, values))


def untensorized(task: Task) -> tuple[list[str], list[str]]:
    """Why no instruction of the target runs the operator, and what would help."""
    remedies = []
    reasons = {one.reason.name for one in task.derivation.refusals if isinstance(one.reason, Term)}
    if "lacks" in reasons:
        others = [name for name in runnable_targets() if name != task.target.name]
        remedies.append("a target with the flag" + (f", for example -t {others[0]}" if others else ""))
    elif "dtype" in reasons:
        intrinsics = task.target.intrinsics.values()
        known = {f"{i.operands[0].dtype}{i.operands[1].dtype}{i.result.dtype}" for i in intrinsics}
        remedies.append("the instructions of the target take " + _list(sorted(known)))
    return nearest_refusals(task.derivation.refusals), remedies


def sentences(found: Conflict, task: Task) -> list[str]:
    """A conflict in sentences: each constraint with its rule, its formula and its evidence; then the pins."""
    said = []
    for constraint in found.constraints:
        why = evidence(constraint, task.target.pays)
        said.append(f"{constraint.name} ({constraint.force}): {formula(constraint)}" + (f" [{why}]" if why else ""))
    return said + [f"pinned: {text(variable)}" for variable in found.pins]


def variable_state(part: SketchSpace, variable: Value, value: Value) -> str:
    """Whether a value is unknown to a variable, excluded by the constraints, or possible."""
    if variable not in part.variables or not is_shown(variable):
        return f"{text(variable)} is no variable of sketch '{part.name}'"
    values = part.tables.values[part.variables[variable]]
    if value not in values:
        return f"{text(variable)} = {text(value)} is unknown: its values are {_list(values[:40])}"
    programs = part.count({variable: frozenset({value})})
    if programs:
        return f"{text(variable)} = {text(value)} is possible: {programs} programs have it"
    return f"{text(variable)} = {text(value)} is excluded"
