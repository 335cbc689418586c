"""Reads a session back, whether it has ended or not: where each of its cases is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heron_asp.record import read_json
from heron_asp.runs import load_run
from heron_asp.session.journal import SessionDirectory
from heron_asp.session.summary import State


@dataclass(frozen=True)
class CaseReport:
    """Where a case is.

    Attributes:
        case: its name, also that of its run directory.
        operator: kind, dtype and shape.
        weight: how much its time matters.
        trials: that have ended.
        seconds: of a call of the best program; None where there is none.
        share: of the weighted time of all cases that have a program.
        state: what became of it.
        error: why it failed.
    """

    case: str
    operator: str
    weight: float
    trials: int
    seconds: float | None
    share: float | None
    state: State
    error: str


@dataclass(frozen=True)
class SessionReport:
    """Where a session is.

    Attributes:
        path: its directory.
        target: the machine's name.
        threads: of a kernel.
        state: `finished`, `interrupted`, or `unfinished` where trials were made after it last ended.
        elapsed: seconds of all sessions with this directory, until the last row.
        cases: in the order of the file.
    """

    path: Path
    target: str
    threads: int
    state: str
    elapsed: float
    cases: Sequence[CaseReport]

    @property
    def trials(self) -> int:
        """Of all cases."""
        return sum(one.trials for one in self.cases)

    @property
    def weighted_seconds(self) -> float:
        """Of all cases that have a program."""
        return sum(one.weight * one.seconds for one in self.cases if one.seconds is not None)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `report` on the directory of a session."""
        return {
            "session": str(self.path),
            "target": self.target,
            "threads": self.threads,
            "state": self.state,
            "trials": self.trials,
            "elapsed": self.elapsed,
            "weighted_seconds": self.weighted_seconds,
            "cases": [asdict(one) | {"state": str(one.state), "run": str(self.path / one.case)} for one in self.cases],
        }


def read_session(path: Path) -> SessionReport:
    """Reads the directory of a session.

    Raises:
        MissingError: it is none.
        HeronError: a file of it is broken.
    """
    directory = SessionDirectory(path)
    header, journal = directory.recorded_header(), directory.journal()
    found = [_case(path / one["name"], one, journal.failed.get(one["name"])) for one in header["cases"]]
    total = sum(one.weight * one.seconds for one in found if one.seconds is not None)
    cases = [replace(one, share=one.weight * one.seconds / total if one.seconds else None) for one in found]
    result = read_json(directory.result_file) if directory.result_file.exists() else {}
    state = "interrupted" if result.get("interrupted") else "finished"
    if result.get("trials") != sum(one.trials for one in cases):
        state = "unfinished"
    return SessionReport(path, header["target"], header["threads"], state, journal.elapsed, cases)


def _case(path: Path, said: Mapping[str, Any], failed: tuple[State, str] | None) -> CaseReport:
    trials, seconds, state, error = 0, None, State.WAITING, ""
    if (path / "run.json").exists():
        run = load_run(path)
        measured = [one.measurement for one in run.trials.values() if one.measurement is not None]
        trials, result = len(measured), run.result or {}
        seconds = min((one.seconds for one in measured if one.seconds is not None), default=None)
        state = State.TUNING if seconds is None else State.TUNED
        if result.get("best") and sum(result.get("trials", {}).values()) == trials:  # nothing was measured since
            seconds, state = result["best"]["seconds"], State.CONFIRMED
    if failed is not None:
        state, error = failed
    return CaseReport(said["name"], said["operator"], said["weight"], trials, seconds, None, state, error)
