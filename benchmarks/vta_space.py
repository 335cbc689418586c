"""VTA as a device without noise: what ranks its programs, and how fast a search finds the best.

    python benchmarks/vta_space.py                             gemm 64^3 on vta-pynq: 80 programs, 20 seeds, 100 trials
    python benchmarks/vta_space.py -s m=128,n=128,k=128 --seeds 5 --plot curves.png

First programs that are drawn uniformly are ranked by

    host time     what the functional simulator takes for them on this machine: the least of three, and their mean
    cost model    XGBoost, trained on the other half of them

and both are compared with the cycles (Spearman's rank correlation), with the cycles of the program that each calls the
best. Then the genetic search and uniform sampling, both with cycles as the only measurement, for each seed; programs
are counted once and kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.measure import VtaDevice
from heron_asp.backends.vta.tokens import follow
from heron_asp.measure.data import cases
from heron_asp.measure.result import Measurement, Status
from heron_asp.model import BoostedTrees
from heron_asp.operators import parse_shape
from heron_asp.search import ConstrainedGenetic, RandomSearch, Search, SearchOptions
from heron_asp.space import Candidate

Floats = npt.NDArray[np.float64]
AFTER = (5, 10, 20, 40, 60, 80, 100, 200, 300)
_REPEATS = 3


class Counting:
    """Counts the cycles of candidates, each once.

    Args:
        task: operator and device.
    """

    def __init__(self, task: Task) -> None:
        self.device = VtaDevice(task)
        self.known: dict[str, int] = {}

    def cycles(self, candidate: Candidate) -> int:
        """Of a candidate."""
        if candidate.key not in self.known:
            lowered = self.device.lowered(candidate)
            self.known[candidate.key] = count_cycles(lowered.instructions, self.device.numbers.config)
        return self.known[candidate.key]

    def curve(self, search: Search, trials: int) -> list[int]:
        """The least cycles after each trial."""
        best: list[int] = []
        while len(best) < trials:
            asked = search.ask(trials - len(best))
            if not asked:
                break
            for candidate in asked:
                cycles = self.cycles(candidate)
                best.append(min(best[-1] if best else cycles, cycles))
                search.tell(candidate, Measurement(Status.CORRECT, seconds=cycles / self.device.numbers.hertz))
        return best + best[-1:] * (trials - len(best))


def ranks(values: Floats) -> Floats:
    """Places from the smallest, equal ones sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(one: Floats, other: Floats) -> float:
    """Rank correlation."""
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def rank_table(counting: Counting, number: int, seed: int) -> list[dict[str, float | str]]:
    """How well host time and the cost model rank uniform samples."""
    task = counting.device.task
    chosen = task.space.sample(number, np.random.default_rng(seed), {})
    cycles = np.array([counting.cycles(one) for one in chosen], float)
    case, config = cases(task.operator)[0], counting.device.numbers.config
    times = np.empty((len(chosen), _REPEATS))
    programs = [counting.device._lowered(one) for one in chosen]
    for repeat in range(_REPEATS):  # in turn, so that a busy moment spoils no single program
        for place, lowered in enumerate(programs):
            assert not isinstance(lowered, Exception), lowered
            image, order = lowered.image(case.inputs), follow(lowered.instructions).order
            begin = time.perf_counter()
            simulate(lowered.instructions, image, config, order)
            times[place, repeat] = time.perf_counter() - begin
    half = len(chosen) // 2
    model = BoostedTrees(task.space, seed)
    model.fit(chosen[:half], list(-np.log(cycles[:half])))
    guess = -np.asarray(model.predict(chosen[half:]))
    rows: list[dict[str, float | str]] = []
    for name, score, true in (
        ("host time, least of 3", times.min(axis=1), cycles),
        ("host time, mean of 3", times.mean(axis=1), cycles),
        (f"cost model, trained on {half}", guess, cycles[half:]),
    ):
        rows.append(
            {
                "ranked by": name,
                "programs": len(true),
                "spearman": spearman(score, true),
                "best": float(true.min()),
                "called best": float(true[np.argmin(score)]),
            }
        )
    return rows


def main() -> None:
    """Ranks, searches, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--shape", default="m=64,n=64,k=64")
    parser.add_argument("-t", "--target", default="vta-pynq")
    parser.add_argument("--programs", type=int, default=80, help="that are ranked")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    parser.add_argument("--plot", type=Path, help="a file for a picture of the curves")
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    usual = target.shared.defaults
    task = Task(operator("gemm", parse_shape(arguments.shape), usual.dtype, None, usual.epilogue), target)
    counting, console = Counting(task), Console(width=110)
    console.print(f"{task.operator.label} on {target.name}: {task.space.size:,} programs")
    rows = rank_table(counting, arguments.programs, 0)
    table = Table("ranked by", "programs", "Spearman", "best has", "called best has")
    for row in rows:
        numbers = f"{row['spearman']:.3f}", f"{row['best']:,.0f}", f"{row['called best']:,.0f} cycles"
        table.add_row(str(row["ranked by"]), str(row["programs"]), *numbers)
    console.print(table)
    curves: dict[str, list[list[int]]] = {"cga": [], "random": []}
    for seed in range(arguments.seeds):
        sizes = SearchOptions.scaled(arguments.trials)
        curves["cga"].append(counting.curve(ConstrainedGenetic(task.space, seed, sizes), arguments.trials))
        curves["random"].append(counting.curve(RandomSearch(task.space, seed), arguments.trials))
    after = [number for number in AFTER if number <= arguments.trials]
    table = Table("best cycles after", *(str(number) for number in after), title=f"median of {arguments.seeds} seeds")
    for name, found in curves.items():
        medians = np.median(np.array(found)[:, [number - 1 for number in after]], axis=0)
        table.add_row(name, *(f"{cycles:,.0f}" for cycles in medians))
    console.print(table)
    last = {name: np.array(found)[:, -1] for name, found in curves.items()}
    wins, ties = int((last["cga"] < last["random"]).sum()), int((last["cga"] == last["random"]).sum())
    least = min(counting.known.values())
    console.print(
        f"after {arguments.trials} trials cga is ahead for {wins} of {arguments.seeds} seeds, equal for {ties}; "
        f"of all {len(counting.known):,} programs that were counted the best has {least:,} cycles"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"ranks": rows, "curves": curves}, indent=2) + "\n")
    if arguments.plot:
        _plot(curves, arguments.plot)


def _plot(curves: dict[str, list[list[int]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name, found in curves.items():
        array = np.array(found)
        trials = np.arange(1, array.shape[1] + 1)
        axes.plot(trials, np.median(array, axis=0), label=f"{name}, median")
        axes.fill_between(trials, *np.quantile(array, (0.1, 0.9), axis=0), alpha=0.2)
    axes.set(xlabel="trials", ylabel="cycles of the best", yscale="log")
    axes.legend()
    figure.savefig(file, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
