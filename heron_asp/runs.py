"""Reads runs back: the task that was tuned, its trials, and the best program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_asp.errors import ExitCode, HeronError, MissingError
from heron_asp.measure.result import Status
from heron_asp.operators import Operator, operator
from heron_asp.record import Header, Result, checked, read_json
from heron_asp.resources import suggestion
from heron_asp.space import Candidate, SketchSpace
from heron_asp.store import SESSION_HEADER, Row, Trial, read_budget, read_trials
from heron_asp.target import Target, load_target
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

    @property
    def budget(self) -> int | None:
        """The trials that it may make; None if others decide."""
        return read_budget(self.path, self.header)

    @property
    def operator(self) -> Operator:
        """The operator that was tuned."""
        with self._named():
            said = self.header
            return operator(
                said["operator"], said["shape"], said["dtype"], said.get("layout"), said.get("epilogue", "")
            )

    @property
    def target(self) -> Target:
        """The target that was tuned for, as it is today.

        Raises:
            MissingError: its file is gone.
        """
        return load_target(self._file(self.header["target_file"]))

    def _file(self, name: str) -> Path:
        if not Path(name).is_file():
            raise MissingError(f"{self.path}: made with {name}, which does not exist any more", "tune it again")
        return Path(name)

    def task(self) -> Task:
        """The task that was tuned.

        Raises:
            HeronError: the rules or the target have changed since, so its programs may not be programs any more.
            MissingError: a file of theirs is gone.
        """
        target, *extra = map(self._file, (self.header["target_file"], *self.header["extra_rules"]))
        with self._named():
            task = Task(self.operator, load_target(target), self.header["threads"], extra)
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
        best = (self.result or {}).get("best")
        if best:
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

    def program(self, task: Task) -> tuple[Candidate, float]:
        """The best program in the space of the run's task, and its seconds.

        Raises:
            HeronError: no trial was correct, or the space has no such program.
        """
        name, values, seconds = self.best()
        part = next((one for one in task.space if one.name == name), None)
        with self._named():
            if part is None:
                raise HeronError(f"there is no sketch '{name}'", suggestion(name, (one.name for one in task.space)))
            return candidate_of(part, values), seconds

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors say of which run directory they are."""
        try:
            yield
        except HeronError as error:
            said = error.message.removeprefix(f"{self.path}: ")
            raise HeronError(f"{self.path}: {said}", error.hint, error.code) from None


def run_paths(paths: Sequence[Path]) -> list[Path]:
    """Run directories that are named: those of a session's cases for a session, and no files of a session's own.

    So `DIR` and the shell's `DIR/*` both mean all cases of the session in DIR.
    """
    found: list[Path] = []
    for path in paths:
        if (path / SESSION_HEADER).is_file():
            found += sorted(one.parent for one in path.glob("*/run.json"))
        elif path.is_dir() or not (path.parent / SESSION_HEADER).is_file():
            found.append(path)
    return found


def load_run(path: Path) -> Run:
    """Reads a run directory.

    Raises:
        MissingError: it is none.
        HeronError: a file of it is broken.
    """
    try:
        header = checked(read_json(path / "run.json"), Header, path / "run.json")
    except MissingError as error:
        hint = f"{path} is no run directory of heron-asp tune"
        if (path / SESSION_HEADER).is_file():
            hint = (
                f"{path} holds the runs of many cases: name one, such as {', '.join(map(str, run_paths([path])[:3]))}"
            )
        raise MissingError(error.message, hint) from None
    file = path / "result.json"
    return Run(path, header, checked(read_json(file), Result, file) if file.exists() else None)


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
