"""Samples under pins, as the genetic search asks for them: how long they take, and whether clingo agrees.

    python benchmarks/pins.py -t zen4

Pin sets: eight variables pinned to the values of two random programs (crossover), and six variables pinned to random
values, which about half the time no program has. Also: what a whole search costs for each trial, training included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import clingo
import numpy as np
from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.measure.result import Measurement, Status
from heron_asp.search.cga import ConstrainedGenetic, SearchOptions
from heron_asp.space import Guarded, Pins, SketchSpace
from heron_asp.terms import Value, from_symbol

SIZES = (64, 1024, 1008)


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
        "space", "pins", "one child ms", "eight children, each", "clingo ms", "satisfiable", "minimal core ms"
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
                for _ in range(arguments.sets):
                    pins = make(part, rng)
                    took, found = timed(lambda part=part, pins=pins, rng=rng: part.sample(1, rng, pins))
                    one.append(took)
                    took, _ = timed(lambda part=part, pins=pins, rng=rng: part.sample(8, rng, pins))
                    eight.append(took / 8)
                    took, there = timed(lambda pins=pins, reference=reference: reference.satisfiable(pins))
                    theirs.append(took)
                    feasible += bool(found)
                    different += bool(found) != there
                    if not found:
                        took, _ = timed(lambda pins=pins, guarded=guarded: guarded.core(pins))
                        cores.append(took)
                share = f"{feasible} of {arguments.sets}"
                cells = [_cells(one), _cells(eight), _cells(theirs), share, _cells(cores)]
                table.add_row(f"{size}^3 {part.name}", label, *cells)
    console.print("CPU milliseconds, mean / 95th percentile", table)
    console.print(f"{different} pin sets on which clingo disagrees")
    console.print(f"search: {_search(target):.1f} ms of CPU a trial, training included (64 trials)")
    raise SystemExit(1 if different else 0)


def _search(target: Any) -> float:
    """CPU milliseconds a trial of a search on a made-up device."""
    space = Task(operator("gemm", {"m": 1024, "n": 1024, "k": 1024}), target).space
    search = ConstrainedGenetic(space, 0, SearchOptions.scaled(64))
    rng = np.random.default_rng(0)
    done = 0
    assert space.size
    start = time.process_time()
    while done < 64:
        for candidate in search.ask(64 - done):
            seconds = 1e-3 * (1 + rng.random() + sum(value for value in candidate.values.values() if value == 1))
            search.tell(candidate, Measurement(Status.CORRECT, seconds=seconds))
            done += 1
    return 1e3 * (time.process_time() - start) / done


if __name__ == "__main__":
    main()
