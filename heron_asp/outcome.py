"""What tuning says: how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heron_asp.measure.result import Status
from heron_asp.space import Candidate
from heron_asp.task import Task

ABOVE_PEAK = 0.02  # noise of the peak, which is measured too: only what is faster by more is suspect


@dataclass(frozen=True)
class Progress:
    """What a run looks like after a trial.

    Attributes:
        trial: trials that ended, recorded ones included.
        trials: the budget; those so far if others decide when the run ends.
        best: seconds of the best correct candidate, None before there is one.
        statuses: how many trials ended how.
        elapsed: wall seconds of this session.
        peak: operations a second of the intrinsic, None if there is none.
        operations: of a call, products with zero padding included.
        useful: operations without those.
    """

    trial: int
    trials: int
    best: float | None
    statuses: Mapping[str, int]
    elapsed: float
    peak: float | None
    operations: int
    useful: float

    @property
    def share_of_peak(self) -> float | None:
        """The best's speed as a share of the peak; None where there is none, or a busy machine has hidden the peak."""
        if self.best is None or self.peak is None:
            return None
        share = self.useful / self.best / self.peak
        return share if share <= 1 + ABOVE_PEAK else None


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        best: the fastest correct candidate after confirmation, None if none was correct.
        seconds: of one call of the best: the least that was ever measured of it.
        ties: candidates within 1 % of the best.
        statuses: how many trials ended how.
        peak: operations a second of the intrinsic; None where there is none, or it could not be measured.
        warning: what was odd about the run, empty if nothing.
        exhausted: the space has no further programs.
        interrupted: Ctrl-C ended the run.
        wall_seconds: of this session.
        run: the run directory.
        clock: cycles a second, where cycles were counted.
        measured: what the numbers are, e.g. `time on this machine`.
        bound: seconds that no program can beat, where that is known.
    """

    task: Task
    best: Candidate | None = None
    seconds: float | None = None
    ties: list[Candidate] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    peak: float | None = None
    warning: str = ""
    exhausted: bool = False
    interrupted: bool = False
    wall_seconds: float = 0.0
    run: Path | None = None
    clock: float | None = None
    measured: str = ""
    bound: float | None = None

    @property
    def cycles(self) -> int | None:
        """Cycles of a call of the best, where they were counted."""
        return round(self.seconds * self.clock) if self.seconds is not None and self.clock is not None else None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `tune --json` and of `result.json`."""
        operations = self.task.operator.operations
        best = None
        if self.best is not None and self.seconds is not None:
            best = {
                "seconds": self.seconds,
                **({"cycles": self.cycles} if self.cycles is not None else {}),
                "gops": operations / self.seconds / 1e9,
                "values": self.best.to_json(),
                "status": str(Status.CORRECT),
                "sketch": self.best.sketch,
                "key": self.best.key,
                "share_of_peak": self.task.useful_operations / self.seconds / self.peak if self.peak else None,
                **({"share_of_bound": self.bound / self.seconds} if self.bound is not None else {}),
                "ties": [tie.key for tie in self.ties],
            }
        return {
            "best": best,
            "trials": {str(status): self.statuses.get(str(status), 0) for status in Status},
            "measured": self.measured,
            "peak_gops": self.peak / 1e9 if self.peak else None,
            "warning": self.warning,
            "wall_seconds": self.wall_seconds,
            "run": str(self.run) if self.run else None,
            "operator": self.task.operator.label,
            "target": self.task.target.name,
            "threads": self.task.threads,
            "exhausted": self.exhausted,
            "interrupted": self.interrupted,
        }
