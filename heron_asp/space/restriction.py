"""Constraints that only forbid. Each can be part of a circuit as tables, or be enforced by rejecting samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from heron_asp.errors import HeronError
from heron_asp.space.table import Index, Rows, Table, codes, table

Weight: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Body: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[int, int]  # a variable and the index of a value

MOST_CELLS = 2**22  # of a table of nogoods
MOST_EVALUATED = 2**19  # cells of a table that is made by evaluating rules
_CHUNK = 2**16


class Check(Protocol):
    """What a restriction allows."""

    def __call__(self, rows: Index) -> Mask:
        """Which rows (value indices of all variables) it allows."""


@dataclass(frozen=True)
class Restriction:
    """A constraint that only forbids.

    Attributes:
        name: where it comes from.
        scope: the variables that it speaks of.
        tables: what it allows; none where there would be too many rows.
        auxiliary: variables that only its tables use.
        check: what it allows, of whole assignments.
    """

    name: str
    scope: tuple[int, ...]
    tables: tuple[Table, ...]
    auxiliary: tuple[int, ...]
    check: Check


@dataclass(frozen=True)
class AtMost:
    """A sum of one weight a variable is at most `most`."""

    most: int
    weights: Mapping[int, Weight]

    def __call__(self, rows: Index) -> Mask:
        """Which rows it allows."""
        total = np.zeros(len(rows), dtype=np.int64)
        for variable, weight in self.weights.items():
            total += weight[rows[:, variable]]
        allowed: Mask = total <= self.most
        return allowed


@dataclass(frozen=True)
class Nogoods:
    """Combinations that must not occur.

    Attributes:
        scope: the variables.
        sizes: number of their values.
        bad: the combinations, shape (number, len(scope)).
    """

    scope: tuple[int, ...]
    sizes: tuple[int, ...]
    bad: Rows

    def __call__(self, rows: Index) -> Mask:
        """Which rows it allows."""
        both = np.concatenate([self.bad, rows[:, self.scope].astype(np.int32)])
        code = codes(both, range(len(self.scope)), self.sizes)
        return ~np.isin(code[len(self.bad) :], code[: len(self.bad)])

    def table(self) -> Table | None:
        """What it allows, None if that is too much to write down."""
        if np.prod([float(size) for size in self.sizes]) > MOST_CELLS:
            return None
        allowed = np.ones(self.sizes, dtype=bool)
        allowed[tuple(self.bad.T)] = False
        return table(self.scope, np.argwhere(allowed).astype(np.int32))


@dataclass(frozen=True)
class Definitions:
    """What makes ground atoms true, and their truth over many assignments at once.

    Attributes:
        place: atoms `value(Variable, Value)`.
        bodies: other atoms with the bodies of their rules.
        sums: atoms that hold where the weights of true literals reach a bound.
        names: of atoms, for messages.
    """

    place: Mapping[int, Place]
    bodies: Mapping[int, Sequence[Body]]
    sums: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]]
    names: Mapping[int, str]

    def scope(self, body: Body) -> tuple[int, ...]:
        """The variables that a body depends on.

        Raises:
            HeronError: an atom depends on itself.
        """
        found: set[int] = set()
        finished: set[int] = set()
        for literal in body:
            self._scope(abs(literal), found, finished, [])
        return tuple(sorted(found))

    def _scope(self, atom: int, found: set[int], finished: set[int], path: list[int]) -> None:
        if atom in self.place:
            found.add(self.place[atom][0])
        elif atom in path:
            loop = " and ".join(self.names.get(one, "an aggregate") for one in path[path.index(atom) :])
            raise HeronError(f"{loop}: defined by itself", "rules of `#program space.` define without recursion")
        elif atom not in finished:
            path.append(atom)
            for literal in self._below(atom):
                self._scope(abs(literal), found, finished, path)
            path.pop()
            finished.add(atom)

    def _below(self, atom: int) -> Iterator[int]:
        if atom in self.sums:
            yield from (literal for literal, _ in self.sums[atom][1])
        for body in self.bodies.get(atom, ()):
            yield from body

    def truth(self, body: Body, columns: Mapping[int, Index], known: dict[int, Mask]) -> Mask:
        """Where all literals of a body hold.

        Args:
            body: the literals.
            columns: value indices by variable, all of one length.
            known: atoms with their truth so far; filled.
        """
        length = len(next(iter(columns.values()))) if columns else 1
        result = np.ones(length, dtype=bool)
        for literal in body:
            own = self._truth(abs(literal), columns, known, length)
            result &= own if literal > 0 else ~own
        return result

    def _truth(self, atom: int, columns: Mapping[int, Index], known: dict[int, Mask], length: int) -> Mask:
        if atom in known:
            return known[atom]
        if atom in self.place:
            variable, index = self.place[atom]
            result: Mask = columns[variable] == index
        elif atom in self.sums:
            bound, weights = self.sums[atom]
            total = np.zeros(length, dtype=np.int64)
            for literal, weight in weights:
                own = self._truth(abs(literal), columns, known, length)
                total += weight * (own if literal > 0 else ~own)
            result = total >= bound
        else:
            result = np.zeros(length, dtype=bool)
            for body in self.bodies.get(atom, ()):
                result |= self.truth(body, columns, known)
        known[atom] = result
        return result


@dataclass(frozen=True)
class Forbidden:
    """Bodies of which none may hold.

    Attributes:
        definitions: what their atoms mean.
        scope: the variables that they depend on.
        sizes: number of their values.
        bodies: the bodies.
    """

    definitions: Definitions
    scope: tuple[int, ...]
    sizes: tuple[int, ...]
    bodies: tuple[Body, ...]

    def __call__(self, rows: Index) -> Mask:
        """Which rows it allows."""
        return self._allowed({variable: rows[:, variable] for variable in self.scope}, len(rows))

    def _allowed(self, columns: Mapping[int, Index], length: int) -> Mask:
        known: dict[int, Mask] = {}
        bad = np.zeros(length, dtype=bool)
        for body in self.bodies:
            bad |= self.definitions.truth(body, columns, known)
        return ~bad

    def table(self) -> Table | None:
        """What it allows, None if that is too much to write down."""
        cells = np.prod([float(size) for size in self.sizes])
        if cells > MOST_EVALUATED:
            return None
        kept = []
        for first in range(0, int(cells), _CHUNK):
            grid = np.unravel_index(np.arange(first, min(first + _CHUNK, int(cells))), self.sizes)
            columns = dict(zip(self.scope, grid, strict=True))
            kept.append(np.stack(grid, axis=1)[self._allowed(columns, len(grid[0]))].astype(np.int32))
        return table(self.scope, np.concatenate(kept))
