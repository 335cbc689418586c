"""A program of a space, and pins: what fixes some of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from heron_asp.terms import Term, Value, plain, text

Pins: TypeAlias = Mapping[Value, frozenset[Value]]  # variables with the values that they may have
Weighting: TypeAlias = Mapping[Value, Mapping[Value, float]]  # variables with a weight a value; 1 where not named
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
