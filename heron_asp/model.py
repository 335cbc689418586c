"""The cost model: XGBoost on the values of the CSP variables, predicting log throughput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heron_asp.errors import InternalError
from heron_asp.space import Candidate, SketchSpace, Space, is_shown
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
        self.variables = [v for v, domain in values.items() if len(domain) > 1 and is_shown(v)]
        codes = [_numbers(values[variable]) for variable in self.variables]
        self._sketches = {
            part.name: _Columns.of(place, part, self.variables, codes) for place, part in enumerate(space)
        }

    def rows(self, candidates: Sequence[Candidate]) -> Floats:
        """Shape (candidates, variables + 1)."""
        rows = np.full((len(candidates), len(self.variables) + 1), np.nan)
        for name, columns in self._sketches.items():
            own = [place for place, candidate in enumerate(candidates) if candidate.sketch == name]
            if own:
                rows[own] = columns.rows([candidates[place] for place in own], len(self.variables) + 1)
        return rows


@dataclass(frozen=True)
class _Columns:
    """The features of one sketch's candidates.

    Attributes:
        part: the sketch.
        place: its place among the sketches.
        features: columns of the variables that it has.
        numbers: numbers of these variables.
        codes: for each of them a number for each index of a value; shape (variables, most values).
    """

    part: SketchSpace
    place: int
    features: npt.NDArray[np.intp]
    numbers: npt.NDArray[np.intp]
    codes: Floats

    @staticmethod
    def of(
        place: int, part: SketchSpace, variables: Sequence[Value], codes: Sequence[dict[Value | None, float]]
    ) -> _Columns:
        own = [feature for feature, variable in enumerate(variables) if variable in part.variables]
        numbers = [part.variables[variables[feature]] for feature in own]
        table = np.full((len(own), max((len(part.program.values[n]) for n in numbers), default=0)), np.nan)
        for row, (feature, number) in enumerate(zip(own, numbers, strict=True)):
            known = part.program.values[number]
            table[row, : len(known)] = [codes[feature].get(value, np.nan) for value in known]
        return _Columns(part, place, np.array(own, dtype=np.intp), np.array(numbers, dtype=np.intp), table)

    def rows(self, candidates: Sequence[Candidate], width: int) -> Floats:
        if any(candidate.meaning is not self.part.meaning for candidate in candidates):
            raise InternalError(f"a candidate of another space than the model's: {candidates[0].key}")
        indices = np.stack([candidate.row for candidate in candidates])[:, self.numbers]
        rows = np.full((len(candidates), width), np.nan)
        rows[:, self.features] = self.codes[np.arange(len(self.numbers)), indices]
        rows[:, -1] = self.place
        return rows


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
            "eta": 0.2,
            "min_child_weight": 1,
            "lambda": 1.0,
            "colsample_bynode": 0.5,
            "seed": self.seed,
            "nthread": 1,
            "verbosity": 0,
        }
        self._booster = xgboost.train(parameters, data, num_boost_round=50)

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
