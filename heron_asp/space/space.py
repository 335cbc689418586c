"""The space of an operator on a target: the disjoint union of its sketches' spaces.

Each sketch's constraint problem is ground by clingo and compiled into an exact circuit (`circuit`), on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import clingo
import numpy as np
import numpy.typing as npt

from heron_asp.errors import HeronError, InternalError
from heron_asp.resources import rule_files, rules_folder, suggestion
from heron_asp.sketch import Sketch
from heron_asp.space.circuit import Circuit
from heron_asp.space.ground import TableProgram, ground
from heron_asp.space.table import TooLargeError
from heron_asp.terms import Term, Value, add_facts, plain, text

Pins: TypeAlias = Mapping[Value, frozenset[Value]]
Values: TypeAlias = dict[Value, Value]


@dataclass(frozen=True)
class Candidate:
    """A program: a sketch and a value for each of its variables.

    Attributes:
        sketch: the sketch's name.
        values: knobs and what follows from them.
        knobs: the variables that were chosen; they identify the program.
    """

    sketch: str
    values: Values
    knobs: tuple[Value, ...]

    @cached_property
    def key(self) -> str:
        """Identifies the program within a task."""
        return f"{self.sketch}: " + "; ".join(f"{text(knob)}={text(self.values[knob])}" for knob in self.knobs)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.key == other.key

    def to_json(self) -> dict[str, int | str]:
        """All values by variable name, as the command line shows them."""
        return {text(variable): plain(value) for variable, value in self.values.items() if is_shown(variable)}


def is_shown(variable: Value) -> bool:
    """Whether a variable means something to a reader; named numbers do not."""
    return variable != "nothing" and not (isinstance(variable, Term) and variable.name == "size")


class SketchSpace:
    """The programs of one sketch.

    Args:
        sketch: the sketch.
        relaxed: constraints, by name, or rules (`c5`) that are lifted, to look and never to tune.
        limit: most rows of the circuit.
    """

    def __init__(self, sketch: Sketch, relaxed: Iterable[str] = (), limit: int = 8_000_000) -> None:
        self.sketch = sketch
        self.relaxed = tuple(_lifted(sketch, relaxed))
        self.limit = limit

    @property
    def name(self) -> str:
        """The sketch's name."""
        return self.sketch.name

    def control(self) -> clingo.Control:
        """A fresh clingo control with the sketch's problem, not ground yet. Its models are the programs."""
        control = clingo.Control(["0"], logger=lambda _code, _message: None)
        for path in rule_files(rules_folder() / "csp"):
            control.load(str(path))
        add_facts(control, self.sketch.problem(self.relaxed))
        return control

    @cached_property
    def tables(self) -> TableProgram:
        """The ground problem as tables."""
        return ground(self.control())

    @cached_property
    def circuit(self) -> Circuit | None:
        """The compiled problem; None where grounding alone refutes it.

        Raises:
            HeronError: it would exceed `limit` rows.
        """
        if self.tables.unsatisfiable:
            return None
        try:
            return Circuit([len(values) for values in self.tables.values], self.tables.tables, self.limit)
        except TooLargeError:
            raise HeronError(
                f"the space of sketch '{self.name}' needs a circuit of more than {self.limit} rows",
                "fewer tile levels, or extents with fewer divisors, make it smaller",
            ) from None

    @cached_property
    def variables(self) -> dict[Value, int]:
        """Number in the circuit of each variable of the sketch."""
        return {family[1]: number for number, family in enumerate(self.tables.families) if family[0] == "value"}

    @cached_property
    def domains(self) -> dict[Value, tuple[Value, ...]]:
        """Values of each variable that some program has."""
        if self.circuit is None or not self.circuit.satisfiable:
            return {}
        marginals = self.circuit.marginals()
        return {
            variable: tuple(
                value for value, share in zip(self.tables.values[number], marginals[number], strict=True) if share > 0
            )
            for variable, number in self.variables.items()
        }

    @cached_property
    def size(self) -> int:
        """Exact number of programs."""
        return self.circuit.count() if self.circuit else 0

    def weights(self, pins: Pins) -> dict[int, npt.NDArray[np.float64]] | None:
        """Pins as weights of the circuit; None if a pin leaves no value."""
        weights: dict[int, npt.NDArray[np.float64]] = {}
        for variable, allowed in pins.items():
            number = self.variables.get(variable)
            if number is None:
                raise HeronError(
                    f"sketch '{self.name}' has no variable {text(variable)}",
                    suggestion(text(variable), (text(one) for one in self.variables if is_shown(one))),
                )
            weight = np.array([float(value in allowed) for value in self.tables.values[number]])
            if not weight.any():
                return None
            weights[number] = weight
        return weights

    def count(self, pins: Pins) -> int:
        """Exact number of programs under pins."""
        weights = self.weights(pins)
        return 0 if weights is None or self.circuit is None else self.circuit.count(weights)

    def sample(self, number: int, rng: np.random.Generator, pins: Pins | None = None) -> list[Candidate]:
        """Independent, exactly uniform programs under pins; none if there is none."""
        weights = self.weights(pins or {})
        if weights is None or self.circuit is None:
            return []
        return [self._candidate(row) for row in self.circuit.sample(number, rng, weights)]

    def marginals(self) -> dict[Value, dict[Value, float]]:
        """For each variable the share of programs that have each value."""
        if self.circuit is None:
            return {}
        shares = self.circuit.marginals()
        return {
            variable: {
                value: float(share)
                for value, share in zip(self.tables.values[number], shares[number], strict=True)
                if share > 0
            }
            for variable, number in self.variables.items()
            if number in shares
        }

    def candidate(self, knobs: Mapping[Value, Value]) -> Candidate:
        """The program with these knobs.

        Raises:
            HeronError: the knobs do not make exactly one program.
        """
        pins = {knob: frozenset({value}) for knob, value in knobs.items()}
        programs = self.count(pins)
        if programs != 1:
            raise HeronError(f"sketch '{self.name}' has {programs} programs with these values, not one")
        return self.sample(1, np.random.default_rng(0), pins)[0]

    def _candidate(self, row: npt.NDArray[np.intp]) -> Candidate:
        values = {variable: self.tables.values[number][row[number]] for variable, number in self.variables.items()}
        return Candidate(self.name, values, self._chosen)

    @cached_property
    def _chosen(self) -> tuple[Value, ...]:
        """Knobs with more than one candidate; named numbers and fixed knobs do not identify a program."""
        return tuple(
            knob for knob in self.sketch.knobs if is_shown(knob) and len(self.tables.values[self.variables[knob]]) > 1
        )


def _lifted(sketch: Sketch, relaxed: Iterable[str]) -> Iterator[str]:
    """Names of the constraints to lift; of a rule those that only forbid."""
    named = set(relaxed)
    for constraint in sketch.constraints:
        if constraint.defines is not None:
            if constraint.name in named:
                raise HeronError(
                    f"{constraint.name} defines {text(constraint.defines)}: without it there is no value",
                    "constraints that only forbid can be lifted",
                )
        elif constraint.name in named or constraint.rule in named:
            yield constraint.name


class Space:
    """The space of an operator on a target.

    Args:
        sketches: the sketches that are searched.
        relaxed: names of constraints that are lifted.
    """

    def __init__(self, sketches: Sequence[Sketch], relaxed: Iterable[str] = ()) -> None:
        self.parts = [SketchSpace(sketch, relaxed) for sketch in sketches]
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise InternalError(f"two sketches have the same name: {names}")

    def __iter__(self) -> Iterator[SketchSpace]:
        return iter(self.parts)

    def __getitem__(self, name: str) -> SketchSpace:
        return next(part for part in self.parts if part.name == name)

    @property
    def size(self) -> int:
        """Exact number of programs."""
        return sum(part.size for part in self.parts)

    def sample(self, number: int, rng: np.random.Generator, pins: Pins | None = None) -> list[Candidate]:
        """Independent uniform programs: each sketch is drawn by its share. None if there is no program.

        A pin on a variable that a sketch does not have leaves that sketch out.
        """
        counts = [self.count_in(part, pins or {}) for part in self.parts]
        total = sum(counts)
        if total == 0:
            return []
        shares = np.array([count / total for count in counts])
        drawn = rng.multinomial(number, shares / shares.sum())
        found: list[Candidate] = []
        for part, how_many in zip(self.parts, drawn, strict=True):
            if how_many:
                found += part.sample(int(how_many), rng, pins)
        return [found[i] for i in rng.permutation(len(found))]

    def count(self, pins: Pins) -> int:
        """Exact number of programs under pins."""
        return sum(self.count_in(part, pins) for part in self.parts)

    @staticmethod
    def count_in(part: SketchSpace, pins: Pins) -> int:
        """Exact number of a sketch's programs under pins; none where it lacks a pinned variable."""
        if not pins:
            return part.size
        return part.count(pins) if all(variable in part.variables for variable in pins) else 0
