"""Variables that are another one under other names: they leave a problem before it is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heron_asp.space.table import Index, Rows, Table, table

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alias:
    """A variable whose value another one determines, and the other way round.

    Attributes:
        root: the other variable, itself no alias.
        index: for each value index of the root the variable's, -1 where there is none.
    """

    root: int
    index: Index

    def spread(self, weight: Floats, missing: float) -> Floats:
        """A number for each value of the variable (the last axis) as one for each value of the root."""
        result: Floats = np.where(self.index >= 0, weight[..., self.index], missing)
        return result


def without_aliases(tables: Sequence[Table], domain: Sequence[int]) -> tuple[list[Table], dict[int, Alias]]:
    """Takes away the variables that a table of two equates with another, one to one.

    Args:
        tables: constraints, arc-consistent.
        domain: number of values of each variable.

    Returns:
        The tables over what is left, and the aliases.
    """
    current = list(tables)
    aliases: dict[int, Alias] = {}
    for number in range(len(current)):
        one = current[number]
        if len(one.scope) != 2 or not _is_one_to_one(one.rows):
            continue
        root, variable = one.scope
        index = np.full(domain[root], -1, dtype=np.intp)
        index[one.rows[:, 0]] = one.rows[:, 1]
        back = np.full(domain[variable], -1, dtype=np.int32)
        back[one.rows[:, 1]] = one.rows[:, 0]
        current = [_renamed(other, variable, root, back) for other in current]
        for name, alias in list(aliases.items()):
            if alias.root == variable:
                known = np.where(index >= 0, alias.index[index], -1)
                aliases[name] = Alias(root, known)
        aliases[variable] = Alias(root, index)
    return [one for one in current if one.scope], aliases


def _is_one_to_one(rows: Rows) -> bool:
    return all(len(np.unique(rows[:, column])) == len(rows) for column in (0, 1))


def _renamed(one: Table, variable: int, root: int, back: npt.NDArray[np.int32]) -> Table:
    """A table that speaks of the root instead of the variable."""
    if variable not in one.scope:
        return one
    column = one.scope.index(variable)
    rows = one.rows[back[one.rows[:, column]] >= 0].copy()
    rows[:, column] = back[rows[:, column]]
    return table([root if other == variable else other for other in one.scope], rows)
