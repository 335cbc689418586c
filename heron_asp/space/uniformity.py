"""How uniform samples of a space are: what a perfect sampler would show, and what these show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heron_asp.space.candidate import Candidate
from heron_asp.space.space import Space
from heron_asp.terms import Value


@dataclass(frozen=True)
class Uniformity:
    """Statistics of samples.

    Attributes:
        draws: number of samples.
        programs: number of programs of the space.
        distinct: programs that were drawn.
        chi2: chi-square per degree of freedom of the counts of all programs; 1 for a uniform sampler, give or take
            the square root of 2 / programs.
        support: the number of equally likely programs that would collide as often, as a share of the programs.
        marginal: the largest distance between the drawn and the exact share of a value of a variable.
        variable: the variable of that distance.
    """

    draws: int
    programs: int
    distinct: int
    chi2: float
    support: float
    marginal: float
    variable: Value


def uniformity(space: Space, drawn: Sequence[Candidate]) -> Uniformity:
    """Compares samples with the exact distribution.

    Args:
        space: an exact space.
        drawn: independent samples of it, at least two.
    """
    seen = Counter(one.key for one in drawn)
    expected = len(drawn) / space.size
    missed = space.size - len(seen)
    chi2 = sum((count - expected) ** 2 for count in seen.values()) / expected + missed * expected
    pairs = sum(count * (count - 1) for count in seen.values())
    support = len(drawn) * (len(drawn) - 1) / pairs / space.size if pairs else float("inf")
    distance, variable = _worst_marginal(space, drawn)
    degrees = max(1, space.size - 1)
    return Uniformity(len(drawn), space.size, len(seen), chi2 / degrees, support, distance, variable)


def _worst_marginal(space: Space, drawn: Sequence[Candidate]) -> tuple[float, Value]:
    """The largest distance of a value's share, among the variables of each sketch."""
    worst: tuple[float, Value] = (0.0, "nothing")
    for part in space:
        share = part.size / space.size
        own = [one for one in drawn if one.sketch == part.name]
        for variable, exact in part.marginals().items():
            counts = Counter(one.values[variable] for one in own)
            distance = max(abs(counts[value] / len(drawn) - share * one) for value, one in exact.items())
            if distance > worst[0]:
                worst = (distance, variable)
    return worst
