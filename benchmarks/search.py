"""The genetic search against uniform sampling of the same space: the best in % of the peak after so many trials.

python benchmarks/search.py -s m=1024,n=1024,k=1024 -t zen4 --trials 64 --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.host import require_host
from heron_asp.operators import parse_shape
from heron_asp.outcome import Outcome

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
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    require_host(target)
    made = operator("gemm", parse_shape(arguments.shape), arguments.dtype)
    task = Task(made, target, arguments.threads)
    after = [number for number in AFTER if number < arguments.trials] + [arguments.trials]
    table = Table("search", "seed", *(f"after {number}" for number in after), "confirmed", "correct", "seconds")
    for seed in arguments.seeds:
        for search in ("cga", "random"):
            outcome, best = run(task, search, seed, arguments.trials)
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


if __name__ == "__main__":
    main()
