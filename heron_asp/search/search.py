"""What a search is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from heron_asp.measure.result import Measurement
from heron_asp.space import Candidate


class Search(Protocol):
    """Proposes candidates by what was measured of earlier ones.

    A search is a function of its seed and of what it was told: continued with recorded outcomes it proposes the same.
    """

    def ask(self, most: int) -> list[Candidate]:
        """The next candidates to measure, at most so many, none asked for before; none if the space is exhausted."""

    def tell(self, candidate: Candidate, measurement: Measurement) -> None:
        """The outcome of a candidate."""


def score(measurement: Measurement, scale: float) -> float:
    """Log throughput relative to `scale` seconds; what failed is worse than anything that ran.

    Args:
        measurement: the outcome.
        scale: seconds of the best so far.
    """
    if measurement.seconds is None:
        return -8.0
    return max(math.log(scale / measurement.seconds), -7.0)


def best_seconds(measurements: Sequence[Measurement]) -> float:
    """Seconds of the best; 1 if nothing ran."""
    return min((one.seconds for one in measurements if one.seconds is not None), default=1.0)
