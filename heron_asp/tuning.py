"""Tuning: asks a search, measures on a device, records every step, confirms the winner."""

from __future__ import annotations

import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any

from heron_asp import confirmation
from heron_asp.backends import backend_of
from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.measure.device import WALL_TIME, Device
from heron_asp.measure.result import Measurement
from heron_asp.outcome import Outcome, Progress
from heron_asp.search import ConstrainedGenetic, RandomSearch, Search, SearchOptions
from heron_asp.space import Candidate
from heron_asp.store import RunDirectory, Trial, write_whole
from heron_asp.task import Task

HOPELESS = 24  # consecutive failures from the start after which a run ends
TRIALS = 64  # that the sizes of a search are made for where nobody says how many there will be
_A_ROUND = 1_000  # more than any search proposes at once


@dataclass(frozen=True)
class TuneOptions:
    """How a run is made.

    Attributes:
        trials: candidates to measure, those included that a run that is continued has measured already; None if
            whoever advances the run decides.
        seed: of the search.
        search: `cga` or `random`.
        sizes: of the genetic search, where they differ from `SearchOptions.scaled(trials)`. A run that is continued
            keeps the sizes that it was started with, whatever its trials now.
        confirm: rounds in which the contenders are measured again; 0 leaves that out.
    """

    trials: int | None
    seed: int = 0
    search: str = "cga"
    sizes: Mapping[str, float] = field(default_factory=dict)
    confirm: int = 5

    @property
    def all_sizes(self) -> SearchOptions:
        """Sizes of a new run."""
        return replace(SearchOptions.scaled(self.trials or TRIALS), **self.sizes)  # type: ignore[arg-type]  # checked by the CLI


def header(task: Task, options: TuneOptions) -> dict[str, Any]:
    """What `run.json` says: enough to make the same task again, and the versions it was made with."""
    return {
        "format": 2,
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
        "sizes": asdict(options.all_sizes),
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
        resume: continue what the directory records; the budget may be larger than it was.
        progress: called after every trial.

    Raises:
        HeronError: the run directory is in use, or records another task; every one of the first candidates fails.
        InternalError: the best program is faster than the peak; the run is recorded all the same.
    """
    tuning = TuningRun(task, device, options, run, progress)
    try:
        tuning.open(resume)
        tuning.advance(options.trials or TRIALS)
        return tuning.conclude(options.confirm)
    except KeyboardInterrupt:
        return tuning.interrupted()
    finally:
        tuning.close()


class TuningRun:
    """A run that is advanced step by step.

    The candidates that it measures are a function of its seed, of its sizes and of what was measured before, not of how
    it is cut into steps: the search proposes whole rounds, and what a step leaves over the next one measures.

    Args:
        task: what to compute, and on what.
        device: measures candidates.
        options: budget, seed, search.
        run: the run directory.
        progress: called after every trial.

    Attributes:
        done: candidates that were measured, with the outcome, in order.
        best: seconds of the best correct candidate.
        peak: operations a second of the intrinsic, None before it is known and where there is none.
        exhausted: the space has no further programs.
    """

    def __init__(
        self,
        task: Task,
        device: Device,
        options: TuneOptions,
        run: RunDirectory,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.task = task
        self.device = device
        self.options = options
        self.directory = run
        self.progress = progress
        self.done: list[tuple[Candidate, Measurement]] = []
        self.best: float | None = None
        self.peak: float | None = None
        self.exhausted = False
        self.recorded: Mapping[int, Trial] = {}
        self._start = time.monotonic()
        self._queue: deque[Candidate] = deque()  # proposed, and not measured yet
        self._twins: dict[str, Measurement] = {}

    @property
    def replayed(self) -> int:
        """Trials that were measured before."""
        return sum(trial.measurement is not None for trial in self.recorded.values())

    def open(self, resume: bool) -> None:
        """Opens the run directory, and measures the peak.

        Raises:
            HeronError: it is in use, records another task or more trials than the budget.
        """
        said = header(self.task, self.options)
        if self.device.measures != WALL_TIME:  # times of a model and of a machine do not mix
            said["measured"] = self.device.measures
        before = self.directory.recorded() if resume else None
        if before is not None:
            said |= {"trials": before["trials"], "sizes": {**before["sizes"], **self.options.sizes}}
        self.directory.open(said, resume)
        self.recorded = self.directory.trials()
        if self.options.trials is not None and self.replayed > self.options.trials:
            raise HeronError(
                f"{self.directory.path} records {self.replayed} trials, more than --trials {self.options.trials}",
                "--trials counts those that are recorded already",
            )
        self._search = self._make_search(SearchOptions(**said["sizes"]))
        self.directory.append(
            {
                "started": time.time(),
                "recorded": len(self.recorded),
                "trials": self.options.trials,
                "machine": platform.node(),
            },
            "sessions.jsonl",
        )
        self.peak = self.device.peak()

    def _make_search(self, sizes: SearchOptions) -> Search:
        if self.options.search == "random":
            return RandomSearch(self.task.space, self.options.seed)
        return ConstrainedGenetic(self.task.space, self.options.seed, sizes)

    def close(self) -> None:
        """Releases the run directory, and what the device holds."""
        self.device.rest()
        self.directory.close()

    @property
    def statuses(self) -> Counter[str]:
        """How many trials ended how."""
        return Counter(str(measurement.status) for _, measurement in self.done)

    # -- trials ----------------------------------------------------------------------------------------------------

    def advance(self, trials: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Makes so many further trials, recorded ones included; fewer if the space is exhausted.

        Args:
            trials: how many.
            stop: asked between trials whether to stop at once.

        Returns:
            How many were made.

        Raises:
            HeronError: every one of the first candidates fails; the directory records other candidates.
        """
        before = len(self.done)
        while len(self.done) < before + trials and not stop():
            if not self._queue:
                self._queue.extend(self._search.ask(_A_ROUND))
            if not self._queue:
                self.exhausted = True
                break
            self._some(min(self.device.width, before + trials - len(self.done)))
        return len(self.done) - before

    def _some(self, most: int) -> None:
        """Measures the next candidates, at most so many, which the device builds at once."""
        chosen: list[tuple[Candidate, str | None]] = []
        new: list[Candidate] = []
        while self._queue and len(new) < most:
            candidate = self._queue.popleft()
            twin = self.device.fingerprint(candidate)
            if twin is None or not (twin in self._twins or any(twin == other for _, other in chosen)):
                new.append(candidate)
            chosen.append((candidate, twin))
        self._announce(new)
        for candidate, twin in chosen:
            if twin is not None and twin in self._twins:  # another assignment of the same program: known already
                self._search.tell(candidate, self._twins[twin])
                continue
            measurement = self._trial(candidate)
            self._search.tell(candidate, measurement)
            if twin is not None:
                self._twins[twin] = measurement

    def _announce(self, candidates: list[Candidate]) -> None:
        """Records that trials start, and has the device build their candidates."""
        unknown = []
        for number, candidate in enumerate(candidates, start=len(self.done) + 1):
            trial = self.recorded.get(number)
            if trial is None:
                said = {"sketch": candidate.sketch, "values": candidate.to_json()}
                self._append(number, "started", candidate, said)
            elif trial.candidate != candidate.key:
                raise HeronError(
                    f"{self.directory.path}: trial {number} records {trial.candidate}, this search asks for "
                    f"{candidate.key}",
                    "the run was made with other rules, options or versions; start a new one with another --out DIR",
                )
            if trial is None or trial.measurement is None:
                unknown.append(candidate)
        if unknown:
            self.device.build_ahead(unknown)

    def _trial(self, candidate: Candidate) -> Measurement:
        number = len(self.done) + 1
        trial = self.recorded.get(number)
        measurement = trial.measurement if trial else None
        if measurement is None:
            measurement = self.device.measure(candidate, self.best)
            self._append(number, "finished", candidate, measurement.to_json())
        self.done.append((candidate, measurement))
        if measurement.seconds is not None:
            self.best = min(self.best or measurement.seconds, measurement.seconds)
        self._give_up_if_hopeless()
        self.progress(self._progress())
        return measurement

    def _append(self, number: int, event: str, candidate: Candidate, said: Mapping[str, Any]) -> None:
        row = {"event": event, "trial": number, "candidate": candidate.key, **said}
        self.directory.append(row, sync=event == "finished")

    def _give_up_if_hopeless(self) -> None:
        if self.best is None and len(self.done) >= HOPELESS:
            first = next(measurement for _, measurement in self.done if measurement.error)
            raise HeronError(
                f"the first {len(self.done)} candidates all failed ({', '.join(self.statuses)})",
                f"the first error: {first.error}",
                ExitCode.NO_SURVIVOR,
            )

    def _progress(self) -> Progress:
        elapsed = time.monotonic() - self._start
        operations = self.task.operator.operations
        done, trials = len(self.done), self.options.trials or len(self.done)
        useful = self.task.useful_operations
        return Progress(done, trials, self.best, dict(self.statuses), elapsed, self.peak, operations, useful)

    # -- the end ---------------------------------------------------------------------------------------------------

    def conclude(self, rounds: int, contenders: int = confirmation.CONTENDERS) -> Outcome:
        """Measures the best few and the peak again, chooses the winner, and writes `result.json`.

        Args:
            rounds: how often each contender is measured.
            contenders: how many are.

        Raises:
            HeronError: no candidate was correct.
            InternalError: the winner is faster than the peak; the result is written all the same.
        """
        outcome = self._outcome()
        confirmation.confirm(outcome, self.device, self.done, rounds, contenders)
        outcome.peak = self.peak = confirmation.higher(self.device, self.peak)
        wrong = confirmation.compare_with_peak(outcome, self.device)
        outcome.wall_seconds = time.monotonic() - self._start
        write_whole(self.directory.result_file, outcome.to_json())
        if wrong:
            raise InternalError(wrong)
        return outcome

    def interrupted(self) -> Outcome:
        """What there is, unconfirmed; nothing is written."""
        outcome = self._outcome()
        outcome.interrupted = True
        confirmation.choose(outcome, confirmation.ranking(self.done)[:1])
        return outcome

    def _outcome(self) -> Outcome:
        target = self.task.target
        backend = backend_of(target)
        return Outcome(
            self.task,
            statuses=dict(self.statuses),
            peak=self.peak,
            exhausted=self.exhausted,
            wall_seconds=time.monotonic() - self._start,
            run=self.directory.path,
            clock=backend.clock(target),
            measured=self.device.measures,
            bound=backend.bound(self.task),
        )
