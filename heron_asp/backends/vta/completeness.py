"""Is a space of VTA complete and sound? Every assignment of the knobs, unconstrained, against what the space holds.

An assignment is valid if its program can be made, fits the memories, passes the checker and computes the right result.
Programs are compared as instructions, so that a program in two forms counts once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.lowering import Lowered, Problem, lower, nest_of, problem_of
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.data import Case, cases
from heron_asp.sketch import Sketch
from heron_asp.space.sketch_space import SketchSpace
from heron_asp.task import Task
from heron_asp.terms import Term, Value, from_symbol

Values = Mapping[Value, Value]
_MORE_SLOTS = 1  # than the rules offer


@dataclass
class Found:
    """What was found.

    Attributes:
        tried: assignments.
        valid: those that are programs and right.
        members: assignments that the space holds.
        programs: different programs among the valid ones that the space holds.
        missing: valid programs that the space does not hold, with an assignment.
        wrong: members that are not valid, with what is wrong.
        why: how often an assignment was refused by what.
    """

    tried: int = 0
    valid: int = 0
    members: int = 0
    programs: int = 0
    missing: list[Values] = field(default_factory=list)
    wrong: list[tuple[Values, str]] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)


def examine(task: Task, most: int = 1 << 30, seed: int = 0) -> Found:
    """Tries assignments of all sketches that run on the device: all of them, or a random choice of so many.

    Args:
        task: with its rules of thumb lifted, which forbid what would run.
        most: assignments of a sketch that are tried.
        seed: of the choice.
    """
    found = Found()
    every = cases(task.operator)
    for part in task.space.parts:
        if part.sketch.tensorized:
            _examine(task, part, every, found, most, seed)
    return found


def _examine(task: Task, part: SketchSpace, every: list[Case], found: Found, most: int, seed: int) -> None:
    numbers, sketch = numbers_of(task.target), part.sketch
    problem = problem_of(task.block, sketch, task.target.intrinsics[numbers.intrinsic], numbers.config)
    judge = _Judge(task, problem, sketch, every)
    members = list(_members(part))
    held = set()
    for values in members:
        error = judge.error(values)
        if error:
            found.wrong.append((values, error))
        else:
            held.add(judge.program(values))
    found.members += len(members)
    choice = list(_assignments(problem, sketch))
    if len(choice) > most:
        choice = random.Random(seed).sample(choice, most)  # noqa: S311
    programs = set()
    for values in choice:
        found.tried += 1
        error = judge.error(values)
        found.why[error.split(":")[0]] += 1
        if error:
            continue
        found.valid += 1
        program = judge.program(values)
        programs.add(program)
        if program not in held:
            held.add(program)
            found.missing.append(values)
    found.programs += len(programs)


class _Judge:
    """Tells whether assignments are valid; a program is looked at once."""

    def __init__(self, task: Task, problem: Problem, sketch: Sketch, every: list[Case]) -> None:
        self.task = task
        self.problem = problem
        self.sketch = sketch
        self.every = every
        self.known: dict[object, str] = {}

    def lowered(self, values: Values) -> Lowered:
        return lower(self.problem, nest_of(self.task.block, self.sketch, values))

    def program(self, values: Values) -> object:
        made = self.lowered(values)
        return tuple(made.instructions), made.uops.tobytes()

    def error(self, values: Values) -> str:
        """What is wrong with an assignment; empty if nothing is."""
        try:
            made = self.lowered(values)
        except InternalError:  # what is too large, which the constraints see to
            return "memory"
        except HeronError as error:
            return f"lowering: {error.message}"
        key = (tuple(made.instructions), made.uops.tobytes())
        if key not in self.known:
            self.known[key] = self._run(made)
        return self.known[key]

    def _run(self, made: Lowered) -> str:
        config = self.problem.config
        for case in self.every[:1]:
            memory = made.image(case.inputs)
            if violations := check(made.instructions, config, memory):
                return f"checker: {violations[0].message}"
            simulate(made.instructions, memory, config)
            wrong = case.error(made.result(memory).reshape(case.expected.shape))
            if wrong:
                return f"result: {wrong}"
        return ""


def _members(part: SketchSpace) -> Iterator[Values]:
    """All assignments that the space holds."""
    control = part.control()
    control.configuration.solve.models = 0  # type: ignore[union-attr]  # clingo's own names
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        for model in handle:
            shown = (atom.arguments for atom in model.symbols(shown=True))
            yield {from_symbol(variable): from_symbol(value) for variable, value in shown}


def _assignments(problem: Problem, sketch: Sketch) -> Iterator[Values]:
    """All assignments: extents up to a unit more than is needed, all tilings, orders, places and numbers of buffers."""
    block = problem.block
    choices: list[list[dict[Value, Value]]] = []
    for axis in block.axes:
        unit = problem.units[axis.name]
        needed = -(-axis.extent // unit)
        levels = [level for _, one, level in sketch.of("tile") if one == axis.name and level != "unit"]
        extents = {needed, needed + 1} if _padded(sketch, block.block, axis.name) else {needed}
        choices.append(
            [
                {
                    Term("extent", (block.block, axis.name)): extent * unit,
                    **{
                        Term("tile", (block.block, axis.name, level)): tile
                        for level, tile in zip(levels, tiles, strict=True)
                    },
                }
                for extent in sorted(extents)
                for tiles in product(range(1, extent + 1), repeat=len(levels))
                if prod(tiles) == extent
            ]
        )  # fmt: skip
    for knob in sketch.knobs:
        if not isinstance(knob, Term) or knob.name in ("extent", "tile", "size"):
            continue
        values = [value for one, value in sketch.of("candidate") if one == knob]
        if knob.name == "slots":
            values += [len(values) + 1 + more for more in range(_MORE_SLOTS)] if len(values) < 2 else []
        choices.append([{knob: value} for value in values])
    for chosen in product(*choices):
        yield {knob: value for part in chosen for knob, value in part.items()}


def _padded(sketch: Sketch, block: str, axis: str) -> bool:
    return len([1 for knob, _ in sketch.of("candidate") if knob == Term("extent", (block, axis))]) > 1
