"""Which case gets the next trials: the one that is expected to save most time, weighted, a second of tuning.

The task scheduler of Ansor (OSDI 2020, section 6), for the sum of weighted times. What a further trial of a case will
bring is not known; two guesses are averaged. One looks back: how much the last trials brought. The other is
optimistic: a case that had few trials may still fall by a share that shrinks with their number, but not below what
its machine allows: the measured peak, or a multiple of what the fastest case of its kind reaches. Now and then a case
is drawn at random, so that none is written off for good.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

BACKWARD = 0.2  # weight of the guess that looks back, the optimistic one has the rest; Ansor's
REACH = 2.0  # so many times the speed of the fastest case of a kind may be reached; Ansor's
EXPLORE = 0.05  # share of the rounds that go to a case at random; Ansor's
WINDOW = 3  # rounds that "recently" means; Ansor's
_PROPOSING = 0.1  # seconds that proposing and scheduling a trial take beside building and running it


@dataclass(frozen=True)
class Round:
    """Trials of a case in a row.

    Attributes:
        trials: how many.
        best: seconds of the best program after them, None before there is one.
        seconds: that building and running them took.
    """

    trials: int
    best: float | None
    seconds: float


@dataclass
class Standing:
    """Where a case stands.

    Attributes:
        weight: how much its time matters.
        operations: of a call, without those on zero padding.
        kind: equal for cases that can be expected to reach similar speeds.
        peak: operations a second that the machine can do, None if that is not known.
        rounds: what was done.
        closed: nothing more will be measured of it.
    """

    weight: float
    operations: float
    kind: str
    peak: float | None = None
    rounds: list[Round] = field(default_factory=list)
    closed: bool = False

    @property
    def trials(self) -> int:
        """All trials."""
        return sum(one.trials for one in self.rounds)

    @property
    def best(self) -> float | None:
        """Seconds of the best program."""
        return self.rounds[-1].best if self.rounds else None

    @property
    def speed(self) -> float:
        """Operations a second of the best program, 0 before there is one."""
        return self.operations / self.best if self.best else 0.0

    @property
    def seconds_a_trial(self) -> float:
        """What a trial costs lately."""
        lately = self.rounds[-WINDOW:]
        trials = max(1, sum(one.trials for one in lately))
        return _PROPOSING + sum(one.seconds for one in lately) / trials


def expected_gain(one: Standing, every: Iterable[Standing]) -> float:
    """Weighted seconds of a call that a second of tuning is expected to save; infinite before there is a program."""
    if one.best is None:
        return math.inf
    fastest = REACH * max(other.speed for other in (one, *every) if other.kind == one.kind)
    least = one.operations / min(fastest, one.peak or math.inf)
    optimistic = min(one.best / one.trials, max(0.0, one.best - least))
    gain = BACKWARD * _recently(one, optimistic) + (1 - BACKWARD) * optimistic
    return one.weight * gain / one.seconds_a_trial


def _recently(one: Standing, otherwise: float) -> float:
    """Seconds that a trial of the last rounds has saved; `otherwise` where there was no program before them."""
    first, *since = one.rounds[-WINDOW - 1 :]
    while first.best is None and since:
        first, *since = since
    if first.best is None or one.best is None or not since:
        return otherwise
    return (first.best - one.best) / max(1, sum(round_.trials for round_ in since))


def choose(standings: Mapping[str, Standing], able: Collection[str], seed: int, number: int) -> str | None:
    """The case of the next round; None if all are closed.

    Args:
        standings: by case.
        able: cases for which there is time.
        seed: of the session.
        number: of the round; the choice is a function of seed, number and standings.
    """
    open_ = [name for name, one in standings.items() if name in able and not one.closed]
    if not open_:
        return None
    rng = np.random.default_rng((seed, number))
    if rng.random() < EXPLORE:
        return open_[rng.integers(len(open_))]
    return max(open_, key=lambda name: expected_gain(standings[name], standings.values()))
