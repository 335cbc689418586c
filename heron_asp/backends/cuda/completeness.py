"""Is a space of a GPU complete and sound? Assignments of the knobs, unconstrained, against what the space holds.

An assignment is valid if TVM makes a program of it, that passes TVM's check and a launch's limits and is right in the
emulator under its four schedules; where the space lacks it, also if nvcc compiles it. Programs are compared by their
source, so that a program in two forms counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from heron_asp.backends.cuda.trial import Pipeline, Trial
from heron_asp.completeness.grid import Assignment
from heron_asp.completeness.trial import Lost, spread
from heron_asp.completeness.verdict import Rules, Verdict, judge
from heron_asp.errors import InternalError
from heron_asp.measure.data import cases
from heron_asp.sketch import Sketch
from heron_asp.space import SketchSpace
from heron_asp.task import Task
from heron_asp.terms import Term, Value, text

VECTORS = (1, 2, 4, 8, 16)  # elements
PADDINGS = (0, 2, 4, 8, 12, 16, 24)
_SECONDS = 300.0  # of an assignment
_SHARES = (0.25, 0.5)  # of what is tried: members, and what is around some; the rest comes from anywhere
_EXACT = (0.7, 0.85)  # of the tilings: with the unit, with another one; the rest does not multiply to the extent


@dataclass
class Found:
    """What was found.

    Attributes:
        tried: different assignments.
        valid: of them.
        members: of them, that the space holds.
        guarded: valid ones whose tiles do not multiply to the extent; the rules' `split` means tiles that do.
        forms: valid ones that the space lacks, while it holds the same source in another form.
        missing: valid programs that the space lacks, by what refuses them.
        wrong: members that are not valid, by what is wrong.
        apart: assignments of which the constraint problem thinks otherwise than its constraints.
        refused: how often which step refused an assignment.
        examples: an assignment for each of `missing` and `wrong`.
    """

    tried: int = 0
    valid: int = 0
    members: int = 0
    guarded: int = 0
    forms: int = 0
    missing: Counter[tuple[str, ...]] = field(default_factory=Counter)
    wrong: Counter[tuple[str, ...]] = field(default_factory=Counter)
    apart: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def precision(self) -> float:
        """The share of the members that are valid."""
        return 1 - sum(self.wrong.values()) / max(1, self.members)

    @property
    def recall(self) -> float:
        """The share of the valid programs that the space holds."""
        programs = self.valid - self.guarded - self.forms
        return 1 - sum(self.missing.values()) / max(1, programs)


def examine(task: Task, most: int, seed: int = 0, workers: int = 1) -> Found:
    """Tries about so many assignments of each sketch that runs on the matrix unit.

    Args:
        task: with its rules of thumb lifted, which forbid what would run.
        most: assignments of a sketch that are tried.
        seed: of the choice.
        workers: processes at once.
    """
    found = Found()
    pipeline = Pipeline(task, cases(task.operator, most=1)[0], compiles=False)
    for part in task.space:
        if part.sketch.tensorized:
            _examine(part, pipeline, found, most, np.random.default_rng(seed), workers)
    return found


def _examine(
    part: SketchSpace, pipeline: Pipeline, found: Found, most: int, rng: np.random.Generator, workers: int
) -> None:
    sketch, rules = part.sketch, Rules.of(part.sketch)
    rows = list(dict.fromkeys(_rows(part, rules, most, rng)))
    verdict = judge(rules, rows)
    names = [tuple(sorted(name for name, mask in verdict.refused.items() if mask[at])) for at in range(len(rows))]
    found.tried += len(rows)
    found.apart += sum((part.count(_pins(rules, row)) == 1) == bool(own) for row, own in zip(rows, names, strict=True))
    trials = _tried(pipeline, sketch, verdict, range(len(rows)), workers)
    known = {one.source for one, own in zip(trials, names, strict=True) if isinstance(one, Trial) and not own}
    lacking = []
    for at, (row, own, trial) in enumerate(zip(rows, names, trials, strict=True)):
        error = _error(trial)
        found.members += not own
        found.refused[error.split(":")[0]] += 1
        found.valid += not error
        if error and not own:
            found.wrong[(error,)] += 1
            found.examples.setdefault((error,), _shown(sketch, rules, row))
        elif not error and own and _inexact(sketch, rules, row):
            found.guarded += 1
        elif not error and own:
            lacking.append(at)
    for at in _without_forms(pipeline, sketch, rules, [rows[at] for at in lacking], known, workers, found):
        place = lacking[at]
        found.missing[names[place]] += 1
        found.examples.setdefault(names[place], _shown(sketch, rules, rows[place]))


def _without_forms(
    pipeline: Pipeline,
    sketch: Sketch,
    rules: Rules,
    rows: Sequence[Assignment],
    known: set[str],
    workers: int,
    found: Found,
) -> list[int]:
    """Which of some valid assignments nvcc compiles, and are in the space in no other order of loops either."""
    verdict = judge(rules, rows)
    trials = _tried(replace(pipeline, compiles=True), sketch, verdict, range(len(rows)), workers)
    others = [_other_order(sketch, rules, row) for row in rows]
    turned = judge(rules, others)
    held = [at for at in range(len(rows)) if not any(mask[at] for mask in turned.refused.values())]
    made = _tried(replace(pipeline, case=None), sketch, turned, held, workers)
    forms = {at: one.source for at, one in zip(held, made, strict=True) if isinstance(one, Trial)}
    left = []
    for at, trial in enumerate(trials):
        if _error(trial):
            found.valid -= 1
            found.refused[_error(trial).split(":")[0]] += 1
        elif isinstance(trial, Trial) and trial.source in (*known, forms.get(at)):
            found.forms += 1
        else:
            left.append(at)
    return left


def _tried(
    pipeline: Pipeline, sketch: Sketch, verdict: Verdict, places: Sequence[int], workers: int
) -> list[Trial | Lost]:
    def work(place: int) -> Trial:
        return pipeline.trial(sketch, verdict.values(place))

    return spread(lambda: work, list(places), workers, 50, _SECONDS) if places else []


def _error(trial: Trial | Lost) -> str:
    """What is wrong with an assignment; empty if nothing is."""
    if isinstance(trial, Lost):
        return f"lost: {trial.why}"
    return "" if trial.valid else f"{trial.step}: {trial.reason}"


# -- which assignments are tried ---------------------------------------------------------------------------------------


def _rows(part: SketchSpace, rules: Rules, most: int, rng: np.random.Generator) -> Iterator[Assignment]:
    """Members; members with one or two groups of knobs drawn anew; all groups drawn."""
    groups = list(_groups(part.sketch))
    members, around = (int(share * most) for share in _SHARES)
    sampled = part.sample(members + around, rng)
    for number, one in enumerate(sampled):
        values = dict(one.values)
        if number >= members:
            for at in rng.choice(len(groups), int(rng.integers(1, 3)), replace=False):
                values |= groups[int(at)].drawn(rng)
        yield tuple(values[knob] for knob in rules.knobs)
    for _ in range(most - len(sampled)):
        values = {knob: value for group in groups for knob, value in group.drawn(rng).items()}
        yield tuple(values[knob] for knob in rules.knobs)


@dataclass(frozen=True)
class _Knob:
    """A knob by itself, and the values that it is tried with."""

    knob: Value
    values: tuple[Value, ...]

    def drawn(self, rng: np.random.Generator) -> dict[Value, Value]:
        return {self.knob: self.values[int(rng.integers(len(self.values)))]}


@dataclass(frozen=True)
class _Axis:
    """The extent and the tiles of an axis: of the instruction's unit, of another, or of any numbers.

    Attributes:
        knobs: the extent and the tiles, outermost first.
        extents: that are tried.
        unit: of the instruction; 0 where the axis plays no role, and so has no tile of that kind.
    """

    knobs: tuple[Value, ...]
    extents: tuple[int, ...]
    unit: int

    def drawn(self, rng: np.random.Generator) -> dict[Value, Value]:
        extent = self.extents[int(rng.integers(len(self.extents)))]
        if not self.unit:
            return dict(zip(self.knobs, (extent, *_factors(extent, len(self.knobs) - 1, rng)), strict=True))
        kind, parts = rng.random(), len(self.knobs) - 1
        unit = self.unit if kind < _EXACT[0] else int(rng.choice((1, 8, 16, 32)))
        outer = _factors(extent // unit or 1, parts - 1, rng)
        if kind >= _EXACT[1]:
            outer = [int(one) for one in rng.choice((1, 2, 3, 4), parts - 1)]
        return dict(zip(self.knobs, (extent, *outer, unit), strict=True))


def _factors(whole: int, parts: int, rng: np.random.Generator) -> list[int]:
    """So many factors of a number, every choice as likely."""
    divisors = [one for one in range(1, whole + 1) if whole % one == 0]
    while True:
        sizes = [int(one) for one in rng.choice(divisors, parts - 1)]
        if whole % prod(sizes) == 0:
            return [*sizes, whole // prod(sizes)]


def _groups(sketch: Sketch) -> Iterator[_Knob | _Axis]:
    candidates: dict[Value, list[Value]] = {}
    for knob, value in sketch.of("candidate"):
        candidates.setdefault(knob, []).append(value)
    taken: set[Value] = set()
    for block, axis, _, extent in sketch.of("axis"):
        own = Term("extent", (block, axis))
        tiles = _tiles(sketch, block, axis)
        taken |= {own, *tiles}
        unit = next(size for one, other, size in sketch.of("unit") if (one, other) == (block, axis))
        extents = {one for one in (*candidates[own], extent) if isinstance(one, int)}
        assert isinstance(unit, int)
        role = Term("tile", (block, axis, "unit")) in tiles
        yield _Axis((own, *tiles), (*sorted(extents), max(extents) - unit // 2), unit if role else 0)
    more: dict[str, tuple[int, ...]] = {"vector": VECTORS, "padding": PADDINGS}
    for knob in sketch.knobs:
        if knob not in taken:
            name = knob.name if isinstance(knob, Term) else ""
            yield _Knob(knob, tuple(dict.fromkeys((*candidates[knob], *more.get(name, ())))))


def _tiles(sketch: Sketch, block: Value, axis: Value) -> list[Value]:
    """The tiles of an axis, outermost first."""
    tiled = {level for b, a, level in sketch.of("tile") if (b, a) == (block, axis)}
    levels = dict.fromkeys(row.name for row in sketch.levels if row.name in tiled)
    return [Term("tile", (block, axis, level)) for level in levels]


# -- assignments -------------------------------------------------------------------------------------------------------


def _pins(rules: Rules, row: Assignment) -> Mapping[Value, frozenset[Value]]:
    return {knob: frozenset({value}) for knob, value in zip(rules.knobs, row, strict=True)}


def _inexact(sketch: Sketch, rules: Rules, row: Assignment) -> bool:
    """Whether the tiles of some axis do not multiply to its extent, so that TVM guards the split by a condition."""
    values = dict(zip(rules.knobs, row, strict=True))
    return any(
        prod(_number(values[tile]) for tile in _tiles(sketch, block, axis)) != values[Term("extent", (block, axis))]
        for block, axis, _, _ in sketch.of("axis")
    )


def _other_order(sketch: Sketch, rules: Rules, row: Assignment) -> Assignment:
    """The assignment with the last axis innermost at each level: its form in the space where the order is all one."""
    last: dict[Value, Value] = {}
    for knob, value in sketch.of("candidate"):
        if isinstance(knob, Term) and knob.name == "inner":
            last[knob] = value
    return tuple(last.get(knob, value) for knob, value in zip(rules.knobs, row, strict=True))


def _shown(sketch: Sketch, rules: Rules, row: Assignment) -> str:
    pairs = zip(rules.knobs, row, strict=True)
    said = "; ".join(
        f"{text(knob)}={text(value)}" for knob, value in pairs if isinstance(knob, Term) and knob.name != "size"
    )
    return f"{sketch.name}: {said}"


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise InternalError(f"{text(value)} is not a number")
    return value
