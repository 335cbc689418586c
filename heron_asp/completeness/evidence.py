"""What runs of a task: the assignments that are tried, and what became of each. No constraint is asked.

What can be chosen at all is what the rules derive with every rule of thumb lifted: the sketches, their steps, levels
and knobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import clingo

from heron_asp.completeness.grid import Assignment, Grid, grid
from heron_asp.completeness.trial import Calls, Trial, Workshop
from heron_asp.completeness.verdict import Rules, candidates, judge
from heron_asp.errors import InternalError
from heron_asp.schedule.plan import plan
from heron_asp.sketch import Sketch
from heron_asp.space import SketchSpace
from heron_asp.task import Task
from heron_asp.terms import Term, Value, from_symbol, to_symbol

Key = tuple[str, Assignment]  # a sketch's name and its knobs


@dataclass(frozen=True)
class Part:
    """What was tried of one sketch.

    Attributes:
        grid: what there is to try, of the sketch without rules of thumb.
        rows: the assignments.
        trials: what became of each.
        inexact: whether each needs a condition around a split.
    """

    grid: Grid
    rows: tuple[Assignment, ...]
    trials: tuple[Trial, ...]
    inexact: tuple[bool, ...]

    @property
    def name(self) -> str:
        """The sketch's name."""
        return self.grid.sketch.name


class Bare:
    """A task, and what its rules derive with rules of thumb lifted."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._relaxed: dict[tuple[str, ...], Task] = {}

    @cached_property
    def thumbs(self) -> tuple[str, ...]:
        """All rules of thumb."""
        return tuple(sorted(self.task.target.pays))

    def relaxing(self, names: Iterable[str]) -> Task:
        """The task with some rules of thumb lifted."""
        key = tuple(sorted(names))
        if key not in self._relaxed:
            self._relaxed[key] = self.task.relaxing(key)
        return self._relaxed[key]

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        """The sketches without any rule of thumb."""
        return self.relaxing(self.thumbs).derivation.sketches

    @cached_property
    def _offered(self) -> Mapping[str, Mapping[tuple[Value, Value], str]]:
        """For each sketch the candidates that lifting one rule of thumb adds, with its name."""
        before = {sketch.name: candidates(sketch) for sketch in self.task.derivation.sketches}
        found: dict[str, dict[tuple[Value, Value], str]] = {}
        for thumb in self.thumbs:
            for sketch in self.relaxing([thumb]).derivation.sketches:
                own = before[sketch.name]
                for knob, values in candidates(sketch).items():
                    for value in values - own.get(knob, values):
                        found.setdefault(sketch.name, {})[knob, value] = thumb
        return found

    def rules(self, names: Iterable[str] = ()) -> list[Rules]:
        """The rules of each sketch, in the order of `sketches`, with some rules of thumb lifted."""
        own = {sketch.name: sketch for sketch in self.relaxing(names).derivation.sketches}
        for one in self.sketches:
            if not set(own[one.name].knobs) <= set(one.knobs):
                raise InternalError(f"sketch '{one.name}' has more knobs with rules of thumb than without")
        return [Rules.of(own[one.name], one.knobs, self._offered.get(one.name, {})) for one in self.sketches]

    def members(self) -> Iterator[Key]:
        """The programs of the task's space, by enumeration."""
        knobs = {sketch.name: sketch.knobs for sketch in self.sketches}
        constants = {sketch.name: {k: v for k, v in sketch.of("candidate")} for sketch in self.sketches}  # noqa: C416
        for part in self.task.space:
            control = _ground(part)
            with control.solve(yield_=True) as handle:
                for model in handle:
                    shown = (symbol.arguments for symbol in model.symbols(shown=True))
                    values = {from_symbol(variable): from_symbol(value) for variable, value in shown}
                    values = {**constants[part.name], **values}
                    yield part.name, tuple(values[knob] for knob in knobs[part.name])

    def admitted(self, names: Iterable[str], keys: Iterable[Key]) -> set[Key]:
        """Which assignments the space holds where some rules of thumb are lifted."""
        knobs = {sketch.name: sketch.knobs for sketch in self.sketches}
        wanted: dict[str, list[Assignment]] = {}
        for name, row in keys:
            wanted.setdefault(name, []).append(row)
        found: set[Key] = set()
        for part in self.relaxing(names).space:
            if part.name not in wanted:
                continue
            control = _ground(part)
            for row in wanted[part.name]:
                pairs = [pair for pair in zip(knobs[part.name], row, strict=True) if pair[0] in part.sketch.knobs]
                atoms = [to_symbol(Term("value", pair)) for pair in pairs]
                if control.solve(assumptions=[(atom, True) for atom in atoms]).satisfiable:
                    found.add((part.name, row))
        return found


def _ground(part: SketchSpace) -> clingo.Control:
    control = part.control()
    control.ground([("base", [])])
    return control


@dataclass(frozen=True)
class Evidence:
    """What was tried of a task: it does not depend on the constraints.

    Attributes:
        bare: the task and its sketches.
        parts: by sketch.
        workshop: what tried it, and can try more.
        seconds: how long that took.
    """

    bare: Bare
    parts: tuple[Part, ...]
    workshop: Workshop
    seconds: float


def gather(task: Task, most: int, workers: int = 2, seconds: float = 30.0) -> Evidence:
    """Tries about `most` assignments of a task, all members of its space, and half as many around them."""
    start = time.monotonic()
    bare, workshop = Bare(task), Workshop(task, workers, seconds)
    members = sorted(bare.members(), key=repr)
    tries = [grid(sketch, most // len(bare.sketches)) for sketch in bare.sketches]
    rows = [
        _rows(one, [row for name, row in members if name == one.sketch.name], most // 2 // len(tries)) for one in tries
    ]
    trials = _trials(bare, workshop, rows)
    forms = [
        tuple(dict.fromkeys(form for row in lonely for form in one.forms(row) if form not in set(own)))
        for one, own, lonely in zip(tries, rows, _lonely(bare, tries, rows, trials), strict=True)
    ]
    more = _trials(bare, workshop, forms)
    parts = tuple(
        Part(one, (*own, *further), (*results, *others), tuple(one.inexact([*own, *further])))
        for one, own, further, results, others in zip(tries, rows, forms, trials, more, strict=True)
    )
    return Evidence(bare, parts, workshop, time.monotonic() - start)


def _lonely(
    bare: Bare, tries: Sequence[Grid], rows: Sequence[Sequence[Assignment]], trials: Sequence[Sequence[Trial]]
) -> list[list[Assignment]]:
    """Survivors that a must refuses, and of which no other form was tried yet that no must refuses."""
    known: set[str] = set()
    refused: list[list[tuple[Assignment, str]]] = []
    for one, rules, own, results in zip(tries, bare.rules(), rows, trials, strict=True):
        verdict, inexact = judge(rules, own), one.inexact(own)
        musts = [mask for name, mask in verdict.refused.items() if verdict.thumbs[name] is None]
        refused.append([])
        for place, (row, trial) in enumerate(zip(own, results, strict=True)):
            if not trial.survived or inexact[place]:
                continue
            if any(mask[place] for mask in musts):
                refused[-1].append((row, trial.program))
            else:
                known.add(trial.program)
    return [[row for row, program in own if program not in known] for own in refused]


def _rows(tries: Grid, members: Sequence[Assignment], most: int) -> tuple[Assignment, ...]:
    """The assignments to try: those of the grid, the members, and what is around some of them, evenly chosen."""
    found = dict.fromkeys([*tries.assignments(), *members])
    many = most // sum(min(group.near, len(group.values)) for group in tries.groups)
    for row in members[:: max(1, -(-len(members) // max(1, many)))]:
        found |= dict.fromkeys(tries.around(row))
    return tuple(found)


def _trials(bare: Bare, workshop: Workshop, rows: Sequence[Sequence[Assignment]]) -> list[list[Trial]]:
    """What became of the assignments of each sketch.

    They are scheduled as the task schedules them; where they have values that only lifting a rule of thumb offers, by
    the steps that are derived without rules of thumb.
    """
    task = bare.task
    with_thumbs = {sketch.name: sketch for sketch in task.derivation.sketches}
    planned: list[Calls | Trial] = []
    mnemonics: list[tuple[str, ...]] = []
    for sketch, rules, own in zip(bare.sketches, bare.rules(), rows, strict=True):
        needs = tuple(task.target.intrinsics[name].mnemonic for name in sketch.intrinsics)
        mnemonics += [needs] * len(own)
        verdict, bold = judge(rules, own), judge(Rules.of(sketch), own)
        offered = [
            (place, rules.candidates[knob]) for place, knob in enumerate(rules.knobs) if knob in rules.candidates
        ]
        for row, assignment in enumerate(own):
            if all(assignment[place] in candidates for place, candidates in offered):
                planned.append(planned_calls(task, with_thumbs[sketch.name], verdict.values(row)))
            else:
                planned.append(planned_calls(task, sketch, bold.values(row)))
    trials = iter(tried(workshop, planned, mnemonics))
    return [list(islice(trials, len(own))) for own in rows]


def tried(workshop: Workshop, planned: Sequence[Calls | Trial], mnemonics: Sequence[tuple[str, ...]]) -> list[Trial]:
    """What became of schedules; those that could not even be planned have failed."""
    places = [place for place, calls in enumerate(planned) if not isinstance(calls, Trial)]
    jobs = [calls for calls in planned if not isinstance(calls, Trial)]
    found = dict(zip(places, workshop.trials(jobs, [mnemonics[place] for place in places]), strict=True))
    return [one if isinstance(one, Trial) else found[place] for place, one in enumerate(planned)]


def planned_calls(task: Task, sketch: Sketch, values: dict[Value, Value]) -> Calls | Trial:
    """The schedule of an assignment; a failed trial where no schedule says it."""
    try:
        return tuple(plan(task.block, sketch, values))
    except (InternalError, KeyError) as error:
        return Trial(f"plan: {error}")
