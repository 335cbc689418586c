"""The evidence for the rules of thumb: does any of them cut programs that are near the best?

For each shape the genetic search runs in the space without rules of thumb (constraints that only say what pays are
lifted, what must hold stays). Of the programs within 3 % of the best, the table says how many each rule would have
cut, and how fast the best program is that breaks it.

    python benchmarks/rules_of_thumb.py -t zen4 --trials 192
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target, tune
from heron_asp.sketch import Constraint
from heron_asp.space.space import Values
from heron_asp.store import read_trials, rows
from heron_asp.terms import Value, parse

SHAPES = [
    ("gemm", "u8s8s32", {"m": 1024, "n": 1024, "k": 1024}),
    ("gemm", "u8s8s32", {"m": 512, "n": 768, "k": 3072}),
    ("gemm", "u8s8s32", {"m": 128, "n": 1008, "k": 2048}),
    ("gemm", "u8s8s32", {"m": 64, "n": 512, "k": 8192}),
    ("gemm", "u8s8s32", {"m": 2048, "n": 2048, "k": 512}),
    ("gemm", "bf16bf16f32", {"m": 512, "n": 512, "k": 1024}),
    ("gemm", "u8s8s32", {"m": 1, "n": 1024, "k": 1024}),
]
NEAR = 0.03


def breaks(constraint: Constraint, values: Values) -> bool:
    """Whether a program goes against a bound."""
    (most,) = constraint.kind.arguments
    total = sum(coefficient * int(str(values[variable])) for coefficient, variable in constraint.members)
    return total > int(str(most))


def measured(task: Task, trials: int, seed: int) -> list[tuple[float, str, Values]]:
    """Seconds, sketch and values of every correct program of a search in a task's space."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        tune(task, LocalDevice(task), TuneOptions(trials, seed, confirm=0), RunDirectory(run))
        said = {row["trial"]: row["values"] for row in rows(run / "trials.jsonl") if row["event"] == "started"}
        found = []
        for trial in read_trials(run).values():
            if trial.measurement and trial.measurement.seconds:
                values: Values = {_variable(name): value for name, value in said[trial.number].items()}
                found.append((trial.measurement.seconds, trial.candidate.split(": ")[0], values))
    return sorted(found, key=lambda one: one[0])


def _variable(name: str) -> Value:
    return parse(name)


def bounds(task: Task) -> dict[str, list[Constraint]]:
    """The rules of thumb of each sketch that are bounds."""
    return {
        sketch.name: [c for c in sketch.constraints if c.thumb and c.kind.name == "at_most"] for sketch in task.sketches
    }


def main() -> None:
    """Prints a table a shape, and the padding of awkward extents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--trials", type=int, default=192)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    for name, dtype, shape in SHAPES:
        made = operator(name, shape, dtype)
        rules = bounds(Task(made, target))
        lifted = sorted({constraint.name for some in rules.values() for constraint in some})
        ran = measured(Task(made, target, relaxed=lifted), arguments.trials, arguments.seed)
        best = ran[0][0]
        near = [one for one in ran if one[0] <= best * (1 + NEAR)]
        print(f"{made.label}: best {made.operations / best / 1e9:.0f} GOP/s, {len(near)} of {len(ran)} within 3 %")
        for thumb in sorted({constraint.thumb or "" for some in rules.values() for constraint in some}):
            cut = [one for one in ran if any(c.thumb == thumb and breaks(c, one[2]) for c in rules[one[1]])]
            near_cut = sum(one in near for one in cut)
            fastest = f"the fastest of them at {best / cut[0][0]:.3f} of the best" if cut else ""
            print(f"  {thumb:<10} {len(cut):>4} break it, {near_cut} of them within 3 %  {fastest}")
    for size in (1009, 1000, 127, 509):
        made = operator("gemm", {"m": size, "n": size, "k": size})
        task = Task(made, target, relaxed=["awkward"])
        ran = measured(task, arguments.trials, arguments.seed)
        extent = parse("extent(c, m)")
        exact = [seconds for seconds, _, values in ran if values[extent] == size]
        padded = [seconds for seconds, _, values in ran if values[extent] != size]
        if exact and padded:
            print(f"{made.label}: best with exact rows {made.operations / min(exact) / 1e9:.0f} GOP/s, ", end="")
            print(f"padded {made.operations / min(padded) / 1e9:.0f} GOP/s, ratio {min(exact) / min(padded):.3f}")


if __name__ == "__main__":
    main()
