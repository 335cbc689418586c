"""What a session may take: wall-clock time, trials, or both; and the time that its confirmations need."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heron_asp.confirmation import CONTENDERS
from heron_asp.measure.result import Measurement

_SPARE = 1.5  # times what is estimated
_FIXED = 1.0  # seconds of a confirmation beside building and running: processes, the peak
_LEAST_ROUND = 0.01  # seconds of a round of a contender
_MOST_SECONDS = 20.0  # that all rounds of a confirmation should take


@dataclass
class Budget:
    """Wall-clock time and trials, of all sessions with a directory together.

    Attributes:
        seconds: None if time is no limit.
        trials: None if their number is none.
        before: seconds of earlier sessions.
        clock: seconds, from anywhere.
    """

    seconds: float | None
    trials: int | None
    before: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return self.before + self.clock() - self._start

    @property
    def left(self) -> float:
        """Seconds left, infinite if time is no limit."""
        return math.inf if self.seconds is None else self.seconds - self.elapsed

    def contenders(self, confirmations: float) -> int:
        """How many contenders of each case the time that is left is enough for, if all of them take so many seconds."""
        return int(CONTENDERS * max(0.0, min(1.0, self.left / confirmations))) if confirmations else CONTENDERS

    def trials_left(self, made: int) -> int:
        """Trials left after so many, more than any round has if their number is no limit."""
        return 2**31 if self.trials is None else max(0, self.trials - made)


def confirmation_seconds(done: Sequence[Measurement], rounds: int) -> float:
    """Seconds that confirming a case is expected to take; on the safe side."""
    correct = sorted(one.seconds for one in done if one.seconds is not None)
    if not correct or not rounds:
        return 0.0
    contenders = min(CONTENDERS, len(correct))
    building = contenders * sum(one.build_seconds for one in done) / len(done)
    running = contenders * (rounds_within(correct[0], rounds) + 2) * max(_LEAST_ROUND, correct[contenders - 1])
    return _FIXED + _SPARE * (building + running)


def rounds_within(seconds: float, rounds: int) -> int:
    """Rounds of a confirmation: fewer where a call takes so long that all of them would take many seconds."""
    return max(1, min(rounds, int(_MOST_SECONDS / (CONTENDERS * seconds))))
