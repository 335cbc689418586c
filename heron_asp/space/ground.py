"""Reads the ground program of `rules/csp/csp.lp` into tables.

Five shapes are understood: exactly-one choices, functional rules with at most two value atoms, positive nogoods, a
sum above a bound, totality. What they mean is read off the ground rules alone; products, selections and capacities
are not known here. Any other constraint, such as a rule of the user's own, is read by evaluating it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import clingo
import numpy as np

from heron_asp.errors import InternalError
from heron_asp.space.observed import GroundProgram, simplified
from heron_asp.space.restriction import AtMost, Body, Definitions, Forbidden, Nogoods, Place, Restriction, Weight
from heron_asp.space.table import Rows, Table, table
from heron_asp.terms import Value, from_symbol, text

VALUED = {"value": 2, "chain": 3, "outcome": 2}  # predicates, with arity, whose last argument is the value of the rest
MOST_SUMS = 2**22  # partial sums of a table, at most

Family: TypeAlias = tuple[Value, ...]  # a predicate with all arguments but the last, e.g. ("value", tile(c, m, task))


@dataclass
class TableProgram:
    """The problem as tables.

    Attributes:
        families: variables, in the order of their numbers.
        values: for each variable its values, in the order of their indices.
        tables: what defines variables; the last one of a table's scope follows from the others.
        restrictions: what only forbids.
        unsatisfiable: a constraint has no condition left.
    """

    families: list[Family] = field(default_factory=list)
    values: list[list[Value]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    restrictions: list[Restriction] = field(default_factory=list)
    unsatisfiable: bool = False

    def add(self, family: Family, values: Iterable[Value]) -> int:
        """Adds a variable and returns its number."""
        self.families.append(family)
        self.values.append(list(values))
        return len(self.families) - 1


def ground(control: clingo.Control) -> TableProgram:
    """Grounds a control that holds `csp.lp` and a sketch, and reads the result.

    Raises:
        InternalError: a ground rule has none of the five shapes.
    """
    program = GroundProgram()
    control.register_observer(program, replace=True)
    control.ground([("base", [])])
    return _Reader(control, program).run()


def _by_value(pair: tuple[Value, int]) -> tuple[int, str]:
    value, _ = pair
    return (value, "") if isinstance(value, int) else (-1, text(value))


def _members(control: clingo.Control) -> dict[Family, list[tuple[Value, int]]]:
    """The values of every variable with their atoms.

    Atoms are read by their text, which is one call of clingo's: all arguments but the last only once a family, and the
    last one where it is no number.
    """
    members: dict[str, list[tuple[Value, int]]] = {}
    families: dict[str, Family] = {}
    for name, arity in VALUED.items():
        for atom in control.symbolic_atoms.by_signature(name, arity):
            symbol = atom.symbol
            written = str(symbol)
            front, _, last = written[:-1].rpartition(",")
            value: Value
            if last.removeprefix("-").isdecimal():
                value = int(last)
            else:  # its text may have commas
                value = from_symbol(symbol.arguments[-1])
                front = written.removesuffix(f",{symbol.arguments[-1]})")
            if front not in families:
                families[front] = (name, *map(from_symbol, symbol.arguments[:-1]))
            members.setdefault(front, []).append((value, atom.literal))
    return {families[front]: pairs for front, pairs in members.items()}


class _Reader:
    def __init__(self, control: clingo.Control, program: GroundProgram) -> None:
        self.control = control
        self.program = program
        self.out = TableProgram()
        self.nogoods: dict[tuple[str, tuple[int, ...]], list[tuple[int, ...]]] = {}
        self.general: dict[tuple[str, tuple[int, ...]], list[Body]] = {}
        self.place: dict[int, Place] = {}
        members = _members(control)
        for family in sorted(members, key=text):
            pairs = sorted(members[family], key=_by_value)
            number = self.out.add(family, [value for value, _ in pairs])
            self.place.update({literal: (number, index) for index, (_, literal) in enumerate(pairs)})
        self.violated = {
            atom.literal: str(from_symbol(atom.symbol.arguments[0]))
            for atom in control.symbolic_atoms.by_signature("violated", 1)
        }

    @cached_property
    def names(self) -> dict[int, str]:
        """Atoms, for messages."""
        return {atom.literal: str(atom.symbol) for atom in self.control.symbolic_atoms}

    def run(self) -> TableProgram:
        places = np.full((max(self.place, default=0) + 1, 2), -1, dtype=np.int32)
        places[list(self.place)] = list(self.place.values())
        rules = simplified(self.program, places)
        wrong = rules.unread()
        if wrong is not None:
            raise self._unread(f"{self._show((int(rules.heads[wrong]),))} :- {self._show(rules.body(wrong))}")
        aliases: dict[int, list[Body]] = {}  # atoms without a value: what makes them true
        constraints: list[Body] = []
        for head, body in rules.others():
            if head:
                aliases.setdefault(head, []).append(body)
            else:
                constraints.append(body)
        names = self.names if self.violated else {}  # only rules of the user's own can be told that they are wrong
        self.definitions = Definitions(self.place, aliases, self.program.sums, names)
        exactly_one = self._exactly_one(aliases)
        for body in constraints:
            self._constraint(body, aliases, exactly_one)
        self._restrict()
        for variable, scopes in rules.functional([len(values) for values in self.out.values]).items():
            self._definition(variable, scopes)
        return self.out

    # -- rules -----------------------------------------------------------------------------------------------------

    def _exactly_one(self, aliases: dict[int, list[Body]]) -> set[int]:
        """Atoms that say 'exactly one of a choice': at least one and not two, of the values of one variable."""
        heads = {tuple(sorted(choice)) for choice in self.program.choices}
        for choice in heads:
            if any(atom not in self.place for atom in choice) or len({self.place[atom][0] for atom in choice}) != 1:
                raise self._unread(f"choice over {self._show(choice)}")
        bound = {
            atom: (lower, tuple(sorted(literal for literal, _ in body)))
            for atom, (lower, body) in self.program.sums.items()
            if lower in (1, 2) and all(weight == 1 for _, weight in body)
        }
        found = set()
        for atom, bodies in aliases.items():
            if len(bodies) == 1 and len(bodies[0]) == 2:
                low, high = bodies[0]
                if (
                    bound.get(low, (0, ()))[0] == 1
                    and bound.get(-high, (0, ()))[0] == 2
                    and bound[low][1] == bound[-high][1] in heads
                ):
                    found.add(atom)
        return found

    # -- constraints -----------------------------------------------------------------------------------------------

    def _constraint(self, body: Body, aliases: dict[int, list[Body]], exactly_one: set[int]) -> None:
        if len(body) == 1 and -body[0] in exactly_one:
            return  # a variable has exactly one value: that is what a variable is
        if len(body) == 1 and -body[0] in self.place:
            variable, index = self.place[-body[0]]
            self.out.tables.append(table((variable,), [[index]]))
        elif len(body) == 1 and -body[0] in aliases and self._names_values(aliases[-body[0]]):
            variable = self.place[aliases[-body[0]][0][0]][0]
            indices = {self.place[one[0]][1] for one in aliases[-body[0]]}
            if len(indices) < len(self.out.values[variable]):  # all values: that is what a variable is
                self.out.tables.append(table((variable,), [[index] for index in indices]))
        elif len(body) == 1 and body[0] in self.violated:
            for one in aliases.get(body[0], ()):
                self._forbid(one, self.violated[body[0]])
        else:
            self._forbid(body, "")

    def _forbid(self, body: Body, name: str) -> None:
        """None of the assignments in which the body holds."""
        if all(literal in self.place for literal in body):
            places = sorted({self.place[literal] for literal in body})
            scope = tuple(place[0] for place in places)
            if not body:
                self.out.unsatisfiable = True
            elif len(set(scope)) == len(scope):  # a body that asks one variable for two values never holds
                self.nogoods.setdefault((name, scope), []).append(tuple(place[1] for place in places))
        elif len(body) == 1 and body[0] in self.program.sums and self._is_plain_sum(body[0]):
            lower, weights = self.program.sums[body[0]]
            self._at_most(lower - 1, self._weights(weights), name)
        elif len(body) == 1 and -body[0] in self.program.sums and self._is_plain_sum(-body[0]):
            # at least so much: what is missing from the largest sum is at most the rest
            lower, weights = self.program.sums[-body[0]]
            missing = {variable: weight.max() - weight for variable, weight in self._weights(weights).items()}
            most = sum(int(weight.max()) for weight in self._weights(weights).values())
            self._at_most(most - lower, missing, name)
        else:
            self.general.setdefault((name, self.definitions.scope(body)), []).append(body)

    def _is_plain_sum(self, atom: int) -> bool:
        return all(abs(literal) in self.place for literal, _ in self.program.sums[atom][1])

    def _names_values(self, bodies: list[Body]) -> bool:
        return (
            all(len(body) == 1 and body[0] in self.place for body in bodies)
            and len({self.place[body[0]][0] for body in bodies}) == 1
        )

    def _restrict(self) -> None:
        """Restrictions of what was collected by scope."""
        for (name, scope), bad in self.nogoods.items():
            sizes = tuple(len(self.out.values[variable]) for variable in scope)
            nogoods = Nogoods(scope, sizes, np.array(bad, dtype=np.int32))
            self._add(name, scope, nogoods.table(), nogoods)
        for (name, scope), bodies in self.general.items():
            sizes = tuple(len(self.out.values[variable]) for variable in scope)
            forbidden = Forbidden(self.definitions, scope, sizes, tuple(bodies))
            if scope:
                self._add(name, scope, forbidden.table(), forbidden)
            elif not forbidden(np.zeros((1, 0), dtype=np.intp)).all():
                self.out.unsatisfiable = True

    def _add(self, name: str, scope: tuple[int, ...], found: Table | None, check: Nogoods | Forbidden) -> None:
        named = name or f"a constraint on {', '.join(self._show_variable(variable) for variable in scope)}"
        self.out.restrictions.append(Restriction(named, scope, () if found is None else (found,), (), check))

    def _weights(self, body: tuple[tuple[int, int], ...]) -> dict[int, Weight]:
        """The weight of each value of each variable of a sum; values that are not named weigh nothing."""
        weight: dict[int, Weight] = {}
        for literal, value in body:
            variable, index = self.place[abs(literal)]
            own = weight.setdefault(variable, np.zeros(len(self.out.values[variable]), dtype=np.int64))
            if literal < 0:  # every value but this one
                own += value
                value = -value
            own[index] += value
        return weight

    def _at_most(self, most: int, weight: dict[int, Weight], name: str) -> None:
        """A sum of one weight a variable is at most `most`: a chain of tables over classes of partial sums.

        Two partial sums are alike if the same rests still fit, so a class is the number of rests that fit.
        """
        variables = tuple(sorted(weight, key=lambda variable: len(np.unique(weight[variable]))))
        named = name or f"a bound on {', '.join(self._show_variable(variable) for variable in variables)}"
        first = len(self.out.families)
        tables = self._chain(most, weight, variables)
        auxiliary = tuple(range(first, len(self.out.families)))
        check = AtMost(most, weight)
        self.out.restrictions.append(Restriction(named, tuple(sorted(weight)), tuple(tables), auxiliary, check))

    def _chain(self, most: int, weight: dict[int, Weight], variables: tuple[int, ...]) -> list[Table]:
        """The tables of a sum; none if there would be too many partial sums."""
        tables: list[Table] = []
        rests = [np.zeros(1, dtype=np.int64)]
        for variable in reversed(variables[1:]):
            own = np.unique(weight[variable])
            if len(rests[-1]) * len(own) > MOST_SUMS:
                return []
            sums = np.unique((rests[-1][:, None] + own[None, :]).ravel())
            rests.append(sums[sums <= most])
        rests.reverse()
        before: int | None = None
        partial = np.zeros(1, dtype=np.int64)
        for variable, rest in zip(variables, rests, strict=True):
            sums = partial[:, None] + weight[variable][None, :]
            fitting = np.searchsorted(rest, most - sums, "right")  # how many rests still fit
            classes, inverse = np.unique(fitting[fitting > 0], return_inverse=True)
            here, there = np.nonzero(fitting > 0)
            if variable == variables[-1]:
                last = [there] if before is None else [here, there]
                members = [variable] if before is None else [before, variable]
                tables.append(table(members, np.stack(last, axis=1).astype(np.int32)))
                break
            number = self.out.add(("partial", most, *map(str, variables), variable), [int(c) for c in classes])
            columns = [there, inverse] if before is None else [here, there, inverse]
            members = [variable, number] if before is None else [before, variable, number]
            tables.append(table(members, np.stack(columns, axis=1).astype(np.int32)))
            worst = np.zeros(len(classes), dtype=np.int64)  # any member stands for its class
            worst[inverse] = sums[here, there]
            before, partial = number, worst
        return tables

    # -- definitions -----------------------------------------------------------------------------------------------

    def _definition(self, variable: int, scopes: dict[tuple[int, ...], Rows]) -> None:
        """A variable that follows from others: one table, or a selection among several; with none it has no value."""
        scopes = scopes or {(): np.zeros((0, 1), dtype=np.int32)}
        if len(scopes) == 1:
            ((scope, rows),) = scopes.items()
            self.out.tables.append(table((*scope, variable), rows))
            return
        selectors = set.intersection(*(set(scope) for scope in scopes))
        if len(selectors) != 1:
            raise self._unread(f"several ways to {text(self.out.families[variable])} without one selector")
        (selector,) = selectors
        gates = [self._gate(variable, selector, scope, rows) for scope, rows in scopes.items()]
        merged = gates[0]
        for gate in gates[1:]:
            merged = self._merge(variable, merged, gate)
        absent = len(self.out.values[variable])
        self.out.tables.append(table((merged, variable), [[index, index] for index in range(absent)]))

    def _gate(self, variable: int, selector: int, scope: tuple[int, ...], rows: Rows) -> int:
        """A variable that has the value of one way, or is absent where the selector takes another way."""
        absent = len(self.out.values[variable])
        gate = self.out.add(("gate", self.out.families[variable], *map(str, scope)), range(absent + 1))
        column = scope.index(selector)
        others = np.indices([len(self.out.values[other]) for other in scope]).reshape(len(scope), -1).T
        others = others[~np.isin(others[:, column], rows[:, column])]
        without = np.concatenate([others, np.full((len(others), 1), absent)], axis=1)
        self.out.tables.append(table((*scope, gate), np.concatenate([rows, without.astype(np.int32)])))
        return gate

    def _merge(self, variable: int, left: int, right: int) -> int:
        """A variable that has the value of whichever of two gates is present."""
        absent = len(self.out.values[variable])
        merged = self.out.add(("merge", left, right), range(absent + 1))
        rows = [(index, absent, index) for index in range(absent)] + [
            (absent, index, index) for index in range(absent + 1)
        ]
        self.out.tables.append(table((left, right, merged), rows))
        return merged

    # -- text ------------------------------------------------------------------------------------------------------

    def _show_variable(self, variable: int) -> str:
        return text(self.out.families[variable][1])

    def _show(self, body: Iterable[int]) -> str:
        return ", ".join(("not " if one < 0 else "") + self.names.get(abs(one), "an auxiliary atom") for one in body)

    def _unread(self, what: str) -> InternalError:
        return InternalError(f"the ground program has a rule of none of the five shapes: {what}")
