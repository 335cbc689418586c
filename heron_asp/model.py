"""The cost model: XGBoost on the values of the CSP variables, predicting log throughput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heron_asp.space import Candidate, Space, is_shown
from heron_asp.terms import Value, text

Floats = npt.NDArray[np.float64]


class CostModel(Protocol):
    """Ranks candidates by what was measured of others."""

    def fit(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> None:
        """Learns from scratch; a score is a log throughput, higher is better."""

    def predict(self, candidates: Sequence[Candidate]) -> Floats:
        """Predicted scores."""

    def importance(self) -> dict[Value, float]:
        """How much each variable matters to the predictions; variables without influence are left out."""


class Features:
    """Candidates as rows of numbers of fixed length: the union of all sketches' variables, and the sketch.

    A variable that a sketch does not have is missing (NaN). Values that are no numbers are numbered by their place in
    the variable's domain. Constant variables are left out.
    """

    def __init__(self, space: Space) -> None:
        values: dict[Value, dict[Value, None]] = {}
        for part in space:
            for variable, domain in part.domains.items():
                values.setdefault(variable, {}).update(dict.fromkeys(domain))
        self.sketches = [part.name for part in space]
        self.variables = [v for v, domain in values.items() if len(domain) > 1 and is_shown(v)]
        self._codes = [(variable, _numbers(values[variable])) for variable in self.variables]

    def rows(self, candidates: Sequence[Candidate]) -> Floats:
        """Shape (candidates, variables + 1)."""
        return np.array([self._row(candidate) for candidate in candidates]).reshape(len(candidates), -1)

    def _row(self, candidate: Candidate) -> list[float]:
        values = candidate.values
        row = [numbers.get(values.get(variable), np.nan) for variable, numbers in self._codes]
        return [*row, float(self.sketches.index(candidate.sketch))]


def _numbers(domain: Iterable[Value]) -> dict[Value | None, float]:
    """A number for each value of a variable."""
    if all(isinstance(value, int) for value in domain):
        return {value: float(value) for value in domain if isinstance(value, int)}
    return {value: float(place) for place, value in enumerate(sorted(domain, key=text))}


class BoostedTrees:
    """Gradient-boosted trees, trained from scratch on everything measured; deterministic.

    Args:
        space: the space whose variables are the features.
        seed: for row sampling.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.features = Features(space)
        self.seed = seed
        self._booster: Any = None

    def fit(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> None:
        """Learns from scratch."""
        import xgboost

        data = xgboost.DMatrix(self.features.rows(candidates), label=np.array(scores), nthread=1)
        parameters = {
            "objective": "reg:squarederror",
            "max_depth": 6,
            "eta": 0.15,
            "min_child_weight": 1,
            "lambda": 1.0,
            "colsample_bynode": 0.5,
            "seed": self.seed,
            "nthread": 1,
            "verbosity": 0,
        }
        self._booster = xgboost.train(parameters, data, num_boost_round=80)

    def predict(self, candidates: Sequence[Candidate]) -> Floats:
        """Predicted scores."""
        import xgboost

        if self._booster is None or not candidates:
            return np.zeros(len(candidates))
        predicted: Floats = self._booster.predict(xgboost.DMatrix(self.features.rows(candidates), nthread=1))
        return predicted.astype(np.float64)

    def importance(self) -> dict[Value, float]:
        """Total gain of the splits on each variable."""
        if self._booster is None:
            return {}
        gains = self._booster.get_score(importance_type="total_gain")
        found = {int(name[1:]): float(gain) for name, gain in gains.items()}
        return {
            self.features.variables[number]: gain
            for number, gain in sorted(found.items(), key=lambda pair: -pair[1])
            if number < len(self.features.variables)
        }
