"""What clingo grounds, kept as arrays: a rule at a time would cost Python more than grounding costs clingo."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import clingo
import numpy as np
import numpy.typing as npt

from heron_asp.errors import InternalError
from heron_asp.space.restriction import Body
from heron_asp.space.table import Index, Rows, packed, sorting, starts

Literals: TypeAlias = npt.NDArray[np.int32]
Ways: TypeAlias = dict[
    int, dict[tuple[int, ...], Rows]
]  # by variable, by the variables of a body: their indices, its own


class GroundProgram(clingo.Observer):
    """A clingo observer that keeps the ground rules. Replaces the solver, whose sums have 32 bits."""

    def __init__(self) -> None:
        self.choices: list[tuple[int, ...]] = []
        self.sums: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._heads = array("i")
        self._literals = array("i")
        self._ends = array("i")

    def rule(self, choice: bool, head: Sequence[int], body: Sequence[int]) -> None:
        """A normal rule, a choice or a constraint."""
        if choice:
            self.choices.append(tuple(head))
            return
        if len(head) > 1:
            raise InternalError("a disjunction")
        self._heads.append(head[0] if head else 0)
        self._literals.extend(body)
        self._ends.append(len(self._literals))

    def weight_rule(self, choice: bool, head: Sequence[int], lower_bound: int, body: Sequence[tuple[int, int]]) -> None:
        """`head` holds where the weights of true atoms reach the bound."""
        if choice or len(head) != 1:
            raise InternalError("a weight constraint with a choice or without a head")
        self.sums[head[0]] = (lower_bound, tuple(body))

    def rules(self) -> tuple[Literals, Literals, Index]:
        """The head of each rule (0: none), the literals of all bodies, and how many of these each has."""
        heads, literals, ends = (np.array(one, dtype=np.int32) for one in (self._heads, self._literals, self._ends))
        return heads, literals, np.diff(ends, prepend=0).astype(np.intp)


@dataclass(frozen=True)
class Rules:
    """Ground rules without what is true anyway, and without those in which something is false.

    Attributes:
        heads: of each rule; 0 for a constraint.
        literals: of all bodies.
        first: the first literal of each rule, and the number of literals last.
        places: the atoms that are values, shape (atoms, 2): a variable and the index of its value; -1 for other atoms.
    """

    heads: Literals
    literals: Literals
    first: Index
    places: Rows

    def body(self, rule: int) -> Body:
        """The literals of a rule."""
        return tuple(self.literals[self.first[rule] : self.first[rule + 1]].tolist())

    @property
    def _values(self) -> npt.NDArray[np.bool_]:
        """Rules whose head is a value."""
        found: npt.NDArray[np.bool_] = self.places[self.heads, 0] >= 0
        return found

    def others(self) -> Iterator[tuple[int, Body]]:
        """Head and body of the rules whose head is no value."""
        for rule in np.flatnonzero(~self._values):
            yield int(self.heads[rule]), self.body(int(rule))

    def unread(self) -> int | None:
        """A rule that gives a value and whose body is no more than two values; None if there is none such."""
        wrong = np.diff(self.first) > 2
        other = (self.literals < 0) | (self.places[np.abs(self.literals), 0] < 0)
        wrong[np.repeat(np.arange(len(self.heads)), np.diff(self.first))[other]] = True
        found = np.flatnonzero(wrong & self._values)
        return int(found[0]) if len(found) else None

    def functional(self, domain: Sequence[int]) -> Ways:
        """The rules that give a variable its value, by variable and the variables that it follows from.

        Args:
            domain: number of values of every variable.

        Returns:
            Of each rule the indices of these variables' values and of its own value.
        """
        chosen = np.flatnonzero(self._values)
        first, length = self.first[chosen], np.diff(self.first)[chosen]
        padded = np.append(self.literals, np.zeros(2, dtype=np.int32))  # atom 0 is none: its place is (-1, -1)
        one = self.places[np.where(length > 0, padded[first], 0)]
        two = self.places[np.where(length > 1, padded[first + 1], 0)]
        own = self.places[self.heads[chosen]]
        turned = (two[:, 0] >= 0) & (two[:, 0] < one[:, 0])
        one[turned], two[turned] = two[turned], one[turned]
        same = (one[:, 0] == two[:, 0]) & (two[:, 0] >= 0)
        never = same & (one[:, 1] != two[:, 1])  # a body that asks one variable for two values never holds
        two[same] = -1
        ways: Ways = {variable: {} for variable in np.unique(own[:, 0]).tolist()}
        own, one, two = own[~never], one[~never], two[~never]
        number = len(domain) + 1
        code, span = packed([own[:, 0], one[:, 0] + 1, two[:, 0] + 1], [number, number, number])
        order = sorting(code, span)
        edges = np.append(starts(code[order]), len(order))
        for low, high in pairwise(edges.tolist()):
            group = order[low:high]
            scope = tuple(int(side[group[0], 0]) for side in (one, two) if side[group[0], 0] >= 0)
            columns = [side[group, 1] for side in (one, two)[: len(scope)]]
            ways[int(own[group[0], 0])][scope] = np.stack([*columns, own[group, 1]], axis=1)
        return ways


def simplified(program: GroundProgram, places: Rows) -> Rules:
    """The rules of a ground program, with facts taken out of them.

    Args:
        program: the program.
        places: for each atom a variable and the index of a value, or -1 twice; shape (more than atoms, 2).
    """
    heads, literals, length = program.rules()
    most = int(max(heads.max(initial=0), np.abs(literals).max(initial=0), len(places) - 1))
    wide = np.full((most + 1, 2), -1, dtype=np.int32)
    wide[: len(places)] = places
    placed = wide[:, 0] >= 0
    fact = np.zeros(most + 1, dtype=bool)
    fact[heads[length == 0]] = True
    fact[0] = False
    rule = np.repeat(np.arange(len(heads)), length)
    gone = fact[heads] & ~placed[heads]
    gone[rule[(literals < 0) & fact[np.abs(literals)]]] = True  # something in it is false
    kept = ~gone[rule] & ~((literals > 0) & fact[np.abs(literals)] & ~placed[np.abs(literals)])
    length = np.bincount(rule[kept], minlength=len(heads))[~gone]
    return Rules(heads[~gone], literals[kept], np.append(0, np.cumsum(length)), wide)
