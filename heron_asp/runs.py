"""Reads runs back: the task that was tuned, its trials, and the best program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_asp.errors import ExitCode, HeronError
from heron_asp.measure.result import Status
from heron_asp.operators import operator
from heron_asp.space import Candidate, SketchSpace
from heron_asp.store import Row, Trial, read_json, read_trials
from heron_asp.target import load_target
from heron_asp.task import Task
from heron_asp.terms import Value, parse, text


@dataclass(frozen=True)
class Run:
    """A run directory that is read.

    Attributes:
        path: the directory.
        header: `run.json`.
        result: `result.json`; None if the run has not ended.
    """

    path: Path
    header: Row
    result: Row | None

    @property
    def trials(self) -> dict[int, Trial]:
        """All recorded trials."""
        return read_trials(self.path)

    def task(self) -> Task:
        """The task that was tuned.

        Raises:
            HeronError: the rules or the target have changed since, so its programs may not be programs any more.
        """
        target = load_target(Path(self.header["target_file"]))
        made = operator(self.header["operator"], self.header["shape"], self.header["dtype"])
        extra = [Path(path) for path in self.header["extra_rules"]]
        task = Task(made, target, self.header["threads"], extra)
        if task.key != self.header["key"]:
            raise HeronError(
                f"{self.path}: made with other rules, target numbers or versions than today's", "tune it again"
            )
        return task

    def best(self) -> tuple[str, Mapping[str, Any], float]:
        """Sketch, values and seconds of the best program: the confirmed one, or the fastest trial of an unfinished run.

        Raises:
            HeronError: no trial was correct.
        """
        if self.result and self.result["best"]:
            best = self.result["best"]
            return best["sketch"], best["values"], best["seconds"]
        ran = [
            (trial.measurement.seconds, trial)
            for trial in self.trials.values()
            if trial.measurement and trial.measurement.status is Status.CORRECT and trial.measurement.seconds
        ]
        if not ran:
            raise HeronError(f"{self.path}: no trial was correct", "", ExitCode.NO_SURVIVOR)
        seconds, trial = min(ran, key=lambda pair: pair[0])
        return trial.sketch, trial.values, seconds


def load_run(path: Path) -> Run:
    """Reads a run directory.

    Raises:
        MissingError: it is none.
    """
    header = read_json(path / "run.json")
    result = read_json(path / "result.json") if (path / "result.json").exists() else None
    return Run(path, header, result)


def candidate_of(part: SketchSpace, values: Mapping[str, Any]) -> Candidate:
    """The program that `Candidate.to_json` described.

    Raises:
        HeronError: a name or value is unknown, or there is no such program.
    """
    known = {text(variable): variable for variable in part.variables}
    knobs: dict[Value, Value] = {}
    for name, value in values.items():
        variable = known.get(name)
        if variable is None:
            raise HeronError(f"sketch '{part.name}' has no variable {name}")
        if variable in part.sketch.knobs:
            knobs[variable] = value if isinstance(value, int) else parse(value)
    return part.candidate(knobs)
