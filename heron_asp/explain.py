"""Why there is no program: the smallest set of constraints and pins that cannot hold together, and what would help."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heron_asp.host import family_targets
from heron_asp.render import evidence, formula, nearest_refusals
from heron_asp.resources import counted
from heron_asp.sketch import Constraint
from heron_asp.space import Pins, SketchSpace, is_shown
from heron_asp.task import Task
from heron_asp.terms import Term, Value, text


@dataclass(frozen=True)
class Conflict:
    """A minimal reason why a sketch has no program.

    Attributes:
        sketch: the sketch.
        constraints: those that take part. Such as define a variable would give it too large a value.
        pins: pinned variables that take part.
        remedies: what would help, checked by counting.
    """

    sketch: str
    constraints: tuple[Constraint, ...]
    pins: tuple[Value, ...]
    remedies: tuple[str, ...]


def conflict(part: SketchSpace, pins: Pins) -> Conflict | None:
    """The minimal conflict of a sketch under pins, and what would resolve it; None if it has programs."""
    core = part.guarded.core(pins)
    if core is None:
        return None
    by_name = {constraint.name: constraint for constraint in part.constraints}
    kept = [by_name[name] for name in core.constraints]
    return Conflict(part.name, tuple(kept), core.pins, tuple(_remedies(part, kept, pins, core.pins)))


def _remedies(part: SketchSpace, kept: Sequence[Constraint], pins: Pins, fixed: Sequence[Value]) -> Iterator[str]:
    """What would help; each was checked by counting the programs that there would be."""
    yield from _padding(part, pins)
    for variable in fixed:
        others = {one: values for one, values in pins.items() if one != variable}
        possible = _possible(part, variable, others)
        if possible:
            yield f"{text(variable)} may be {_list(_nearest(possible, pins[variable]))}"
    if any(one.defines is not None for one in kept):
        yield "smaller extents"
    for constraint in kept:
        programs = (
            0
            if _is_unpadded(constraint) or constraint.defines is not None
            else part.lifting([constraint.name]).count(pins)
        )
        if programs:
            how = f"--relax {shlex.quote(constraint.thumb or constraint.name)}"
            yield f"lifting {constraint.name} ({constraint.force}) would admit {counted(programs, 'program')}: {how}"


def _is_unpadded(constraint: Constraint) -> bool:
    """Whether it says that an axis must fit without padding."""
    return isinstance(constraint.id, Term) and constraint.id.name == "unpadded"


def _padding(part: SketchSpace, pins: Pins) -> Iterator[str]:
    """The padding that would let all axes fit, and how much of the work it would be."""
    unpadded = [one for one in part.constraints if _is_unpadded(one) and one.name not in part.relaxed]
    if not unpadded:
        return
    free = part.lifting(one.name for one in unpadded)
    said, useful = [], 1.0
    for constraint in unpadded:
        extent, own = constraint.kind.arguments
        possible = [value for value in _possible(free, extent, pins) if isinstance(value, int)]
        if possible and own not in possible:
            assert isinstance(extent, Term)
            said.append(f"{text(extent.arguments[1])} from {text(own)} to {min(possible)}")
            useful *= int(text(own)) / min(possible)
    if said:
        yield f"pad {' and '.join(said)}: {100 * (1 - useful):.0f} % of the work is padding (without --no-padding)"


def _possible(part: SketchSpace, variable: Value, pins: Pins) -> list[Value]:
    """Values of a variable that some program has under pins."""
    weights = part.weights(pins)
    if weights is None or part.circuit is None:
        return []
    shares = part.circuit.marginals(weights).get(part.variables[variable])
    if shares is None:
        return []
    values = part.program.values[part.variables[variable]]
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
    ways: dict[tuple[str, str], set[str]] = {}
    for one in task.derivation.refusals:
        ways.setdefault((one.intrinsic, one.seating), set()).update(
            [one.reason.name] if isinstance(one.reason, Term) else []
        )
    lacking = {name for (name, _), reasons in ways.items() if "lacks" in reasons and not reasons & {"dtype", "varies"}}
    if lacking:
        others = [other.name for other in family_targets(task.target.family) if any(map(other.runs, lacking))]
        remedies.append("a target that has it" + (f", for example -t {others[0]}" if others else ""))
    elif all(reasons & {"dtype", "varies"} for reasons in ways.values()):
        intrinsics = task.target.intrinsics.values()
        known = {
            f"{i.operands[0].dtype}{i.operands[1].dtype}{i.result.dtype}"
            for i in intrinsics
            if task.target.runs(i.name)
        }
        remedies.append("the instructions of the target take " + _list(sorted(known)))
    return nearest_refusals(task.derivation.refusals), remedies


def sentences(found: Conflict, task: Task) -> list[str]:
    """A conflict in sentences: each constraint with its rule, its formula and its evidence; then the pins."""
    said = []
    candidates: dict[Value, list[Value]] = {}
    for variable, value in task.space[found.sketch].sketch.of("candidate"):
        candidates.setdefault(variable, []).append(value)
    for constraint in found.constraints:
        why = evidence(constraint, task.target.pays)
        line = f"{constraint.name} ({constraint.force}): {formula(constraint)}" + (f" [{why}]" if why else "")
        if constraint.defines is not None:
            line += f", but no number here may exceed {task.space[found.sketch].largest:,}"
        if constraint.kind.name == "among" and constraint.kind.arguments[0] in candidates:
            line += f", but it can only be {_list(candidates[constraint.kind.arguments[0]])}"
        said.append(line)
    return said + [f"pinned: {text(variable)}" for variable in found.pins]


def variable_state(part: SketchSpace, variable: Value, value: Value) -> str:
    """Whether a value is unknown to a variable, excluded and by what, or possible."""
    if variable not in part.variables or not is_shown(variable):
        return f"{text(variable)} is no variable of sketch '{part.name}'"
    values = part.program.values[part.variables[variable]]
    if value not in values:
        return f"{text(variable)} = {text(value)} is unknown: its values are {_list(values[:40])}"
    programs = part.count({variable: frozenset({value})})
    if programs:
        return f"{text(variable)} = {text(value)} is possible: {counted(programs, 'program')} have it"
    core = part.guarded.core({variable: frozenset({value})})
    names = ", ".join(core.constraints) if core and core.constraints else "what defines its variables"
    return f"{text(variable)} = {text(value)} is excluded by {names}"
