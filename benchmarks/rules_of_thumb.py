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
from heron_asp.operators import Operator
from heron_asp.sketch import Constraint
from heron_asp.space import Values
from heron_asp.store import read_trials
from heron_asp.target import Target
from heron_asp.terms import parse

SHAPES = [
    ("gemm", "u8s8s32", {"m": 1024, "n": 1024, "k": 1024}),
    ("gemm", "u8s8s32", {"m": 512, "n": 768, "k": 3072}),
    ("gemm", "u8s8s32", {"m": 128, "n": 1008, "k": 2048}),
    ("gemm", "u8s8s32", {"m": 64, "n": 512, "k": 8192}),
    ("gemm", "u8s8s32", {"m": 512, "n": 512, "k": 8192}),
    ("gemm", "u8s8s32", {"m": 2048, "n": 2048, "k": 512}),
    ("gemm", "u8s8s32", {"m": 2048, "n": 2048, "k": 2048}),
    ("gemm", "bf16bf16f32", {"m": 512, "n": 512, "k": 1024}),
    ("gemm", "u8s8s32", {"m": 1, "n": 1024, "k": 1024}),
]
NEAR = 0.03


def used(constraint: Constraint, values: Values) -> float:
    """How much of a bound a program uses: above 1 it breaks it."""
    most = int(str(constraint.kind.arguments[0]))
    total = sum(coefficient * int(str(values[variable])) for coefficient, variable in constraint.members)
    return total / most if most > 0 else most / min(total, -1)


def measured(task: Task, trials: int, seed: int) -> list[tuple[float, str, Values]]:
    """Seconds, sketch and values of every correct program of a search in a task's space."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        tune(task, LocalDevice(task), TuneOptions(trials, seed, confirm=0), RunDirectory(run))
        found = []
        for trial in read_trials(run).values():
            if trial.measurement and trial.measurement.seconds:
                values: Values = {parse(name): value for name, value in trial.values.items()}
                found.append((trial.measurement.seconds, trial.sketch, values))
    return sorted(found, key=lambda one: one[0])


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
            use = [max((used(c, one[2]) for c in rules[one[1]] if c.thumb == thumb), default=0.0) for one in ran]
            cut = [one for one, share in zip(ran, use, strict=True) if share > 1]
            near_cut = sum(one in near for one in cut)
            fastest = f", the fastest at {best / cut[0][0]:.3f} of the best" if cut else ""
            most = max(use[: len(near)])
            print(f"  {thumb:<10} {len(cut):>4} break it, {near_cut} of them within 3 %{fastest}; ", end="")
            print(f"those within 3 % use up to {most:.2f} of the bound")
    for size in (1009, 1000, 127, 509):
        made = operator("gemm", {"m": size, "n": size, "k": size})
        exact = best_under(made, target, f"constraint(c3, held, among(extent(c, m), {size})).", arguments)
        held = f"constraint(c3, held, at_most({-size - 1})).  part(c3, held, -1, extent(c, m))."
        padded = best_under(made, target, held, arguments)
        print(f"{made.label}: best with exact rows {made.operations / exact / 1e9:.0f} GOP/s, ", end="")
        print(f"with padded rows {made.operations / padded / 1e9:.0f} GOP/s, ratio {exact / padded:.3f}", flush=True)


def best_under(made: Operator, target: Target, rule: str, arguments: argparse.Namespace) -> float:
    """Seconds of the best program under one more rule, padding being free."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "held.lp"
        file.write_text(f"{rule}\n")
        task = Task(made, target, extra_rules=[file], relaxed=["awkward"])
        return measured(task, arguments.trials, arguments.seed)[0][0]


if __name__ == "__main__":
    main()
