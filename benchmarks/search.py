"""The genetic search against uniform sampling of the same space: the best in % of the peak after so many trials.

    python benchmarks/search.py -s m=1024,n=1024,k=1024 -t zen4 --trials 64 --seeds 1 2 3
    python benchmarks/search.py -s m=512,n=768,k=3072 -t zen4 --trials 64 200 --cpu

With --cpu nothing is measured: a made-up device answers, and the table says what the search itself costs, in
milliseconds of CPU a trial, and how near it comes to the best program, which is known. xgboost is imported before.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xgboost  # noqa: F401 - the first import takes 0.2 s, once a process
from rich.console import Console
from rich.table import Table

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.host import require_host
from heron_asp.measure.result import Measurement, Status
from heron_asp.operators import parse_shape
from heron_asp.outcome import Outcome
from heron_asp.search import ConstrainedGenetic, RandomSearch, Search, SearchOptions
from heron_asp.space import Candidate, SketchSpace, Space, is_shown
from heron_asp.target import Target
from heron_asp.terms import Value, text

AFTER = (8, 16, 32, 64, 128, 256)


def run(task: Task, search: str, seed: int, trials: int) -> tuple[Outcome, list[float | None]]:
    """A run, and the best seconds after each trial."""
    best: list[float | None] = []
    with tempfile.TemporaryDirectory() as folder:
        outcome = tune(
            task,
            LocalDevice(task),
            TuneOptions(trials, seed, search),
            RunDirectory(Path(folder) / "run"),
            progress=lambda now: best.append(now.best),
        )
    return outcome, best


def main() -> None:
    """Runs both searches for each seed, in turn, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--shape", default="m=1024,n=1024,k=1024")
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--dtype", default="u8s8s32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, nargs="*", default=[64])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--cpu", action="store_true", help="time the search itself, on a made-up device")
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    if arguments.cpu:
        _cpu(arguments, target)
        return
    require_host(target)
    made = operator("gemm", parse_shape(arguments.shape), arguments.dtype)
    task = Task(made, target, arguments.threads)
    trials = max(arguments.trials)
    after = [number for number in AFTER if number < trials] + [trials]
    table = Table("search", "seed", *(f"after {number}" for number in after), "confirmed", "correct", "seconds")
    for seed in arguments.seeds:
        for search in ("cga", "random"):
            outcome, best = run(task, search, seed, trials)
            peak = outcome.peak or float("nan")
            cells = [_share(made.operations, best[number - 1], peak) for number in after if number <= len(best)]
            cells += [""] * (len(after) - len(cells))
            correct = f"{outcome.statuses.get('correct', 0)} of {sum(outcome.statuses.values())}"
            confirmed = _share(made.operations, outcome.seconds, peak)
            table.add_row(search, str(seed), *cells, confirmed, correct, f"{outcome.wall_seconds:.0f}")
    console = Console(width=110)
    console.print(f"{made.label} on {target.name}, threads {arguments.threads}: best in % of the measured peak")
    console.print(table)


def _share(operations: int, seconds: float | None, peak: float) -> str:
    return f"{100 * operations / seconds / peak:.1f}" if seconds else ""


# -- the search by itself ----------------------------------------------------------------------------------------------


class MadeUpDevice:
    """A time for every program: each of some variables adds to its logarithm by how far its value is from the best.

    The optimum is what the circuit says the smallest sum is; a hash of the program adds up to 2 % to a measured time.

    Args:
        space: the programs.
        seed: which variables matter, how much, and what is best for each.
    """

    def __init__(self, space: Space, seed: int) -> None:
        rng = np.random.default_rng(seed)
        domains: dict[Value, dict[Value, None]] = {}
        for part in space:
            for variable, domain in part.domains.items():
                domains.setdefault(variable, {}).update(dict.fromkeys(domain))
        free = sorted((one for one, domain in domains.items() if len(domain) > 1 and is_shown(one)), key=text)
        chosen = [free[i] for i in rng.choice(len(free), min(12, len(free)), replace=False)]
        self.cost: dict[Value, dict[Value, float]] = {}
        for variable in chosen:
            values = sorted(domains[variable], key=lambda one: (one if isinstance(one, int) else 0, text(one)))
            best, weight = rng.random(), rng.exponential(1.0)
            place = np.linspace(0, 1, len(values))
            self.cost[variable] = dict(zip(values, (weight * (place - best) ** 2).tolist(), strict=True))
        found = [part.best(self._scores(part)) for part in space if part.size]
        self.optimum = min(-one[1] for one in found if one is not None)

    def _scores(self, part: SketchSpace) -> dict[Value, dict[Value, float]]:
        """Costs as scores, which `best` makes as large as it can."""
        return {
            variable: {value: -cost for value, cost in by_value.items()}
            for variable, by_value in self.cost.items()
            if variable in part.variables
        }

    def measure(self, candidate: Candidate) -> Measurement:
        """What a run would take."""
        log = sum(cost[candidate.values[one]] for one, cost in self.cost.items() if one in candidate.values)
        digest = hashlib.sha256(candidate.key.encode()).digest()
        return Measurement(Status.CORRECT, seconds=1e-3 * np.exp(log) * (1 + 0.02 * digest[0] / 256))


class Stopwatch:
    """CPU seconds by what they were spent on; a call within another one counts there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running = False

    def timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time taken."""

        def call(*arguments: Any, **named: Any) -> Any:
            if self._running:
                return function(*arguments, **named)
            self._running = True
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[label] += time.process_time() - start
                self._running = False

        return call


def _search(search: Search, device: MadeUpDevice, trials: int) -> tuple[float, float]:
    """CPU seconds of the search, and the best time that it found."""
    spent, best, done = 0.0, float("inf"), 0
    while done < trials:
        start = time.process_time()
        asked = search.ask(trials - done)
        spent += time.process_time() - start
        for candidate in asked:
            measurement = device.measure(candidate)
            best = min(best, measurement.seconds or best)
            search.tell(candidate, measurement)
        done += len(asked)
        if not asked:
            break
    return spent, best


def _timed(space: Space, seed: int, trials: int) -> tuple[ConstrainedGenetic, Stopwatch]:
    """A search that takes the time of its parts."""
    watch = Stopwatch()
    search = ConstrainedGenetic(space, seed, SearchOptions.scaled(trials))
    for owner in (space, *space.parts):
        for name in ("sample", "sample_each"):
            if hasattr(owner, name):
                setattr(owner, name, watch.timed("sampling", getattr(type(owner), name).__get__(owner)))
    for name, label in (("fit", "training"), ("predict", "prediction"), ("importance", "training")):
        setattr(search.model, name, watch.timed(label, getattr(search.model, name)))
    return search, watch


def _cpu(arguments: argparse.Namespace, target: Target) -> None:
    """What the search costs and finds, for each budget the mean over the seeds."""
    made = operator("gemm", parse_shape(arguments.shape), arguments.dtype)
    space = Task(made, target, arguments.threads).space
    columns = ("sampling", "training", "prediction", "rest", "together")
    table = Table("trials", *columns, "best / optimum", "uniform sampling's")
    for trials in arguments.trials:
        rows: list[Sequence[float]] = []
        for seed in arguments.seeds:
            device = MadeUpDevice(space, seed)
            search, watch = _timed(space, seed, trials)
            spent, best = _search(search, device, trials)
            _, sampled = _search(RandomSearch(space, seed), device, trials)
            parts = [watch.seconds[label] for label in columns[:3]]
            ratios = [one / (1e-3 * np.exp(device.optimum)) for one in (best, sampled)]
            rows.append([*(1e3 * one / trials for one in (*parts, spent - sum(parts), spent)), *ratios])
        mean = np.mean(rows, axis=0)
        table.add_row(str(trials), *(f"{one:.2f}" for one in mean[:5]), *(f"{one:.3f}" for one in mean[5:]))
    console = Console(width=130)
    console.print(f"{made.label} on {target.name}, {space.size:,} programs: CPU milliseconds a trial", table)


if __name__ == "__main__":
    main()
