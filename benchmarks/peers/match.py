"""A case on both sides: our tuner and MetaSchedule at equal trials and equal time, and their programs in turn."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from peers.contest import Contest, speedup
from peers.metaschedule import CLOCKS, KEPT, Request, Row, program_file, read_rows
from peers.packed import packed

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.result import Limits
from heron_asp.runs import load_run
from heron_asp.store import write_whole
from heron_asp.target import Target

PAIRS = {
    "trials": ("ours", "theirs"),
    "our time": ("ours", "theirs in our time"),
    "their time": ("ours in their time", "theirs"),
}


@dataclass(frozen=True)
class Case:
    """A row of metaschedule.toml."""

    name: str
    operator: str
    shape: dict[str, int]


@dataclass(frozen=True)
class Options:
    """What decides a row's figures.

    Attributes:
        batch: candidates of MetaSchedule between two updates of its cost model.
        warmup: trials before it is asked.
        clock: what equal time means, see `CLOCKS`.
        timeout: seconds that a run of MetaSchedule may take.
    """

    target: str
    trials: int
    rounds: int
    seed: int
    batch: int
    warmup: int
    clock: str
    timeout: float


@dataclass
class Result:
    """A case at one number of threads against one set of MetaSchedule's rules.

    Attributes:
        ours: statuses of our trials.
        theirs: statuses of MetaSchedule's first `trials`.
        our_seconds: time of tuning by our trials.
        their_seconds: the same of MetaSchedule's first `trials`.
        in_our_time: trials of MetaSchedule in `our_seconds`.
        in_their_time: trials of ours that go into `their_seconds`; 0 where they were not made.
        these_seconds: what those trials took in fact.
        gops: of the best round: `ours` and `theirs` after `trials`, `theirs in our time`, `ours in their time`.
        ratios: ours by theirs at equal `trials`, in `our time`, in `their time`.
        error: what went wrong, in one line; the figures of the other side are there all the same.
        load: of the machine at the end, over the last 15 minutes.
    """

    case: str
    threads: int
    rules: str
    ours: dict[str, int] = field(default_factory=dict)
    theirs: dict[str, int] = field(default_factory=dict)
    our_seconds: float = 0.0
    their_seconds: float = 0.0
    in_our_time: int = 0
    in_their_time: int = 0
    these_seconds: float = 0.0
    gops: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    error: str = ""
    load: float = 0.0


@dataclass(frozen=True)
class Tuned:
    """A run of ours: its directory, its time, its trials by status."""

    path: Path
    seconds: float
    statuses: dict[str, int]


class Match:
    """A case at one number of threads: our run, made once, and MetaSchedule's under each set of rules."""

    def __init__(self, case: Case, threads: int, options: Options, out: Path) -> None:
        self.case = case
        self.threads = threads
        self.options = options
        self.folder = out / f"{case.name}-t{threads}"
        self.target: Target = resolve_target(options.target)

    @cached_property
    def task(self) -> Task:
        """Our task.

        Raises:
            HeronError: we have no such operator.
        """
        return Task(operator(self.case.operator, self.case.shape), self.target, self.threads)

    def tuned(self, trials: int) -> Tuned:
        """Our run of so many trials, made anew unless it is whole."""
        path = self.folder / f"ours-{trials}"
        said = path.with_suffix(".json")
        if said.exists():
            return Tuned(path, **json.loads(said.read_text()))
        shutil.rmtree(path, ignore_errors=True)
        import tvm  # noqa: F401 - imports are not part of the time, as on the other side
        import xgboost  # noqa: F401

        now = CLOCKS[self.options.clock]
        start = now()
        task = Task(self.task.operator, self.target, self.threads)  # deriving its space is part of tuning
        outcome = tune(task, LocalDevice(task), TuneOptions(trials, self.options.seed), RunDirectory(path))
        if outcome.interrupted:
            raise KeyboardInterrupt
        tuned = Tuned(path, now() - start, outcome.statuses)
        write_whole(said, {"seconds": tuned.seconds, "statuses": tuned.statuses})
        return tuned

    def searched(self, rules: str, seconds: float) -> tuple[Path, list[Row], str]:
        """MetaSchedule's run of at least our trials and seconds: its folder, its trials, and what went wrong.

        Made anew unless the very same one ended well.
        """
        out = self.folder / rules
        options = self.options
        request = Request(
            self.case.operator, self.case.shape, options.target, self.threads, options.trials, seconds, options.seed,
            rules, options.batch, options.warmup, options.clock, str(out),
        )  # fmt: skip
        done = out / "done.json"
        if done.exists() and json.loads(done.read_text()) == asdict(request):
            return out, read_rows(out), ""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        error = run_peer(request, options.timeout)
        if not error:
            write_whole(done, asdict(request))
        return out, read_rows(out), error

    def result(self, rules: str) -> Result:
        """Both runs, and their programs in turn."""
        result = Result(self.case.name, self.threads, rules)
        try:
            workload = packed(self.case.operator, self.case.shape)
            ours = self._ours(result)
            folder, rows, error = self.searched(rules, ours.seconds if ours else 0.0)
            result.error = "; ".join(filter(None, [result.error, error]))
            first = rows[: self.options.trials]
            result.theirs = dict(Counter(str(row.measurement.status) for row in first))
            result.their_seconds = first[-1].elapsed if first else 0.0
            within = [row for row in rows if row.elapsed <= result.our_seconds]
            result.in_our_time = len(within)
            groups = {"theirs": fastest(first), "theirs in our time": fastest(within)}
            runs = {"ours": ours} if ours else {}
            if ours and len(first) == self.options.trials:
                result.in_their_time = fitting(self.options.trials, ours.seconds, result.their_seconds)
                runs["ours in their time"] = more = self.tuned(result.in_their_time)
                result.these_seconds = more.seconds
            contest = Contest(
                workload,
                self.target,
                self.threads,
                self.task if ours else None,
                {label: load_run(run.path).program(self.task)[0] for label, run in runs.items()},
                {label: [program_file(folder, row.number) for row in group] for label, group in groups.items()},
            )
            times = contest.times(self.options.rounds, Limits())
            result.gops = {label: workload.operations / min(seconds) / 1e9 for label, seconds in times.items()}
            for name, (our, their) in PAIRS.items():
                ratio = speedup(times.get(our), times.get(their))
                if ratio is not None:
                    result.ratios[name] = ratio
        except (HeronError, InternalError) as error:
            result.error = "; ".join(filter(None, [result.error, one_line(error)]))
        result.load = os.getloadavg()[2]
        return result

    def _ours(self, result: Result) -> Tuned | None:
        """Our run; a case that we cannot do becomes the row's error."""
        try:
            tuned = self.tuned(self.options.trials)
        except (HeronError, InternalError) as error:
            result.error = f"ours: {one_line(error)}"
            return None
        result.ours, result.our_seconds = tuned.statuses, tuned.seconds
        return tuned


def one_line(error: Exception) -> str:
    """A message in one line."""
    return " ".join(str(error).split())


def fastest(rows: Sequence[Row]) -> list[Row]:
    """The fastest few of a run's first rows. Their programs are kept: they were among the fastest when they came."""
    ran = [row for row in rows if row.measurement.seconds is not None]
    return sorted(ran, key=lambda row: row.measurement.seconds or 0.0)[:KEPT]


def fitting(trials: int, took: float, seconds: float) -> int:
    """How many trials go into some seconds, when so many took so long; at least one."""
    return max(1, round(trials * seconds / took))


def run_peer(request: Request, timeout: float) -> str:
    """MetaSchedule in a process of its own, with all that it forks; what went wrong, empty if nothing did."""
    out = Path(request.out)
    write_whole(out / "request.json", asdict(request))
    paths = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (out / "log").open("wb") as log:
        peer = subprocess.Popen(
            [sys.executable, "-m", "peers.metaschedule", str(out / "request.json")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = peer.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"theirs: not done after {timeout:g} s"
        finally:
            if peer.poll() is None:
                os.killpg(peer.pid, signal.SIGKILL)
                peer.wait()
    if code == 0:
        return ""
    lines = (out / "log").read_text(errors="replace").strip().splitlines()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"theirs: {how}: {lines[-1] if lines else 'no message'}"
