"""Samples under pins, as the genetic search asks for them: how long they take, and whether clingo agrees.

    python benchmarks/pins.py -t zen4

Pin sets: eight variables pinned to the values of two random programs (crossover), and six variables pinned to random
values, which few times out of ten a program has. Sixty-four sets together, two children each, are a generation of the
search; `search.py --cpu` says what a whole search costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import clingo
import numpy as np
from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.space import Candidate, Guarded, Pins, SketchSpace
from heron_asp.terms import Value, from_symbol

SIZES = (64, 1024, 1008)
TOGETHER = 64


class Clingo:
    """The sketch's problem for clingo, pins as assumptions."""

    def __init__(self, part: SketchSpace) -> None:
        self.control: clingo.Control = part.control()
        self.control.configuration.solve.models = 1  # type: ignore[union-attr]
        self.control.ground([("base", [])])
        self.literals: dict[Value, dict[Value, int]] = {}
        for atom in self.control.symbolic_atoms.by_signature("value", 2):
            variable, value = map(from_symbol, atom.symbol.arguments)
            self.literals.setdefault(variable, {})[value] = atom.literal

    def satisfiable(self, pins: Pins) -> bool:
        """Whether there is a program."""
        assumptions = [
            -literal
            for variable, allowed in pins.items()
            for value, literal in self.literals[variable].items()
            if value not in allowed
        ]
        return bool(self.control.solve(assumptions=assumptions).satisfiable)


def crossover(part: SketchSpace, rng: np.random.Generator) -> Pins:
    """Eight variables pinned to the values of two programs."""
    one, other = part.sample(2, rng)
    free = [variable for variable, domain in part.domains.items() if len(domain) > 1]
    chosen = [free[i] for i in rng.choice(len(free), min(8, len(free)), replace=False)]
    return {variable: frozenset({one.values[variable], other.values[variable]}) for variable in chosen}


def singles(part: SketchSpace, rng: np.random.Generator) -> Pins:
    """Six variables pinned to random values."""
    free = [variable for variable, domain in part.domains.items() if len(domain) > 1]
    chosen = [free[i] for i in rng.choice(len(free), min(6, len(free)), replace=False)]
    return {v: frozenset({part.domains[v][rng.integers(len(part.domains[v]))]}) for v in chosen}


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds, and the result."""
    start = time.process_time()
    result = what()
    return 1e3 * (time.process_time() - start), result


def _cells(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return ""
    return f"{np.mean(milliseconds):.2f} / {np.quantile(milliseconds, 0.95):.2f}"


def main() -> None:
    """Times both kinds of pin sets on some spaces, and a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--sets", type=int, default=1_000)
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    console = Console(width=150)
    table = Table(
        "space",
        "pins",
        "one child ms",
        "eight children, each",
        f"two, {TOGETHER} sets together, each",
        "clingo ms",
        "satisfiable",
        "minimal core ms",
    )
    different = 0
    for size in arguments.sizes:
        for part in Task(operator("gemm", {"m": size, "n": size, "k": size}), target).space:
            reference = Clingo(part)
            guarded = Guarded(part)
            guarded.core({})
            for label, make in (("crossover", crossover), ("random", singles)):
                rng = np.random.default_rng(size)
                one, eight, theirs, cores, feasible = [], [], [], [], 0
                problems = [make(part, rng) for _ in range(arguments.sets)]
                together, drawn = _together(part, problems, rng)
                for pins, children in zip(problems, drawn, strict=True):
                    took, found = timed(partial(part.sample, 1, rng, pins))
                    one.append(took)
                    took, _ = timed(partial(part.sample, 8, rng, pins))
                    eight.append(took / 8)
                    took, there = timed(partial(reference.satisfiable, pins))
                    theirs.append(took)
                    feasible += bool(found)
                    different += bool(found) != there or bool(children) != there
                    if not found:
                        took, _ = timed(partial(guarded.core, pins))
                        cores.append(took)
                share = f"{feasible} of {arguments.sets}"
                cells = [_cells(one), _cells(eight), _cells(together), _cells(theirs), share, _cells(cores)]
                table.add_row(f"{size}^3 {part.name}", label, *cells)
    console.print("CPU milliseconds, mean / 95th percentile", table)
    console.print(f"{different} pin sets on which clingo disagrees")
    raise SystemExit(1 if different else 0)


def _together(
    part: SketchSpace, problems: Sequence[Pins], rng: np.random.Generator
) -> tuple[list[float], list[list[Candidate]]]:
    """Milliseconds a child, two of each pin set, many sets together; and the children."""
    milliseconds: list[float] = []
    drawn: list[list[Candidate]] = []
    for first in range(0, len(problems), TOGETHER):
        some = problems[first : first + TOGETHER]
        took, found = timed(partial(part.sample_each, some, 2, rng))
        milliseconds.append(took / (2 * len(some)))
        drawn += found
    return milliseconds, drawn


if __name__ == "__main__":
    main()
