"""Faults planted in the rules of a space, to see whether the comparison notices them.

A fault changes one constraint, or the candidates of one knob, in every sketch that has it. What was tried stays:
whether a program runs does not depend on the constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from heron_asp.completeness.compare import Judged, compare
from heron_asp.completeness.evidence import Evidence, planned_calls, tried
from heron_asp.completeness.verdict import Rules, rows_of
from heron_asp.sketch import Constraint
from heron_asp.terms import Term, Value, text

_RERUN = 16  # schedules that a fault changes and that are tried again


@dataclass(frozen=True)
class Fault:
    """A change of the rules.

    Attributes:
        name: the constraint, or the candidates of a knob.
        change: what was done to it.
        rules: of each sketch.
        thumb: the rule of thumb that it is.
        loosens: it only admits more that runs, so that nothing need be noticed.
        defines: it changes what a variable is, so that schedules may differ.
        unread: it changes a variable that nothing reads.
    """

    name: str
    change: str
    rules: tuple[Rules, ...]
    thumb: str | None = None
    loosens: bool = False
    defines: bool = False
    unread: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """The rule that would be wrong, whatever the axis or tensor, and how."""
        return self.name.partition("(")[0] + (f" ({self.thumb})" if self.thumb else ""), self.change.partition(" ")[0]


class Outcome(StrEnum):
    """What came of a fault."""

    NOTICED = "noticed"
    MISSED = "missed"
    NO_EFFECT = "no effect"  # on any assignment that was tried


class Planter:
    """Plants faults in all sketches of a task at once, as a wrong rule would.

    Args:
        evidence: what was tried.
        expected: how many survivors each rule of thumb refuses.
    """

    def __init__(self, evidence: Evidence, expected: Mapping[str, int]) -> None:
        self.evidence = evidence
        self.expected = expected
        self.rules = evidence.bare.rules()
        self.judged = [Judged.of(*pair) for pair in zip(evidence.parts, self.rules, strict=True)]
        self.known = set(compare(evidence).failures(expected))
        constraints = [one for rules in self.rules for one in rules.constraints.values()]
        steps = [step for sketch in evidence.bare.task.derivation.sketches for step in sketch.steps]
        self.read = {variable for one in constraints for variable in one.variables if variable != one.defines}
        self.read |= {variable for step in steps for variable, _ in (*step.unless, *step.when)}

    def faults(self) -> Iterator[Fault]:
        """Every fault that is planted: each constraint and each list of candidates, wrong in each way."""
        constraints = {(name, one.thumb): one for each in self.rules for name, one in each.constraints.items()}
        for constraint in constraints.values():
            yield from self._of_constraint(constraint)
        for knob in dict.fromkeys(knob for each in self.rules for knob in each.candidates):
            if isinstance(knob, Term) and knob.name != "size":
                yield from self._of_candidates(knob)

    def outcome(self, fault: Fault) -> tuple[Outcome, str]:
        """Whether the comparison notices a fault, and what it says."""
        failures = compare(self.evidence, fault.rules).failures(self.expected)
        said = [failure for failure in failures if failure not in self.known]
        if said:
            return Outcome.NOTICED, said[0]
        changed, failure = _schedules(self.evidence, self.judged, fault) if fault.defines else (False, "")
        if failure:
            return Outcome.NOTICED, failure
        return (Outcome.MISSED if changed or _judged_otherwise(self.judged, fault) else Outcome.NO_EFFECT), ""

    def _of_constraint(self, constraint: Constraint) -> Iterator[Fault]:
        """The ways in which a constraint may be wrong."""
        name = constraint.name
        if constraint.defines is not None and constraint.defines not in self.rules[0].knobs:
            unread = constraint.defines not in self.read
            for change, wrong in _wrong_definitions(constraint):
                changed = self._with(constraint, partial(_ignoring, wrong))
                yield Fault(name, change, changed, defines=True, unread=unread)
            return
        thumb = constraint.thumb
        removed = self._with(constraint, lambda _judged, _one: None)
        yield Fault(name, "removed", removed, thumb, loosens=thumb is not None)
        tightened = self._with(constraint, _tighter)
        if tightened != tuple(self.rules):
            yield Fault(name, "tightened", tightened, thumb)
        if thumb is not None:
            yield Fault(name, "called a must", self._with(constraint, lambda _, one: replace(one, thumb=None)), thumb)

    def _with(
        self, constraint: Constraint, change: Callable[[Judged, Constraint], Constraint | None]
    ) -> tuple[Rules, ...]:
        """The rules of all sketches, with the constraints of that name and force changed."""
        changed = []
        for judged, rules in zip(self.judged, self.rules, strict=True):
            own = rules.constraints.get(constraint.name)
            alike = own is not None and own.thumb == constraint.thumb
            changed.append(rules.with_constraint(own.name, change(judged, own)) if own and alike else rules)
        return tuple(changed)

    def _of_candidates(self, knob: Value) -> Iterator[Fault]:
        """A knob loses a candidate that some member has."""
        for judged, rules in zip(self.judged, self.rules, strict=True):
            members = rows_of(judged.survived & ~judged.must & ~judged.pays)
            if len(members) and knob in rules.candidates:
                lost = judged.part.rows[members[0]][rules.knobs.index(knob)]
                changed = [_losing(each, knob, lost) for each in self.rules]
                yield Fault(f"candidates:{text(knob)}", f"without {text(lost)}", tuple(changed))
                return


def _judged_otherwise(before: Sequence[Judged], fault: Fault) -> bool:
    """Whether some assignment that was tried is refused otherwise than before."""
    for one, wrong in zip(before, fault.rules, strict=True):
        after = Judged.of(one.part, wrong)
        if not (np.array_equal(one.must, after.must) and np.array_equal(one.pays, after.pays)):
            return True
    return False


def _schedules(evidence: Evidence, before: Sequence[Judged], fault: Fault) -> tuple[bool, str]:
    """Whether a wrong value changes schedules of members, and what goes wrong with these."""
    task = evidence.bare.task
    sketches = {sketch.name: sketch for sketch in task.derivation.sketches}
    changed = False
    for one, wrong in zip(before, fault.rules, strict=True):
        part, judged, sketch = one.part, Judged.of(one.part, wrong), sketches[one.part.name]
        rows = rows_of(~judged.must & ~judged.pays)
        planned = [planned_calls(task, sketch, one.verdict.values(row)) for row in rows]
        after = [planned_calls(task, sketch, judged.verdict.values(row)) for row in rows]
        others = [place for place, calls in enumerate(after) if calls != planned[place]][:_RERUN]
        changed |= bool(others)
        needs = tuple(task.target.intrinsics[name].mnemonic for name in sketch.intrinsics)
        trials = tried(evidence.workshop, [after[place] for place in others], [needs] * len(others))
        if failed := [trial.error for trial in trials if not trial.survived]:
            return True, f"{len(failed)} of {len(trials)} schedules that it changes fail ({failed[0]})"
        made = {trial.program for trial in trials}
        kept = {part.trials[row].program for place, row in enumerate(rows) if after[place] == planned[place]}
        if lost := {part.trials[rows[place]].program for place in others} - made - kept:
            return True, f"{len(lost)} programs that run are made no more"
    return changed, ""


def _wrong_definitions(constraint: Constraint) -> Iterator[tuple[str, Callable[[Constraint], Constraint]]]:
    """Ways to define a variable wrongly."""
    if constraint.kind.name == "product":
        for _, factor in constraint.members:
            if factor == Term("size", (1,)):
                continue
            yield f"without {text(factor)}", partial(_without, factor)
    elif constraint.kind.name == "sum":
        yield "one too many", _plus_one
    else:
        for value, _ in constraint.cases:
            yield f"another case at {text(value)}", partial(_other_case, value)


def _losing(rules: Rules, knob: Value, value: Value) -> Rules:
    """Without a candidate, where the knob has it."""
    fewer = {one: values - {value} if one == knob else values for one, values in rules.candidates.items()}
    return replace(rules, candidates=fewer)


def _ignoring(change: Callable[[Constraint], Constraint], _: Judged, constraint: Constraint) -> Constraint:
    return change(constraint)


def _without(factor: Value, constraint: Constraint) -> Constraint:
    return replace(constraint, members=tuple(member for member in constraint.members if member[1] != factor))


def _plus_one(constraint: Constraint) -> Constraint:
    made, constant = constraint.kind.arguments
    assert isinstance(constant, int)
    return replace(constraint, kind=Term("sum", (made, constant + 1)))


def _other_case(value: Value, constraint: Constraint) -> Constraint:
    right = dict(constraint.cases).get(value)
    others = [variable for _, variable in constraint.cases if variable != right]
    wrong = others[0] if others else "nothing"
    return replace(
        constraint, cases=tuple((at, wrong if at == value else variable) for at, variable in constraint.cases)
    )


def _tighter(judged: Judged, constraint: Constraint) -> Constraint:
    """A constraint that refuses a little more, some member at least; itself where there is no such."""
    members = rows_of(judged.survived & ~judged.must & ~judged.pays)
    kind = constraint.kind
    if not len(members) or kind.name == "equal":
        return constraint
    if kind.name == "at_most":
        columns = judged.verdict.columns
        totals = [sum(weight * columns[variable][row] for weight, variable in constraint.members) for row in members]
        return replace(constraint, kind=Term("at_most", (int(max(totals)) - 1,)))
    if kind.name == "among":
        if constraint.only_if:
            return replace(constraint, only_if=None)
        variable, *values = kind.arguments
        return replace(constraint, kind=Term("among", (variable, *(values[1:] or [0]))))
    if kind.name == "balanced":
        return replace(constraint, kind=Term("balanced", (*kind.arguments[:2], 101)))
    return _without(constraint.members[0][1], constraint)
