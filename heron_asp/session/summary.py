"""What a session says: how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class State(StrEnum):
    """What becomes of a case."""

    WAITING = "waiting"
    TUNING = "tuning"
    TUNED = "tuned"  # a program was found, and not confirmed yet
    CONFIRMED = "confirmed"
    INFEASIBLE = "infeasible"  # the constraints leave no program
    FAILED = "failed"  # no program survived, or the run cannot be continued


@dataclass
class CaseProgress:
    """Where a case is.

    Attributes:
        name: of its run directory.
        cases: names in the file of the cases that are this task.
        operator: kind, dtype and shape.
        operations: of a call, products with zero padding included.
        useful: operations without those.
        weight: how much its time matters.
        state: what became of it.
        trials: that were made.
        before: seconds of a call after the warm-up, None if it found no program.
        seconds: of a call of the best program.
        peak: operations a second of the intrinsic, None where there is none.
        error: what went wrong, or was odd.
        run: the run directory.
    """

    name: str
    cases: Sequence[str]
    operator: str
    operations: int
    useful: float
    weight: float
    run: Path
    state: State = State.WAITING
    trials: int = 0
    before: float | None = None
    seconds: float | None = None
    peak: float | None = None
    error: str = ""

    @property
    def share_of_peak(self) -> float | None:
        """The best's speed as a share of the peak."""
        return self.useful / self.seconds / self.peak if self.seconds and self.peak else None

    def to_json(self) -> dict[str, Any]:
        """A row of the table."""
        said = asdict(self)
        del said["peak"], said["useful"]
        return {
            **said,
            "cases": list(self.cases),
            "run": str(self.run),
            "state": str(self.state),
            "gops": self.operations / self.seconds / 1e9 if self.seconds else None,
            "peak_gops": self.peak / 1e9 if self.peak else None,
            "share_of_peak": self.share_of_peak,
        }


@dataclass(frozen=True)
class SessionProgress:
    """What a session looks like after a trial.

    Attributes:
        cases: in the order of the file.
        number: of the round, from 1; 0 before the first.
        elapsed: seconds of all sessions with this directory.
        seconds: the budget, None if there is none.
        trials: the budget, None if there is none.
    """

    cases: Sequence[CaseProgress]
    number: int
    elapsed: float
    seconds: float | None
    trials: int | None


@dataclass(frozen=True)
class SessionOutcome:
    """How a session ended.

    Attributes:
        cases: in the order of the file.
        target: the machine's name.
        threads: of a kernel.
        elapsed: seconds of all sessions with this directory.
        path: the directory.
        interrupted: Ctrl-C ended it.
    """

    cases: Sequence[CaseProgress]
    target: str
    threads: int
    elapsed: float
    path: Path
    interrupted: bool = False

    @property
    def trials(self) -> int:
        """Of all cases."""
        return sum(one.trials for one in self.cases)

    @property
    def without(self) -> list[CaseProgress]:
        """Cases that have no program."""
        return [one for one in self.cases if one.seconds is None]

    @property
    def before(self) -> float:
        """Weighted seconds of all cases that have a program, after the warm-up."""
        return _total((one, one.before or one.seconds) for one in self.cases)

    @property
    def after(self) -> float:
        """Weighted seconds of all cases that have a program, now."""
        return _total((one, one.seconds) for one in self.cases)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `tune --cases --json` and of `result.json`."""
        return {
            "cases": [one.to_json() for one in self.cases],
            "weighted_seconds": {"before": self.before, "after": self.after},
            "without_program": [one.name for one in self.without],
            "trials": self.trials,
            "elapsed": self.elapsed,
            "target": self.target,
            "threads": self.threads,
            "session": str(self.path),
            "interrupted": self.interrupted,
        }


def _total(times: Iterable[tuple[CaseProgress, float | None]]) -> float:
    return sum(one.weight * seconds for one, seconds in times if seconds is not None)
