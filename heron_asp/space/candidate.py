"""A program of a space, and pins: what fixes some of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from heron_asp.terms import Term, Value, plain, text

Pins: TypeAlias = Mapping[Value, frozenset[Value]]  # variables with the values that they may have
Weighting: TypeAlias = Mapping[Value, Mapping[Value, float]]  # variables with a weight a value; 1 where not named
Values: TypeAlias = dict[Value, Value]
Indices: TypeAlias = npt.NDArray[np.intp]


class Meaning:
    """What the value indices of a sketch's programs stand for.

    Args:
        sketch: the sketch's name.
        variables: number of each variable.
        values: for each number the variable's values.
        knobs: the variables that identify a program.
    """

    def __init__(
        self, sketch: str, variables: Mapping[Value, int], values: Sequence[Sequence[Value]], knobs: Sequence[Value]
    ) -> None:
        self.sketch = sketch
        self.numbers = variables
        self.knobs = tuple(knobs)
        self.columns = [(variable, number, values[number]) for variable, number in variables.items()]
        self._places = np.array([variables[knob] for knob in knobs], dtype=np.intp)
        self._texts = [[f"{text(knob)}={text(value)}" for value in values[variables[knob]]] for knob in knobs]

    def key(self, row: Indices) -> str:
        """Identifies a program within a task."""
        chosen = row.take(self._places).tolist()
        return f"{self.sketch}: " + "; ".join([one[index] for one, index in zip(self._texts, chosen, strict=True)])


@dataclass(frozen=True, eq=False)
class Candidate:
    """A program: a sketch and a value for each of its variables.

    Attributes:
        meaning: the sketch's variables and their values.
        row: the index of each variable's value, by number of variable.
    """

    meaning: Meaning
    row: Indices

    @property
    def sketch(self) -> str:
        """The sketch's name."""
        return self.meaning.sketch

    @property
    def knobs(self) -> tuple[Value, ...]:
        """The variables that were chosen; they identify the program."""
        return self.meaning.knobs

    @cached_property
    def values(self) -> Values:
        """Knobs and what follows from them."""
        indices = self.row.tolist()
        return {variable: known[indices[number]] for variable, number, known in self.meaning.columns}

    @cached_property
    def key(self) -> str:
        """Identifies the program within a task."""
        return self.meaning.key(self.row)

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
