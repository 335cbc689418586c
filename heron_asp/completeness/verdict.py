"""What the rules of a sketch say of many assignments at once.

An evaluation of its own, apart from clingo's: it also judges assignments that have values outside of their domains, and
names every constraint that refuses one. Numbers are float64, exact below 2**53; NaN is a variable without a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from heron_asp.completeness.grid import Assignment
from heron_asp.errors import InternalError
from heron_asp.sketch import Constraint, Sketch
from heron_asp.terms import Term, Value, text

Column = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    """What refuses assignments of a sketch: its constraints, and the candidates of its knobs.

    Attributes:
        knobs: in the order of an assignment.
        constraints: by name.
        candidates: of the knobs that have any.
        offered: further candidates that a rule of thumb keeps back, with its name.
        aside: the rule of thumb by which the whole sketch is not searched.
    """

    knobs: tuple[Value, ...]
    constraints: Mapping[str, Constraint]
    candidates: Mapping[Value, frozenset[Value]]
    offered: Mapping[tuple[Value, Value], str] = field(default_factory=dict)
    aside: str | None = None

    @staticmethod
    def of(
        sketch: Sketch, knobs: Sequence[Value] = (), offered: Mapping[tuple[Value, Value], str] | None = None
    ) -> Rules:
        """The rules of a sketch as they were derived; `knobs` gives assignments another order."""
        return Rules(
            tuple(knobs) or sketch.knobs,
            {constraint.name: constraint for constraint in sketch.constraints},
            candidates(sketch),
            offered or {},
            sketch.aside,
        )

    def with_constraint(self, name: str, constraint: Constraint | None) -> Rules:
        """With another constraint of that name, or none."""
        constraints = {**self.constraints}
        del constraints[name]
        if constraint is not None:
            constraints[name] = constraint
        return replace(self, constraints=constraints)


def candidates(sketch: Sketch) -> dict[Value, frozenset[Value]]:
    """The candidates of each knob that has any."""
    found: dict[Value, set[Value]] = {}
    for knob, value in sketch.of("candidate"):
        found.setdefault(knob, set()).add(value)
    return {knob: frozenset(values) for knob, values in found.items()}


@dataclass(frozen=True)
class Verdict:
    """What the rules say of assignments.

    Attributes:
        columns: the value of every variable, knobs and what follows from them; symbols by their code.
        refused: the assignments that each constraint or list of candidates refuses, by its name.
        thumbs: the rule of thumb behind each; None for a must.
        symbols: by code.
    """

    columns: Mapping[Value, Column]
    refused: Mapping[str, Mask]
    thumbs: Mapping[str, str | None]
    symbols: Mapping[float, Value]

    def values(self, row: int) -> dict[Value, Value]:
        """The values of one assignment; a variable that has none is left out."""
        found: dict[Value, Value] = {}
        for variable, column in self.columns.items():
            value = float(column[row])
            if value in self.symbols:
                found[variable] = self.symbols[value]
            elif not np.isnan(value):
                found[variable] = int(value)
        return found


def rows_of(mask: Mask) -> list[int]:
    """The rows where a mask holds."""
    return [int(row) for row in np.flatnonzero(mask)]


def judge(rules: Rules, rows: Sequence[Assignment]) -> Verdict:
    """Evaluates every constraint on every assignment."""
    return _Judge(rules, rows).verdict()


class _Judge:
    def __init__(self, rules: Rules, rows: Sequence[Assignment]) -> None:
        self.rules = rules
        self.length = len(rows)
        self.codes: dict[Value, float] = {}
        self.columns: dict[Value, Column] = {
            knob: np.array([self._code(row[place]) for row in rows], dtype=np.float64)
            for place, knob in enumerate(rules.knobs)
        }

    def _code(self, value: Value) -> float:
        """A number is its own code; symbols get numbers that no variable takes."""
        if isinstance(value, int):
            return float(value)
        return self.codes.setdefault(value, -float(2**40 + len(self.codes)))

    def verdict(self) -> Verdict:
        refused: dict[str, Mask] = {}
        thumbs: dict[str, str | None] = {}
        givers = self._define()
        for name, constraint in self.rules.constraints.items():
            refused[name] = self._refuses(constraint, given=name in givers)
            thumbs[name] = constraint.thumb
        for knob in self.rules.candidates:
            outside = self._outside(knob)
            for name, constraint in self.rules.constraints.items():  # a place that is no candidate selects nothing
                if constraint.kind.name == "select" and constraint.kind.arguments[1] == knob:
                    refused[name] = refused[name] & ~outside
            for (other, value), thumb in self.rules.offered.items():
                if other == knob:
                    name = f"{thumb}:{text(knob)}"
                    kept_back = outside & (self.columns[knob] == self._code(value))
                    refused[name] = refused.get(name, np.zeros(self.length, dtype=bool)) | kept_back
                    thumbs[name] = thumb
                    outside &= ~kept_back
            refused[f"candidates:{text(knob)}"], thumbs[f"candidates:{text(knob)}"] = outside, None
        if self.rules.aside:
            refused["aside"], thumbs["aside"] = np.ones(self.length, dtype=bool), self.rules.aside
        return Verdict(self.columns, refused, thumbs, {code: value for value, code in self.codes.items()})

    def _outside(self, knob: Value) -> Mask:
        allowed = [self._code(value) for value in self.rules.candidates[knob]]
        outside: Mask = ~np.isin(self.columns[knob], allowed)
        return outside

    # -- what follows from the knobs -------------------------------------------------------------------------------

    def _define(self) -> set[str]:
        """Gives each further variable the value of the first constraint that makes it; returns these constraints."""
        waiting: dict[Value, Constraint] = {}
        for constraint in self.rules.constraints.values():
            made = constraint.defines
            if made is not None and made not in self.columns:
                waiting.setdefault(made, constraint)
        givers = {constraint.name for constraint in waiting.values()}
        while waiting:
            ready = [
                one for one in waiting.values() if not any(v in waiting for v in one.variables if v != one.defines)
            ]
            if not ready:
                raise InternalError(f"variables define each other: {', '.join(map(text, waiting))}")
            for constraint in ready:
                assert constraint.defines is not None
                self.columns[constraint.defines] = self._made(constraint)
                del waiting[constraint.defines]
        return givers

    def _column(self, variable: Value) -> Column:
        return self.columns.get(variable, np.full(self.length, np.nan))

    def _made(self, constraint: Constraint) -> Column:
        """What a constraint makes of its members; NaN where it selects nothing."""
        kind = constraint.kind
        if kind.name == "product":
            result = np.ones(self.length)
            for _, variable in constraint.members:
                result = result * self._column(variable)
            return result
        if kind.name == "sum":
            return self._total(constraint) + self._code(kind.arguments[1])
        made, knob = kind.arguments
        result = np.full(self.length, np.nan)
        for value, variable in constraint.cases:
            result = np.where(self._column(knob) == self._code(value), self._column(variable), result)
        if isinstance(made, Term) and made.name == "exists":  # by its meaning: a copy that has another place exists
            result = np.where(np.isnan(result) & (self._column(knob) != self._code("root")), 1.0, result)
        return result

    def _total(self, constraint: Constraint) -> Column:
        total = np.zeros(self.length)
        for coefficient, variable in constraint.members:
            total = total + coefficient * self._column(variable)
        return total

    # -- what they refuse ------------------------------------------------------------------------------------------

    def _refuses(self, constraint: Constraint, given: bool) -> Mask:
        """Where a constraint does not hold. What it cannot judge, for want of a value, it does not refuse."""
        kind = constraint.kind
        if constraint.defines is not None:
            made = self._made(constraint)
            if kind.name == "select":
                return np.isnan(made)
            return np.zeros(self.length, dtype=bool) if given else self._differ(made, self._column(constraint.defines))
        if kind.name == "equal":
            return self._differ(*(self._column(variable) for variable in kind.arguments))
        if kind.name == "at_most":
            with np.errstate(invalid="ignore"):
                return self._total(constraint) > self._code(kind.arguments[0])
        if kind.name == "among":
            column = self._column(kind.arguments[0])
            outside = ~np.isin(column, [self._code(value) for value in kind.arguments[1:]]) & ~np.isnan(column)
            if constraint.only_if:
                knob, value = constraint.only_if
                outside &= self._column(knob) == self._code(value)
            return outside
        if kind.name == "balanced":
            return self._unbalanced(kind)
        raise InternalError(f"constraint {constraint.name}: no evaluation of '{kind.name}'")

    @staticmethod
    def _differ(left: Column, right: Column) -> Mask:
        differ: Mask = (left != right) & ~np.isnan(left) & ~np.isnan(right)
        return differ

    def _unbalanced(self, kind: Term) -> Mask:
        variable, workers, percent = kind.arguments
        tasks, threads = self._column(variable), self._code(workers)
        rounds = np.ceil(tasks / threads)
        with np.errstate(invalid="ignore"):
            busy = 100 * tasks >= self._code(percent) * threads * rounds
            refused: Mask = (tasks > 1) & ~busy & ~np.isnan(tasks)
        return refused
