"""An exact counting circuit over a constraint satisfaction problem: count, uniform samples, marginals, all under pins.

Variables are eliminated (bucket elimination) and the trace is kept: a bucket holds rows, grouped by what is left of
their scope, and each row refers to one group of each earlier bucket that it was joined with. Going up adds and
multiplies weights; going down draws a row of a group in proportion to its weight and follows its references, which
samples solutions exactly uniformly. In the terms of knowledge compilation: a multi-valued d-DNNF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from heron_asp.space.alias import Alias, without_aliases
from heron_asp.space.elimination import Bucket, smallest, without_constants
from heron_asp.space.passes import Single, Tree, Weighed, draw, weighed
from heron_asp.space.table import Index, Table, arc_consistent

Weights = Mapping[int, npt.NDArray[np.float64]]
Floats = npt.NDArray[np.float64]
_MOST_LISTED = 2_000_000  # rows of a circuit that is kept as lists as well
_FEW = 4  # samples that are faster drawn one by one
_CELLS = 4_000_000  # rows times sets of pins that are weighed together


@dataclass(frozen=True)
class Pass:
    """What going up computed: the weight of every row and of every group of every bucket."""

    rows: tuple[Any, ...]
    groups: tuple[Any, ...]
    total: Any


class Circuit:
    """The compiled problem.

    Args:
        domain: number of values of each variable.
        tables: constraints; a variable in none of them is free.
        limit: most rows of all buckets together.
        restarts: elimination orders to try; the smallest is kept.

    Raises:
        TooLargeError: no order stays within `limit`.
    """

    def __init__(
        self, domain: Sequence[int], tables: Sequence[Table], limit: int = 8_000_000, restarts: int = 4
    ) -> None:
        self.domain = list(domain)
        reduced, self.alive = arc_consistent(tables, self.domain)
        self.satisfiable = all(mask.any() for mask in self.alive)
        self.buckets: list[Bucket] = []
        self.aliases: dict[int, Alias] = {}
        if self.satisfiable:
            kept, self.aliases = without_aliases(without_constants(reduced, self.alive), self.domain)
            free = [variable for variable in range(len(self.domain)) if variable not in self.aliases]
            constants = tuple(variable for variable in free if self.alive[variable].sum() == 1)
            variables = [variable for variable in free if self.alive[variable].sum() > 1]
            self.buckets = smallest(kept, self.alive, variables, limit, restarts)
            if constants:
                values = tuple(np.flatnonzero(self.alive[variable]).astype(np.int32) for variable in constants)
                self.buckets.append(Bucket(constants, values, 1, None, ()))
            self.satisfiable = all(bucket.size for bucket in self.buckets)
        read = {child for bucket in self.buckets for child, _ in bucket.references}
        self._roots = [number for number in range(len(self.buckets)) if number not in read]

    def __getstate__(self) -> dict[str, Any]:
        """What cannot be made anew in no time: circuits come from a child process."""
        again = ("_base", "_trees", "_weighed", "_single")
        return {name: value for name, value in self.__dict__.items() if name not in again}

    @property
    def rows(self) -> int:
        """Rows of all buckets: the size of the circuit."""
        return sum(bucket.size for bucket in self.buckets)

    # -- up --------------------------------------------------------------------------------------------------------

    def count(self, weights: Weights | None = None) -> int:
        """The exact number of solutions; with weights, of solutions whose pinned values have weight 1."""
        if not self.satisfiable:
            return 0
        base = self.up(weights or {})
        if base.total < 2**53:
            return int(base.total)
        return int(self._up(self._of_roots(weights or {}), None, exact=True).total)

    def up(self, weights: Weights) -> Pass:
        """The upward pass; only what the weights touch is computed anew."""
        return self._up(self._of_roots(weights), self._base, exact=False) if weights else self._base

    @cached_property
    def _base(self) -> Pass:
        return self._up({}, None, exact=False)

    def _of_roots(self, weights: Weights) -> Weights:
        """Weights of variables that have an equal one, moved to that one."""
        if self.aliases.keys().isdisjoint(weights):
            return weights
        moved = {variable: weight for variable, weight in weights.items() if variable not in self.aliases}
        for variable in weights:
            alias = self.aliases.get(variable)
            if alias is not None:
                weight = alias.spread(weights[variable], 0.0)
                moved[alias.root] = weight * moved[alias.root] if alias.root in moved else weight
        return moved

    def _fill(self, values: Index) -> Index:
        """Value indices with those of equal variables."""
        for variable, alias in self.aliases.items():
            values[:, variable] = alias.index[values[:, alias.root]]
        return values

    def _up(self, weights: Weights, base: Pass | None, exact: bool) -> Pass:
        rows: list[Any] = []
        groups: list[Any] = []
        dirty: list[bool] = []
        for number, bucket in enumerate(self.buckets):
            own = [i for i, variable in enumerate(bucket.variables) if variable in weights]
            changed = base is None or bool(own) or any(dirty[child] for child, _ in bucket.references)
            dirty.append(changed)
            if not changed and base is not None:
                rows.append(base.rows[number])
                groups.append(base.groups[number])
                continue
            weight: Any = np.array([1] * bucket.size, dtype=object) if exact else None
            factors = [weights[bucket.variables[i]].take(bucket.values[i]) for i in own]
            if exact:
                factors = [factor.astype(np.int64).astype(object) for factor in factors]
            for factor in (*factors, *(groups[child].take(group) for child, group in bucket.references)):
                weight = factor if weight is None else weight * factor
            if weight is None:
                weight = np.ones(bucket.size)
            rows.append(weight)
            groups.append(weight if bucket.start is None else np.add.reduceat(weight, bucket.start))
        total: Any = 1 if exact else 1.0
        for root in self._roots:
            total = total * groups[root][0]
        return Pass(tuple(rows), tuple(groups), total)

    # -- samples ---------------------------------------------------------------------------------------------------

    @cached_property
    def _trees(self) -> list[Tree]:
        return [Tree(bucket) for bucket in self.buckets]

    @cached_property
    def _weighed(self) -> list[Weighed]:
        return weighed(self._trees, {})

    @cached_property
    def _single(self) -> Single:
        return Single(self.buckets, self._base.rows, len(self.domain))

    def sample(self, number: int, rng: np.random.Generator, weights: Weights | None = None) -> Index:
        """Independent, exactly uniform solutions (in proportion to their weight, if weights are given).

        Returns:
            Value indices, shape (number, variables); no rows if there is no solution.
        """
        if number > _FEW or self.rows > _MOST_LISTED:
            alone = {variable: weight[None] for variable, weight in (weights or {}).items()}
            return self.sample_each(1, number, rng, alone)[0]
        state = self.up(weights or {}) if self.satisfiable else None
        if state is None or state.total == 0:
            return np.zeros((0, len(self.domain)), dtype=np.intp)
        drawn = [self._single.draw(rng, state.rows) for _ in range(number)]
        return self._fill(np.array(drawn, dtype=np.intp).reshape(number, len(self.domain)))

    def sample_each(self, sets: int, number: int, rng: np.random.Generator, weights: Weights) -> list[Index]:
        """The same under several sets of pins, which is far faster than one after the other.

        Args:
            sets: how many there are.
            number: solutions under each.
            rng: what is random.
            weights: for each variable that some set pins, a weight for each of its values, shape (sets, values).

        Returns:
            For each set value indices, shape (number, variables); no rows if it leaves no solution.
        """
        together = max(1, _CELLS // max(1, self.rows))
        found: list[Index] = []
        for first in range(0, sets, together):
            some = {variable: weight[first : first + together] for variable, weight in weights.items()}
            found += self._sample_each(min(together, sets - first), number, rng, some)
        return found

    def _sample_each(self, sets: int, number: int, rng: np.random.Generator, weights: Weights) -> list[Index]:
        none = np.zeros((0, len(self.domain)), dtype=np.intp)
        if not self.satisfiable:
            return [none] * sets
        columns = {variable: np.ascontiguousarray(weight.T) for variable, weight in self._of_roots(weights).items()}
        state = weighed(self._trees, columns, self._weighed) if weights else self._weighed
        possible = np.flatnonzero(np.all([np.broadcast_to(state[root].sums[0], sets) for root in self._roots], axis=0))
        values = self._fill(draw(state, np.repeat(possible, number), len(self.domain), rng))
        drawn = dict(zip(possible.tolist(), values.reshape(len(possible), number, len(self.domain)), strict=True))
        return [drawn.get(one, none) for one in range(sets)]

    # -- the best, and shares ----------------------------------------------------------------------------------------

    def best(self, scores: Weights, weights: Weights | None = None) -> tuple[Index, float] | None:
        """The solution with the largest sum of scores, one a variable.

        Args:
            scores: for a variable the score of each of its values; 0 for variables that are not named.
            weights: solutions of weight 0 do not count.

        Returns:
            Value indices, shape (variables,), and the sum; None if there is no solution.
        """
        if not self.satisfiable:
            return None
        weights = self._of_roots(weights or {})
        scores = dict(scores)
        for variable, alias in self.aliases.items():
            if variable in scores:
                scores[alias.root] = scores.get(alias.root, 0.0) + alias.spread(scores[variable], -np.inf)
        rows: list[Floats] = []
        groups: list[Floats] = []
        for bucket in self.buckets:
            value = np.zeros(bucket.size)
            for variable, column in zip(bucket.variables, bucket.values, strict=True):
                if variable in scores:
                    value = value + scores[variable].take(column)
                if variable in weights:
                    value = np.where(weights[variable].take(column) > 0, value, -np.inf)
            for child, group in bucket.references:
                value = value + groups[child].take(group)
            rows.append(value)
            groups.append(value if bucket.start is None else np.maximum.reduceat(value, bucket.start))
        total = sum(float(groups[root][0]) for root in self._roots)
        if total == -np.inf:
            return None
        values = np.zeros(len(self.domain), dtype=np.intp)
        chosen = [0] * len(self.buckets)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            row = chosen[position]
            if bucket.start is not None:
                first, last = bucket.start[row], bucket.start[row + 1] if row + 1 < bucket.groups else bucket.size
                row = int(first + rows[position][first:last].argmax())
            for variable, column in zip(bucket.variables, bucket.values, strict=True):
                values[variable] = column[row]
            for child, reference in bucket.references:
                chosen[child] = int(reference[row])
        return self._fill(values[None, :])[0], total

    def marginals(self, weights: Weights | None = None) -> dict[int, Floats]:
        """For each variable the share of solutions that have each of its values."""
        if not self.satisfiable:
            return {}
        state = self.up(weights or {})
        if state.total == 0:
            return {}
        share: list[Floats] = [np.zeros(bucket.groups) for bucket in self.buckets]
        result: dict[int, Floats] = {}
        for root in self._roots:
            share[root] = np.ones(1, dtype=np.float64)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            sums = state.groups[position]
            flow = np.divide(share[position], sums, where=sums > 0, out=np.zeros_like(share[position]))
            if bucket.start is not None:
                flow = np.repeat(flow, np.diff(np.append(bucket.start, bucket.size)))
            flow = flow * state.rows[position]
            for variable, column in zip(bucket.variables, bucket.values, strict=True):
                result[variable] = np.bincount(column, flow, minlength=self.domain[variable]).astype(np.float64)
            for child, reference in bucket.references:
                share[child] += np.bincount(reference, flow, minlength=len(share[child]))
        for variable, alias in self.aliases.items():
            found = alias.index >= 0
            shares = np.bincount(alias.index[found], result[alias.root][found], minlength=self.domain[variable])
            result[variable] = shares.astype(np.float64)
        return result
