"""CGA, the genetic algorithm of Heron (ASPLOS 2023, section 5): it evolves constraint problems, not solutions.

A child is not made by exchanging values, which would nearly always leave the space. Crossover pins each key variable
to the two parents' values, mutation drops one pin, and the space samples a solution of what is left: valid by
construction. Key variables are those that matter most to the cost model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heron_asp.measure.result import Measurement
from heron_asp.model import BoostedTrees, CostModel, Floats
from heron_asp.search.random import fresh
from heron_asp.search.search import best_seconds, score
from heron_asp.space import Candidate, Pins, SketchSpace, Space
from heron_asp.terms import Value


@dataclass(frozen=True)
class SearchOptions:
    """Sizes of the search. The paper's, for 2,000 trials, in brackets.

    Attributes:
        batch: candidates measured a round [32].
        first: candidates of the first round, drawn uniformly [32].
        population: candidates of a generation [200].
        generations: generations a round [5].
        elites: best predicted candidates that pass from one generation to the next [20].
        history: best measured candidates that join the population of each round [32].
        keys: share of the influential variables that crossover pins [0.14]. Our spaces have 10 to 20 of them, not 50:
            0.14 would pin two.
        exploit: share of a round that is taken from the top of the prediction, the rest by roulette [0.6].
        children: children sampled from one pinned problem [1]. Two share one upward pass of the pinned circuit.
    """

    batch: int = 32
    first: int = 32
    population: int = 200
    generations: int = 5
    elites: int = 20
    history: int = 32
    keys: float = 0.3
    exploit: float = 0.6
    children: int = 2

    @staticmethod
    def scaled(trials: int) -> SearchOptions:
        """The paper's sizes scaled down to a budget: more rounds of fewer trials, smaller populations."""
        batch = int(np.clip(trials // 8, 4, 32))
        return SearchOptions(
            batch=batch,
            first=int(np.clip(trials // 4, batch, 32)),
            population=int(np.clip(2 * trials, 48, 200)),
            generations=int(np.clip(trials // 16, 3, 5)),
            elites=int(np.clip(trials // 8, 4, 20)),
            history=int(np.clip(trials // 8, 4, 32)),
        )


class ConstrainedGenetic:
    """The search.

    Args:
        space: where children are sampled.
        seed: makes it reproducible.
        options: sizes.
        model: the cost model; boosted trees by default.
    """

    def __init__(self, space: Space, seed: int, options: SearchOptions, model: CostModel | None = None) -> None:
        self.space = space
        self.rng = np.random.default_rng(seed)
        self.options = options
        self.model = model or BoostedTrees(space, seed)
        self.measured: dict[str, tuple[Candidate, Measurement]] = {}
        self.seen: set[str] = set()

    def tell(self, candidate: Candidate, measurement: Measurement) -> None:
        """The outcome of a candidate."""
        self.measured[candidate.key] = (candidate, measurement)
        self.seen.add(candidate.key)

    def ask(self, most: int) -> list[Candidate]:
        """The next round."""
        if not self.measured:
            chosen = self._first(min(most, self.options.first))
        else:
            self._train()
            chosen = self._choose(self._evolve(), min(most, self.options.batch))
        self.seen.update(candidate.key for candidate in chosen)
        return chosen

    def _first(self, number: int) -> list[Candidate]:
        """Uniform samples; every sketch gets half of an equal part, however small its share of the space."""
        found = {one.key: one for one in self._floor(max(1, number // (2 * len(self.space.parts))))}
        for candidate in fresh(self.space, number, set(found), self.rng):
            found[candidate.key] = candidate
        return list(found.values())[:number]

    def _floor(self, each: int) -> list[Candidate]:
        """So many uniform samples of every sketch."""
        return [candidate for part in self.space for candidate in part.sample(each, self.rng)]

    def _train(self) -> None:
        outcomes = list(self.measured.values())
        scale = best_seconds([measurement for _, measurement in outcomes])
        self.model.fit(
            [candidate for candidate, _ in outcomes], [score(measurement, scale) for _, measurement in outcomes]
        )

    # -- evolution -------------------------------------------------------------------------------------------------

    def _evolve(self) -> list[tuple[float, Candidate]]:
        """All candidates of some generations with what is predicted of them, the best first."""
        ran = [(m.seconds, c) for c, m in self.measured.values() if m.seconds is not None]
        best = [candidate for _, candidate in sorted(ran, key=lambda pair: pair[0])[: self.options.history]]
        floor = self._floor(max(1, self.options.population // (2 * len(self.space.parts))))
        more = max(0, self.options.population - len(best) - len(floor))
        population = self._unique([*best, *floor, *self.space.sample(more, self.rng)])
        everything: dict[str, tuple[float, Candidate]] = {}
        keys = self._keys()
        predicted = self._predicted(population, everything)
        for _ in range(self.options.generations):
            elites = [candidate for _, candidate in _ranked(everything.values())[: self.options.elites]]
            children = self._children(population, predicted, keys)
            population = self._unique([*elites, *children])
            predicted = self._predicted(population, everything)
        return _ranked(everything.values())

    def _predicted(self, population: Sequence[Candidate], known: dict[str, tuple[float, Candidate]]) -> Floats:
        """What is predicted of each; what is not known yet is added."""
        new = [one for one in population if one.key not in known]
        known.update((one.key, (float(value), one)) for one, value in zip(new, self.model.predict(new), strict=True))
        return np.array([known[one.key][0] for one in population])

    def _keys(self) -> list[Value]:
        """The variables that matter most to the model."""
        influential = list(self.model.importance())
        return influential[: max(2, round(self.options.keys * len(influential)))]

    def _children(self, population: Sequence[Candidate], predicted: Floats, keys: Sequence[Value]) -> list[Candidate]:
        """Samples of the problems that pairs of parents pin, drawn by what is predicted of them."""
        children: list[Candidate] = []
        chance = roulette(predicted)
        own = {part.name: self._own(part, keys) for part in self.space}
        while len(children) < self.options.population:
            pairs = -(-(self.options.population - len(children)) // self.options.children)
            problems: dict[str, list[Pins]] = {}
            for one, other in self.rng.choice(len(population), (pairs, 2), p=chance):
                fitter, weaker = (one, other) if predicted[one] >= predicted[other] else (other, one)
                sketch = population[fitter].sketch
                pins = self._pins(population[fitter], population[weaker], own[sketch])
                problems.setdefault(sketch, []).append(pins)
            for sketch, pinned in problems.items():
                for found in self.space[sketch].sample_each(pinned, self.options.children, self.rng):
                    children += found
        return children

    @staticmethod
    def _own(part: SketchSpace, keys: Sequence[Value]) -> dict[Value, frozenset[Value]]:
        """The key variables that a sketch leaves a choice, with their values."""
        domains = {variable: frozenset(part.domains.get(variable, ())) for variable in keys}
        return {variable: domain for variable, domain in domains.items() if len(domain) > 1}

    def _pins(self, fitter: Candidate, weaker: Candidate, own: Mapping[Value, frozenset[Value]]) -> Pins:
        """Each key variable of the fitter parent's sketch has the value of one parent or the other, but for one.

        A value of the other parent counts where that sketch has it.
        """
        variables = list(own)
        if variables:
            del variables[self.rng.integers(len(variables))]
        pins: dict[Value, frozenset[Value]] = {}
        for variable in variables:
            value, other = fitter.values[variable], weaker.values.get(variable)
            pins[variable] = frozenset((value, other) if other in own[variable] else (value,))
        return pins

    # -- choice ----------------------------------------------------------------------------------------------------

    def _choose(self, ranked: Sequence[tuple[float, Candidate]], number: int) -> list[Candidate]:
        """The top of the prediction, and some further down by roulette; never one that was asked for before.

        The sketch that was measured least gets one trial a round, so that a bad start does not shut it out for good.
        """
        predicted = {candidate.key: value for value, candidate in ranked}
        new = [candidate for _, candidate in ranked if candidate.key not in self.seen]
        chosen = new[: round(self.options.exploit * number)]
        tried = Counter(candidate.sketch for candidate, _ in self.measured.values())
        rarest = min((part.name for part in self.space if part.size), key=lambda name: tried[name])
        chosen += [one for one in new[len(chosen) :] if one.sketch == rarest][: max(0, min(1, number - len(chosen)))]
        taken = {candidate.key for candidate in chosen}
        rest = [candidate for candidate in new if candidate.key not in taken]
        if rest:
            size = min(number - len(chosen), len(rest))
            picked = self.rng.choice(
                len(rest), size, replace=False, p=roulette(np.array([predicted[one.key] for one in rest]))
            )
            chosen += [rest[i] for i in sorted(picked)]
        if len(chosen) < number:
            known = self.seen | {candidate.key for candidate in chosen}
            chosen += fresh(self.space, number - len(chosen), known, self.rng)
        return chosen

    @staticmethod
    def _unique(candidates: Sequence[Candidate]) -> list[Candidate]:
        return list({candidate.key: candidate for candidate in candidates}.values())


def _ranked(pairs: Iterable[tuple[float, Candidate]]) -> list[tuple[float, Candidate]]:
    """The best predicted first."""
    return sorted(pairs, key=lambda pair: -pair[0])


def roulette(predicted: Floats) -> Floats:
    """Chances in proportion to predicted throughput (the exponential of the score)."""
    weight = np.exp(predicted - predicted.max())
    chances: Floats = weight / weight.sum()
    return chances
