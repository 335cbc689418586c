"""Are all programs of the TensorCore spaces right, and how many would be without rules?

    python benchmarks/tensorcore_validity.py --random-space all   what refuses random programs, and how many it leaves
    python benchmarks/tensorcore_validity.py --operators          uniform samples of the operators of Heron's evaluation
    python benchmarks/tensorcore_validity.py --gemm 1000          uniform samples of GEMM 1024^3, only compiled

Without rules the knobs of the same schedules are drawn, for GEMM 1024^3 on an A100, in spaces that know more and more:

    L0     every tile by itself: a divisor of the extent
    L1     the tiles of an axis multiply to its extent
    L2     of a warp's tiles the innermost ones are the instruction's; the others round up
    L3     each extent is divided by the instruction's first, the rest is tiled
    rules  uniform samples of the space

The intrinsic, paddings, vectors, pipelines, places and orders are drawn by themselves in all of L0 to L3, where shared
memory is as large as TVM makes it. A program is counted under the first step that refuses it: TVM's schedule, tensorize
and lowering; TVM's check of GPU code; nvcc's front end; ptxas; what a launch can have; the emulator, on the first, the
last and random blocks, with threads and asynchronous copies in four orders. Nothing is run on a GPU.

`--operators` and `--gemm` exit with 1 unless every sample is right and takes the shared memory that the rules count.
`--json` keeps what was found, beside what other calls found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.backends.cuda.build import shared_memory
from heron_asp.backends.cuda.trial import Pipeline, Step, Trial
from heron_asp.completeness.trial import Lost, spread
from heron_asp.completeness.verdict import Rules, judge
from heron_asp.measure.data import cases
from heron_asp.operators import parse_shape
from heron_asp.sketch import Sketch
from heron_asp.terms import Term, Value

GEMM = {"m": 1024, "n": 1024, "k": 1024}
LEVELS = ("L0", "L1", "L2", "L3", "rules")
OPERATORS = (  # target, kind, shape, types, layout, epilogue
    ("a100", "gemm", "m=60,n=70,k=50", "f16f16f32", None, "bias,relu"),
    ("l4", "gemm", "m=60,n=70,k=50", "s8s8s32", None, ""),
    ("h100", "batch_matmul", "batch=3,m=40,n=24,k=32", "f16f16f32", None, ""),
    ("t4", "gemv", "m=100,k=70", "f16f16f32", None, ""),
    ("l4", "conv1d", "n=2,w=14,ci=24,co=40,kw=3,padding=1", "s8s8s32", None, ""),
    ("a100", "conv2d", "n=2,h=7,w=7,ci=24,co=40,kh=3,kw=3,stride=2,padding=1", "f16f16f32", None, "bias,add,relu"),
    ("rtx3090", "conv2d", "n=2,h=5,w=6,ci=12,co=20,kh=3,kw=2,padding=1", "f16f16f32", "channels-first", "bias"),
    ("rtx3090", "conv3d", "n=1,d=3,h=5,w=5,ci=12,co=20,kd=3,kh=3,kw=3,padding=1", "f16f16f16", None, ""),
    ("a100", "conv2d_dilated", "n=1,h=9,w=9,ci=16,co=16,kh=3,kw=3,padding=2,dilation=2", "f16f16f32", None, ""),
    ("t4", "conv2d_transposed", "n=1,h=5,w=5,ci=16,co=16,kh=3,kw=3,stride=2,padding=1", "f16f16f32", None, ""),
    ("l4", "depthwise_conv2d", "n=1,h=6,w=6,c=8,kh=3,kw=3,padding=1", "f16f16f32", None, ""),
    ("h100", "scan", "m=20,n=30,k=33", "f16f16f32", None, ""),
    ("a100", "mean", "m=20,k=100", "f16f16f32", None, ""),
    ("rtx3090", "variance", "m=10,k=60", "f16f16f32", None, ""),
)
VECTORS = (1, 2, 4, 8, 16)
PADDINGS = (0, 2, 4, 8, 16)
SECONDS = 600.0  # of a program
LOST = "lost"  # a process that ended early or was too slow


@dataclass(frozen=True)
class Item:
    """A program to try: a sketch, the values of its variables, and the shared memory that it should take, if known."""

    sketch: Sketch
    values: dict[Value, Value]
    shared: int | None = None


def tried(pipeline: Pipeline, items: Sequence[Item], workers: int) -> list[Trial | Lost]:
    """What became of programs, each in a forked process for some of them."""

    def work(item: Item) -> Trial:
        found = pipeline.trial(item.sketch, item.values)
        if item.shared is not None and found.valid and found.dynamic_shared != item.shared:
            return Trial(Step.LOWERING, f"{found.dynamic_shared} bytes of shared memory, the rules count {item.shared}")
        return found

    return spread(lambda: work, items, workers, 20, SECONDS)


def sampled(task: Task, number: int, seed: int) -> list[Item]:
    """Uniform samples of a task's space."""
    found = task.space.sample(number, np.random.default_rng(seed))
    return [Item(task.space[one.sketch].sketch, one.values, shared_memory(task, one)) for one in found]


# -- without rules -----------------------------------------------------------------------------------------------------


def drawn(task: Task, level: str, number: int, seed: int) -> list[Item]:
    """Random assignments of the knobs of all sketches."""
    rng = np.random.default_rng(seed)
    sketches = [part.sketch for part in task.space]
    found = []
    for _ in range(number):
        sketch = sketches[int(rng.integers(len(sketches)))]
        knobs = {**dict(_tiles(sketch, level, rng)), **dict(_others(sketch, rng))}
        rules = Rules.of(sketch)
        row = tuple(knobs[knob] for knob in rules.knobs)
        found.append(Item(sketch, judge(rules, [row]).values(0)))
    return found


def _tiles(sketch: Sketch, level: str, rng: np.random.Generator) -> Iterator[tuple[Value, Value]]:
    """Extents and tiles of all axes, outermost first."""
    units = {(block, axis): size for block, axis, size in sketch.of("unit")}
    for block, axis, _, extent in sketch.of("axis"):
        assert isinstance(extent, int)
        yield Term("extent", (block, axis)), extent
        tiled = {one for b, a, one in sketch.of("tile") if (b, a) == (block, axis)}
        levels = list(dict.fromkeys(row.name for row in sketch.levels if row.name in tiled))
        unit = units[block, axis]
        assert isinstance(unit, int)
        sizes = (
            _sizes(extent, len(levels), unit, level, rng) if "unit" in levels else _factors(extent, len(levels), rng)
        )
        yield from ((Term("tile", (block, axis, one)), size) for one, size in zip(levels, sizes, strict=True))


def _sizes(extent: int, parts: int, unit: int, level: str, rng: np.random.Generator) -> list[int]:
    """So many tiles of an axis; the last one is the instruction's."""
    if level == "L0":
        return [int(one) for one in rng.choice(divisors(extent), parts)]
    if level == "L1":
        return _factors(extent, parts, rng)
    if level == "L2":
        *outer, inner = _factors(extent, parts - 1, rng)
        return [*outer, -(-inner // unit), unit]
    return [*_factors(extent // unit, parts - 1, rng), unit]


def divisors(extent: int) -> list[int]:
    """All divisors of a number."""
    return [one for one in range(1, extent + 1) if extent % one == 0]


def _factors(extent: int, parts: int, rng: np.random.Generator) -> list[int]:
    """So many factors of an extent, every choice as likely: a power of two in each of the ways to deal it out."""
    while True:
        sizes = [int(one) for one in rng.choice(divisors(extent), parts - 1)]
        if extent % prod(sizes) == 0:
            return [*sizes, extent // prod(sizes)]


def _others(sketch: Sketch, rng: np.random.Generator) -> Iterator[tuple[Value, Value]]:
    """All other knobs, each over all values that it might have."""
    candidates: dict[Value, list[Value]] = {}
    for knob, value in sketch.of("candidate"):
        candidates.setdefault(knob, []).append(value)
    more: dict[str, tuple[int, ...]] = {"vector": VECTORS, "padding": PADDINGS}
    for knob in sketch.knobs:
        name = knob.name if isinstance(knob, Term) else ""
        if name not in ("extent", "tile"):
            values: Sequence[Value] = more.get(name, tuple(candidates[knob]))
            yield knob, values[int(rng.integers(len(values)))]


def random_space(level: str, samples: int, seed: int, workers: int) -> dict[str, Any]:
    """How many of a level's programs each step refuses."""
    task = Task(operator("gemm", GEMM, "f16f16f32"), resolve_target("a100"))
    items = sampled(task, samples, seed) if level == "rules" else drawn(task, level, samples, seed)
    pipeline = Pipeline(task, cases(task.operator, most=1)[0], counted=level == "rules")
    return counted(tried(pipeline, items, workers))


# -- with rules --------------------------------------------------------------------------------------------------------


def operators(samples: int, seed: int, workers: int, only: str) -> Iterator[dict[str, Any]]:
    """What became of samples of each operator."""
    for target, kind, shape, dtype, layout, epilogue in OPERATORS:
        if only not in kind:
            continue
        task = Task(operator(kind, parse_shape(shape), dtype, layout, epilogue), resolve_target(target))
        trials = tried(Pipeline(task, cases(task.operator, most=1)[0]), sampled(task, samples, seed), workers)
        yield {"operator": task.operator.label, "target": target, "programs": task.space.size, **counted(trials)}


def gemm(samples: int, compiled: int, seed: int, workers: int) -> dict[str, Any]:
    """What became of samples of GEMM 1024^3 before the emulator; some of them are compiled too."""
    task = Task(operator("gemm", GEMM, "f16f16f32"), resolve_target("a100"))
    items = sampled(task, samples, seed)
    found = tried(Pipeline(task, None), items[:compiled], workers)
    rest = tried(Pipeline(task, None, compiles=False), items[compiled:], workers)
    return {**counted([*found, *rest]), "compiled": compiled}


def counted(trials: Sequence[Trial | Lost]) -> dict[str, Any]:
    """How many trials each step refused, and the reasons, with how often each was given."""
    steps: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for one in trials:
        if isinstance(one, Lost):
            steps[LOST] += 1
            reasons[one.why] += 1
        elif one.step is not None:
            steps[one.step] += 1
            reasons[f"{one.step}: {one.reason}"] += 1
    kernels = [one for trial in trials if isinstance(trial, Trial) for _, one in trial.resources]
    valid = len(trials) - sum(steps.values())
    return {
        "samples": len(trials),
        "valid": valid,
        "refused": dict(steps),
        "spilling": sum(one.spill_stores > 0 for one in kernels),
        "reasons": dict(reasons.most_common(20)),
    }


# -- what is printed ---------------------------------------------------------------------------------------------------


def table(title: str, rows: dict[str, dict[str, Any]], console: Console) -> None:
    """A row a space or an operator, a column a step."""
    made = Table(title=title, title_justify="left")
    steps = [step for step in [*Step, LOST] if any(row["refused"].get(step) for row in rows.values())]
    for heading in ("", *steps, "valid", "of", "spilling"):
        made.add_column(heading, justify="right" if heading else "left")
    for name, row in rows.items():
        refused = [str(row["refused"].get(step, 0)) for step in steps]
        share = f"{row['valid']} ({100 * row['valid'] / max(1, row['samples']):.3g} %)"
        made.add_row(name, *refused, share, str(row["samples"]), str(row["spilling"]))
    console.print(made)


def main() -> None:
    """Tries what is asked for, prints, keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random-space", action="append", default=[], choices=[*LEVELS, "all"])
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--only", default="", help="operators whose name contains this text")
    parser.add_argument("--gemm", type=int, default=0, metavar="N")
    parser.add_argument("--compiled", type=int, default=100, help="of these")
    parser.add_argument("--samples", type=int, default=0, help="of a random space (200) or an operator (25)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console(width=160)
    kept: dict[str, Any] = {}
    if arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text())
    failed = False

    def keep(section: str, name: str, found: dict[str, Any], begin: float) -> None:
        kept.setdefault(section, {})[name] = {**found, "seconds": round(time.monotonic() - begin)}
        if arguments.json:
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n")

    for level in LEVELS if "all" in arguments.random_space else arguments.random_space:
        begin = time.monotonic()
        found = random_space(level, arguments.samples or 200, arguments.seed, arguments.workers)
        keep("random_space", level, found, begin)
        failed |= level == "rules" and found["valid"] < found["samples"]
    if arguments.random_space:
        table("GEMM 1024^3, f16 -> f32, A100: what refuses random programs", kept["random_space"], console)
    if arguments.operators:
        begin, shown = time.monotonic(), {}
        for found in operators(arguments.samples or 25, arguments.seed, arguments.workers, arguments.only):
            name = f"{found['operator']} on {found['target']}"
            keep("operators", name, found, begin)
            shown[name], begin = found, time.monotonic()
            failed |= found["valid"] < found["samples"]
        table("Uniform samples of small operators, emulated", shown, console)
    if arguments.gemm:
        begin = time.monotonic()
        found = gemm(arguments.gemm, arguments.compiled, arguments.seed, arguments.workers)
        keep("gemm", f"{found['samples']} samples, {found['compiled']} of them compiled", found, begin)
        failed |= found["valid"] < found["samples"]
        table("Uniform samples of GEMM 1024^3 on an A100, not emulated", kept["gemm"], console)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
