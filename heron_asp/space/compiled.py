"""A problem compiled: its circuit, and what the circuit leaves to rejection where all of it would be too large.

Bounds, and other large constraints that define nothing, can be left out of a circuit, and with them the variables that
only they read. Such a variable is a function of the others: it is looked up after sampling. What the bounds forbid is
rejected then, which stays exactly uniform; only the count becomes an estimate, and is called one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from heron_asp.space.circuit import Circuit, Weights
from heron_asp.space.ground import TableProgram
from heron_asp.space.restriction import Mask, Restriction
from heron_asp.space.table import Index, Table, TooLargeError, codes

ENOUGH = 0.3  # acceptance from which a further constraint in the circuit would save less than it costs
_SMALL = 10_000  # rows of a table that a circuit always takes: it makes the circuit smaller
_PROBE = 4_096  # samples that tell an acceptance
_TRIES = 8  # draws for each sample under pins where some are rejected


class Lookup:
    """A variable that follows from others, left out of a circuit.

    Args:
        table: the variable, last of the scope, with its value for each combination of the others.
        domain: number of values of every variable.
    """

    def __init__(self, table: Table, domain: Sequence[int]) -> None:
        *self.others, self.variable = table.scope
        self._sizes = [domain[other] for other in self.others]
        code = codes(table.rows, range(len(self.others)), self._sizes)
        order = np.argsort(code)
        self._known, self._value = code[order], table.column(self.variable)[order]

    def fill(self, rows: Index) -> Index:
        """The rows with the variable's value; those that have none are dropped."""
        code = codes(rows[:, self.others], range(len(self.others)), self._sizes)
        at = np.minimum(np.searchsorted(self._known, code), len(self._known) - 1)
        found = self._known[at] == code
        filled: Index = rows if found.all() else rows[found]
        filled[:, self.variable] = self._value[at[found]]
        return filled


@dataclass(frozen=True)
class Compiled:
    """A compiled problem.

    Attributes:
        program: the ground problem.
        circuit: the circuit; None where grounding alone refutes the problem.
        rejecting: restrictions that are not in the circuit.
        lookups: variables that are not in the circuit, in an order in which they follow from others.
        acceptance: the share of the circuit's solutions that are accepted; exactly 1 if nothing is rejected.
    """

    program: TableProgram
    circuit: Circuit | None
    rejecting: tuple[Restriction, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    acceptance: float = 1.0

    @property
    def exact(self) -> bool:
        """Whether the circuit's count is the number of solutions."""
        return not self.rejecting

    @property
    def outside(self) -> frozenset[int]:
        """Variables that the circuit knows nothing of."""
        return frozenset(one.variable for one in self.lookups)

    def bound(self, weights: Weights | None = None) -> int:
        """Number of the circuit's solutions: that of the problem's if `exact`, otherwise no fewer."""
        return self.circuit.count(self._inside(weights)) if self.circuit else 0

    def total(self, weights: Weights | None = None) -> float:
        """The weight of the circuit's solutions together, those to be rejected included."""
        if self.circuit is None or not self.circuit.satisfiable:
            return 0.0
        largest = [float(weights[variable].max()) for variable in self.outside if weights and variable in weights]
        return float(self.circuit.up(self._inside(weights)).total * np.prod(largest))

    def _inside(self, weights: Weights | None) -> Weights:
        if not self.lookups:
            return weights or {}
        return {variable: weight for variable, weight in (weights or {}).items() if variable not in self.outside}

    def draw(self, number: int, rng: np.random.Generator, weights: Weights | None = None) -> Index:
        """So many uniform solutions of the circuit, less those that are rejected."""
        if self.circuit is None:
            return np.zeros((0, len(self.program.values)), dtype=np.intp)
        rows = self.circuit.sample(number, rng, self._inside(weights))
        for lookup in self.lookups:
            rows = lookup.fill(rows)
            weight = (weights or {}).get(lookup.variable)
            if weight is not None:
                rows = rows[rng.random(len(rows)) * weight.max() < weight[rows[:, lookup.variable]]]
        for one in self.rejecting:
            rows = rows[one.check(rows)]
        return rows

    def draw_each(self, sets: int, number: int, rng: np.random.Generator, weights: Weights) -> list[Index]:
        """So many uniform solutions under each of several sets of pins; fewer where most are rejected.

        Args:
            sets: how many there are.
            number: solutions under each.
            rng: what is random.
            weights: for each variable that some set pins, a weight for each of its values, shape (sets, values).
        """
        if self.circuit is None:
            return [np.zeros((0, len(self.program.values)), dtype=np.intp)] * sets
        if self.exact:
            return self.circuit.sample_each(sets, number, rng, weights)
        drawn = self.circuit.sample_each(sets, _TRIES * number, rng, self._inside(weights))
        of = np.repeat(np.arange(sets), [len(rows) for rows in drawn])
        rows = np.concatenate([np.concatenate(drawn), of[:, None]], axis=1)  # the set as one more column
        for lookup in self.lookups:
            rows = lookup.fill(rows)
            weight = weights.get(lookup.variable)
            if weight is not None:
                of = rows[:, -1]
                chance = weight[of, rows[:, lookup.variable]]
                rows = rows[rng.random(len(rows)) * weight.max(axis=1)[of] < chance]
        for one in self.rejecting:
            rows = rows[one.check(rows)]
        edges = np.searchsorted(rows[:, -1], np.arange(sets + 1))
        return [rows[first:last, :-1][:number] for first, last in pairwise(edges.tolist())]


def compile_program(program: TableProgram, limit: int, domain: Sequence[Mask] | None = None) -> Compiled:
    """Compiles a ground problem, all of it if that stays within `limit` rows.

    Args:
        program: the ground problem.
        limit: most rows of the circuit.
        domain: for each variable, values to keep; all by default.

    Raises:
        TooLargeError: even what defines the variables exceeds `limit`.
    """
    if program.unsatisfiable:
        return Compiled(program, None)
    if domain is not None:
        kept = [
            Table((variable,), np.flatnonzero(mask).astype(np.int32)[:, None])
            for variable, mask in enumerate(domain)
            if not mask.all()
        ]
        program = replace(program, tables=[*program.tables, *kept])
    tabled = [one for one in program.restrictions if one.tables]
    untabled = [one for one in program.restrictions if not one.tables]
    try:
        compiled = _compiled(program, tabled, untabled, limit)
    except TooLargeError:
        compiled = _relaxed(program, tabled, untabled, limit)
    if not compiled.bound():  # nothing to reject
        return replace(compiled, rejecting=())
    return compiled if compiled.exact else replace(compiled, acceptance=_acceptance(compiled, 16 * _PROBE))


def _compiled(
    program: TableProgram, inside: Sequence[Restriction], outside: Sequence[Restriction], limit: int
) -> Compiled:
    """Compiles what defines variables and some restrictions; the others reject."""
    tables = list(program.tables)
    further = [one for restriction in inside for one in restriction.tables]
    unread = {variable for one in outside for variable in one.auxiliary}
    lookups: list[Lookup] = []
    if outside:
        tables, lookups = _without_sinks(tables, further, [len(values) for values in program.values])
        unread |= {one.variable for one in lookups}
    sizes = [1 if variable in unread else len(values) for variable, values in enumerate(program.values)]
    return Compiled(program, Circuit(sizes, [*tables, *further], limit), tuple(outside), tuple(lookups))


def _without_sinks(
    tables: Sequence[Table], further: Sequence[Table], domain: Sequence[int]
) -> tuple[list[Table], list[Lookup]]:
    """Takes away definitions of variables that nothing reads, as long as there are any.

    Args:
        tables: definitions; the last variable of a table's scope is what it defines.
        further: other readers.
        domain: number of values of every variable.
    """
    users: list[set[int]] = [set() for _ in domain]
    for number, one in enumerate((*tables, *further)):
        for variable in one.scope:
            users[variable].add(number)
    taken: list[Table] = []
    waiting = list(range(len(domain)))
    while waiting:
        variable = waiting.pop()
        if len(users[variable]) != 1:
            continue
        (number,) = users[variable]
        if number < len(tables) and len(tables[number].scope) > 1 and tables[number].scope[-1] == variable:
            taken.append(tables[number])
            for other in tables[number].scope:
                users[other].discard(number)
                waiting.append(other)
    gone = set(map(id, taken))
    return [one for one in tables if id(one) not in gone], [Lookup(one, domain) for one in reversed(taken)]


def _relaxed(
    program: TableProgram, tabled: Sequence[Restriction], untabled: Sequence[Restriction], limit: int
) -> Compiled:
    """Leaves the large restrictions out, then puts back the most violated one by one while they fit and are needed.

    A restriction of one variable that a large one reads is left out as well: it would keep the variable in the circuit.
    """
    rng = np.random.default_rng(0)
    large = [one for one in tabled if one.auxiliary or sum(len(t.rows) for t in one.tables) > _SMALL]
    read = {variable for one in (*large, *untabled) for variable in one.scope}
    inside = [one for one in tabled if not any(one is other for other in large)]
    outside = large + [one for one in inside if len(one.scope) == 1 and read.issuperset(one.scope)]
    inside = [one for one in inside if not any(one is other for other in outside)]
    refused = list(untabled)
    compiled = _compiled(program, inside, [*outside, *refused], limit)
    while outside and len(rows := replace(compiled, rejecting=()).draw(_PROBE, rng)):
        allowed = [one.check(rows) for one in outside]
        if np.all([*allowed, *(one.check(rows) for one in refused)], axis=0).mean() >= ENOUGH:
            break
        worst = min(range(len(outside)), key=lambda i: float(allowed[i].mean()))
        if allowed[worst].all():  # the others reject nothing; what does cannot be put back
            break
        chosen = outside.pop(worst)
        try:
            compiled = _compiled(program, [*inside, chosen], [*outside, *refused], limit)
            inside.append(chosen)
        except TooLargeError:
            refused.append(chosen)
    return compiled


def _acceptance(compiled: Compiled, samples: int) -> float:
    """The share of the circuit's solutions that are accepted, from samples of a fixed seed."""
    return len(compiled.draw(samples, np.random.default_rng(1))) / samples
