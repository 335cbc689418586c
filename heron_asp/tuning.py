"""Tuning: asks a search, measures on a device, records every step, confirms the winner."""

from __future__ import annotations

import logging
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.measure.device import Device
from heron_asp.measure.result import Measurement, Status
from heron_asp.search import ConstrainedGenetic, RandomSearch, Search, SearchOptions
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory, write_whole
from heron_asp.task import Task

logger = logging.getLogger(__name__)

CONTENDERS = 5  # candidates that are measured again, interleaved
TIE = 0.01  # a difference below this is noise
ABOVE_PEAK = 0.02  # noise of the peak, which is measured too: only what is faster by more is suspect
PEAKS = 8  # measurements of a peak that a busy machine hides
ROUNDS = 4  # of a suspect program and the peak in turn: faster in every one of them is an error
HOPELESS = 24  # consecutive failures from the start after which a run ends


@dataclass(frozen=True)
class Progress:
    """What a run looks like after a trial.

    Attributes:
        trial: trials that ended, recorded ones included.
        trials: the budget.
        best: seconds of the best correct candidate, None before there is one.
        statuses: how many trials ended how.
        elapsed: wall seconds of this session.
        peak: operations a second of the intrinsic, None if there is none.
        operations: useful operations of a call.
    """

    trial: int
    trials: int
    best: float | None
    statuses: Mapping[str, int]
    elapsed: float
    peak: float | None
    operations: int

    @property
    def share_of_peak(self) -> float | None:
        """The best's speed as a share of the peak; None where there is none, or a busy machine has hidden the peak."""
        if self.best is None or self.peak is None:
            return None
        share = self.operations / self.best / self.peak
        return share if share <= 1 + ABOVE_PEAK else None


@dataclass(frozen=True)
class TuneOptions:
    """How a run is made.

    Attributes:
        trials: candidates to measure.
        seed: of the search.
        search: `cga` or `random`.
        sizes: of the genetic search; scaled to `trials` by default.
        confirm: rounds in which the contenders are measured again; 0 leaves that out.
    """

    trials: int
    seed: int = 0
    search: str = "cga"
    sizes: SearchOptions | None = None
    confirm: int = 5

    def make(self, task: Task) -> Search:
        """The search."""
        if self.search == "random":
            return RandomSearch(task.space, self.seed)
        return ConstrainedGenetic(task.space, self.seed, self.sizes or SearchOptions.scaled(self.trials))


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        best: the fastest correct candidate after confirmation, None if none was correct.
        seconds: of one call of the best.
        ties: candidates within 1 % of the best.
        statuses: how many trials ended how.
        peak: operations a second of the intrinsic; None where there is none, or it could not be measured.
        warning: what was odd about the run, empty if nothing.
        exhausted: the space has no further programs.
        interrupted: Ctrl-C ended the run.
        wall_seconds: of this session.
        run: the run directory.
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

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `tune --json` and of `result.json`."""
        operations = self.task.operator.operations
        best = None
        if self.best is not None and self.seconds is not None:
            best = {
                "seconds": self.seconds,
                "gops": operations / self.seconds / 1e9,
                "values": self.best.to_json(),
                "status": str(Status.CORRECT),
                "sketch": self.best.sketch,
                "key": self.best.key,
                "share_of_peak": operations / self.seconds / self.peak if self.peak else None,
                "ties": [tie.key for tie in self.ties],
            }
        return {
            "best": best,
            "trials": {str(status): self.statuses.get(str(status), 0) for status in Status},
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


def header(task: Task, options: TuneOptions) -> dict[str, Any]:
    """What `run.json` says: enough to make the same task again, and the versions it was made with."""
    return {
        "format": 1,
        "key": task.key,
        "operator": task.operator.source,
        "shape": dict(task.operator.shape),
        "dtype": task.operator.dtype,
        "layout": task.operator.layout,
        "epilogue": task.operator.epilogue_text,
        "target": task.target.name,
        "target_file": str(task.target.path),
        "threads": task.threads,
        "trials": options.trials,
        "seed": options.seed,
        "search": options.search,
        "rules": task.rules_digest,
        "extra_rules": [str(path) for path in task.extra_rules],
        "versions": {name: version(name) for name in ("heron-asp", "apache-tvm", "clingo")},
    }


def tune(
    task: Task,
    device: Device,
    options: TuneOptions,
    run: RunDirectory,
    resume: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Searches for the fastest program.

    Args:
        task: what to compute, and on what.
        device: measures candidates.
        options: budget, seed, search.
        run: the run directory.
        resume: continue what the directory records.
        progress: called after every trial.

    Raises:
        HeronError: the run directory is in use, or records another task; every one of the first candidates fails.
        InternalError: the best program is faster than the peak; the run is recorded all the same.
    """
    run.open(header(task, options), resume)
    try:
        return _Run(task, device, options, run, progress).finish()
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        task: Task,
        device: Device,
        options: TuneOptions,
        run: RunDirectory,
        progress: Callable[[Progress], None],
    ) -> None:
        self.task = task
        self.device = device
        self.options = options
        self.directory = run
        self.progress = progress
        self.search = options.make(task)
        self.recorded = run.trials()
        self.done: list[tuple[Candidate, Measurement]] = []
        self.statuses: Counter[str] = Counter()
        self.best: float | None = None
        self.peak: float | None = None
        self.start = time.monotonic()
        self.number = 0
        self.twins: dict[str, Measurement] = {}

    def finish(self) -> Outcome:
        self.directory.append(
            {"started": time.time(), "recorded": len(self.recorded), "machine": platform.node()}, "sessions.jsonl"
        )
        outcome = Outcome(self.task, run=self.directory.path)
        try:
            self.peak = self.device.peak()
            outcome.exhausted = self._search()
            self._confirm(outcome)
        except KeyboardInterrupt:
            outcome.interrupted = True
            self._choose(outcome, [])
        wrong = self._compare_with_peak(outcome)
        outcome.peak = self.peak
        outcome.statuses = dict(self.statuses)
        outcome.wall_seconds = time.monotonic() - self.start
        if outcome.best is not None and not outcome.interrupted:
            write_whole(self.directory.result_file, outcome.to_json())
        if wrong:
            raise InternalError(wrong)
        return outcome

    def _search(self) -> bool:
        """Spends the budget; whether the space was exhausted before."""
        while self.number < self.options.trials:
            asked = self.search.ask(self.options.trials - self.number)
            if not asked:
                return True
            for candidate in asked:
                self.search.tell(candidate, self._trial(candidate))
        return False

    def _trial(self, candidate: Candidate) -> Measurement:
        twin = self.device.fingerprint(candidate)
        if twin in self.twins:  # another assignment of the same program: known already
            return self.twins[twin]
        self.number += 1
        measurement = self._recorded(candidate) or self._measured(candidate)
        if twin:
            self.twins[twin] = measurement
        self.done.append((candidate, measurement))
        self.statuses[str(measurement.status)] += 1
        if measurement.seconds is not None:
            self.best = min(self.best or measurement.seconds, measurement.seconds)
        self._give_up_if_hopeless()
        self.progress(
            Progress(
                self.number,
                self.options.trials,
                self.best,
                dict(self.statuses),
                time.monotonic() - self.start,
                self.peak,
                self.task.operator.operations,
            )
        )
        return measurement

    def _recorded(self, candidate: Candidate) -> Measurement | None:
        trial = self.recorded.get(self.number)
        if trial is None:
            return None
        if trial.candidate != candidate.key:
            raise HeronError(
                f"{self.directory.path}: trial {self.number} records {trial.candidate}, this search asks for "
                f"{candidate.key}",
                "the run was made with other rules, options or versions; start a new one with another --out DIR",
            )
        return trial.measurement

    def _measured(self, candidate: Candidate) -> Measurement:
        if self.number not in self.recorded:  # an interrupted trial has its 'started' row already
            self._append("started", candidate, {"sketch": candidate.sketch, "values": candidate.to_json()})
        measurement = self.device.measure(candidate, self.best)
        self._append("finished", candidate, measurement.to_json())
        return measurement

    def _append(self, event: str, candidate: Candidate, said: Mapping[str, Any]) -> None:
        self.directory.append({"event": event, "trial": self.number, "candidate": candidate.key, **said})

    def _give_up_if_hopeless(self) -> None:
        if self.best is None and len(self.done) >= HOPELESS:
            first = next(measurement for _, measurement in self.done if measurement.error)
            raise HeronError(
                f"the first {len(self.done)} candidates all failed ({', '.join(self.statuses)})",
                f"the first error: {first.error}",
                ExitCode.NO_SURVIVOR,
            )

    # -- confirmation ----------------------------------------------------------------------------------------------

    def _confirm(self, outcome: Outcome) -> None:
        """Measures the best few again, interleaved, and the peak once more."""
        if self.best is None:
            first = next((measurement.error for _, measurement in self.done), "the space has no program")
            raise HeronError("no candidate survived", first, ExitCode.NO_SURVIVOR)
        contenders = [candidate for candidate, _ in self._ranking()[:CONTENDERS]]
        times: list[list[float]] = []
        if self.options.confirm and len(contenders) > 0:
            times = self.device.compare(contenders, self.options.confirm)
        self._measure_peak()
        self._choose(outcome, times)

    def _measure_peak(self) -> float:
        """Measures the peak once more; the highest so far is the peak."""
        again = self.device.peak()
        self.peak = again if self.peak is None or again is None else max(self.peak, again)
        return again or 0.0

    def _compare_with_peak(self, outcome: Outcome) -> str:
        """Compares the best program with the peak: what is wrong if it is truly above it, empty if it is not.

        A busy machine may have hidden the peak: it is measured again, then in turn with the program.
        """
        if outcome.best is None or outcome.seconds is None or self.peak is None or outcome.interrupted:
            return ""
        speed = self.task.operator.operations / outcome.seconds
        for _ in range(PEAKS):
            if speed <= self.peak * (1 + ABOVE_PEAK):
                return ""
            self._measure_peak()
        for _ in range(ROUNDS):
            ((seconds,),) = self.device.compare([outcome.best], 1)
            if self.task.operator.operations / seconds <= self._measure_peak() * (1 + ABOVE_PEAK):
                said = f"the machine was too busy to measure the peak (best {self.peak / 1e9:.0f} GOP/s)"
                outcome.warning, self.peak = said, None
                return ""
        return (
            f"the best program runs at {speed / 1e9:.0f} GOP/s, above the measured peak of {self.peak / 1e9:.0f}: "
            "one of the two kernels is wrong"
        )

    def _ranking(self) -> list[tuple[Candidate, float]]:
        ran = [(candidate, m.seconds) for candidate, m in self.done if m.seconds is not None]
        return sorted(ran, key=lambda pair: pair[1])

    def _choose(self, outcome: Outcome, times: list[list[float]]) -> None:
        ranking = self._ranking()
        if not ranking:
            return
        confirmed = [(candidate, min(seconds)) for (candidate, _), seconds in zip(ranking, times, strict=False)]
        ordered = sorted(confirmed, key=lambda pair: pair[1]) or ranking[:1]
        outcome.best, outcome.seconds = ordered[0]
        outcome.ties = [candidate for candidate, seconds in ordered[1:] if seconds < ordered[0][1] * (1 + TIE)]
