"""Constraints, refusals and conflicts as text.

Rules hold typed terms and no English; the sentences are made here, one renderer a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heron_asp.derivation import Refusal
from heron_asp.errors import InternalError
from heron_asp.sketch import Constraint, Sketch
from heron_asp.target import Pays
from heron_asp.terms import Term, Value, text


def formula(constraint: Constraint) -> str:
    """What a constraint says, as a formula over its variables."""
    render = _FORMULAS.get(constraint.kind.name)
    if render is None:
        raise InternalError(f"constraint {constraint.name}: there is no kind '{constraint.kind.name}'")
    said: str = render(constraint)
    if constraint.only_if:
        knob, value = constraint.only_if
        said += f" where {text(knob)} = {text(value)}"
    return said


def _operand(variable: Value) -> str:
    """A variable, or the number that it names."""
    if variable == "nothing":
        return "0"
    if isinstance(variable, Term) and variable.name == "size":
        return text(variable.arguments[0])
    return text(variable)


def _product(constraint: Constraint) -> str:
    factors = " * ".join(_operand(variable) for _, variable in constraint.members) or "1"
    return f"{factors} = {text(constraint.kind.arguments[0])}"


def _linear(members: Iterable[tuple[int, Value]], constant: int = 0) -> str:
    said = ""
    for coefficient, variable in members:
        size = "" if abs(coefficient) == 1 else f"{abs(coefficient)} * "
        sign = ("-" if coefficient < 0 else "") if not said else (" - " if coefficient < 0 else " + ")
        said += f"{sign}{size}{_operand(variable)}"
    if constant:
        said += f" {'-' if constant < 0 else '+'} {abs(constant)}"
    return said or "0"


def _sum(constraint: Constraint) -> str:
    total, constant = constraint.kind.arguments
    assert isinstance(constant, int)
    return f"{_linear(constraint.members, constant)} = {text(total)}"


def _select(constraint: Constraint) -> str:
    chosen, knob = constraint.kind.arguments
    cases = ", ".join(f"{_operand(variable)} where it is {text(value)}" for value, variable in constraint.cases)
    return f"{text(chosen)} follows {text(knob)}: {cases}"


def _at_most(constraint: Constraint) -> str:
    (most,) = constraint.kind.arguments
    assert isinstance(most, int)
    if constraint.members and all(coefficient < 0 for coefficient, _ in constraint.members):
        return f"{_linear((-coefficient, variable) for coefficient, variable in constraint.members)} >= {-most}"
    return f"{_linear(constraint.members)} <= {most}"


def _among(constraint: Constraint) -> str:
    variable, *values = constraint.kind.arguments
    return f"{_operand(variable)} " + (
        f"= {text(values[0])}" if len(values) == 1 else f"in {{{', '.join(map(text, values))}}}"
    )


def _equal(constraint: Constraint) -> str:
    return " = ".join(map(_operand, constraint.kind.arguments))


def _balanced(constraint: Constraint) -> str:
    tasks, workers, percent = map(text, constraint.kind.arguments)
    return f"{tasks} is 1, or keeps {percent} % of {workers} threads busy"


_FORMULAS: dict[str, Any] = {
    "product": _product,
    "sum": _sum,
    "select": _select,
    "at_most": _at_most,
    "among": _among,
    "equal": _equal,
    "balanced": _balanced,
    "own": lambda constraint: constraint.kind.arguments[0].replace("#false ", ""),
}


def evidence(constraint: Constraint, pays: Mapping[str, Pays]) -> str:
    """Why a rule of thumb holds; empty for a must."""
    known = pays.get(constraint.thumb or "")
    return f"{constraint.thumb} = {known.value}: {known.meaning}. Evidence: {known.evidence}" if known else ""


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusal(one: Refusal) -> str:
    """Why an intrinsic cannot run a block, in a sentence."""
    seating = "" if one.seating == "straight" else " with the operands crossed"
    said = "; ".join(f"{axis} {_misfit(why)}" for axis, why in one.misfits)
    return f"{one.intrinsic}{seating}: {_reason(one.reason)}" + (f" ({said})" if said else "")


_MISFITS = {
    "indexes": "indexes",
    "misses": "does not index",
    "scattered": "has no neighbours side by side in",
    "windowed": "slides a window over",
    "apart": "is none of the last two dimensions of",
    "endless": "cannot be padded",
}


def _misfit(why: Value) -> str:
    """Why an axis cannot play a role; of a rule file of the user's own, as it stands there."""
    name, arguments = (why.name, why.arguments) if isinstance(why, Term) else (why, ())
    return " ".join([_MISFITS.get(str(name), str(name)), *map(text, arguments)])


_REASONS = {
    "lacks": "the target lacks {0}",
    "dtype": "tensor {0} is {1} where the instruction takes {2}",
    "varies": "tensor {0} would be read with an offset, for which {1} has to be known ahead and fit itself",
    "unplayed": "no axis of the operator can play its role {0}",
    "finish": "the family cannot do everything that the epilogue asks for ({0})",
    "stores": "results are stored as {0}, which the family cannot: the epilogue has to narrow them",
    "narrow": "rows of {0} in its fragments would be shorter than the 16 bytes in which they are read",
    "columns": "its operands are matrices of their own and do not change places",
    "immediate": "the epilogue has the number {0}, which an instruction cannot hold",
}


def _reason(reason: Value) -> str:
    if isinstance(reason, Term):
        arguments = [text(argument) for argument in reason.arguments]
        if reason.name in _REASONS:
            return _REASONS[reason.name].format(*arguments)
    return text(reason)


def nearest_refusals(refusals: Iterable[Refusal]) -> list[str]:
    """For each intrinsic the sentences of the seating that fails for the fewest reasons; nearest intrinsic first."""
    by_way: dict[tuple[str, str], list[Refusal]] = {}
    for one in refusals:
        by_way.setdefault((one.intrinsic, one.seating), []).append(one)
    best: dict[str, list[Refusal]] = {}
    for (intrinsic, seating), reasons in sorted(by_way.items(), key=lambda pair: pair[0][1] != "straight"):
        del seating
        if intrinsic not in best or len(reasons) < len(best[intrinsic]):
            best[intrinsic] = reasons
    ordered = sorted(best.values(), key=len)
    return [refusal(one) for reasons in ordered for one in reasons]


def origin(variable: Value, sketch: Sketch) -> str:
    """Where a variable's value comes from: `knob`, or the constraint that defines it."""
    if variable in sketch.knobs:
        return "knob"
    for constraint in sketch.constraints:
        if constraint.defines == variable:
            return constraint.name
    return "unknown"
