"""Samplers of the same spaces: ours, CP-SAT as Heron uses it, CP-SAT with random search, clasp's own randomness.

    pip install -e '.[peers]' && python benchmarks/sampling.py

For each sketch: samples a CPU-second, the time that compiling takes, the rows of the circuit. The effective support is
that of a small space whose programs can be told apart by collisions: the number of equally likely programs that would
collide as often, as a share of all. Every sample of every sampler is checked to be a program.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import clingo
import numpy as np
from compiling import conv_like
from peers.cpsat import FreshModel, Problem, RandomSearch
from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.space import SketchSpace
from heron_asp.terms import Value

SIZES = (64, 1024, 1008, 5040)


def spaces(target: str, sizes: Sequence[int]) -> Iterator[tuple[str, SketchSpace]]:
    """The sketches to sample, with labels."""
    for size in sizes:
        task = Task(operator("gemm", {"m": size, "n": size, "k": size}), resolve_target(target))
        for part in task.space:
            yield f"gemm {size}^3, {part.name}", part
    yield "conv-like, 7 loops", conv_like()


class Clasp:
    """clasp with random decisions and signs, seeded anew each time; also certifies samples under assumptions."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.rng = random.Random(seed)
        self.control = problem.part.control()
        self.control.configuration.solve.models = 1  # type: ignore[union-attr]
        self.control.configuration.solver.rand_freq = 1.0  # type: ignore[union-attr]
        self.control.configuration.solver.sign_def = "rnd"  # type: ignore[union-attr]
        self.control.ground([("base", [])])
        self.literals: dict[Value, dict[Value, int]] = {}
        self.symbols: dict[clingo.Symbol, tuple[Value, int]] = {}
        from heron_asp.terms import from_symbol

        for atom in self.control.symbolic_atoms.by_signature("value", 2):
            variable, value = map(from_symbol, atom.symbol.arguments)
            self.literals.setdefault(variable, {})[value] = atom.literal
            self.symbols[atom.symbol] = (variable, problem.number(value))

    def draw(self) -> tuple[int, ...]:
        """One sample."""
        self.control.configuration.solver.seed = self.rng.randrange(1 << 30)  # type: ignore[union-attr]
        with self.control.solve(yield_=True) as handle:
            model = handle.model()
            found = dict(self.symbols[one] for one in model.symbols(shown=True)) if model else {}
        return tuple(found[knob] for knob in self.problem.knobs)

    def certify(self, values: dict[Value, Value]) -> bool:
        """Whether clingo finds the program that we sampled."""
        assumptions = [self.literals[knob][values[knob]] for knob in self.problem.knobs]
        return bool(self.control.solve(assumptions=assumptions).satisfiable)


class Ours:
    """Our sampler, one sample a call, or with clingo's certificate."""

    def __init__(self, problem: Problem, seed: int, certificate: Clasp | None = None) -> None:
        self.problem = problem
        self.rng = np.random.default_rng(seed)
        self.certificate = certificate

    def draw(self) -> tuple[int, ...]:
        """One sample."""
        (one,) = self.problem.part.sample(1, self.rng)
        if self.certificate and not self.certificate.certify(one.values):
            raise AssertionError(f"clingo refutes {one.key}")
        return tuple(self.problem.number(one.values[knob]) for knob in self.problem.knobs)


class Sampler(Protocol):
    """Draws programs of a problem."""

    def draw(self) -> tuple[int, ...]:
        """One sample: the numbers of the knobs' values."""


def rate(draw: Callable[[], Any], seconds: float) -> tuple[float, list[Any]]:
    """Samples a CPU-second of this thread, at least three."""
    found: list[Any] = []
    start = time.process_time()
    while len(found) < 3 or time.process_time() - start < seconds:
        found.append(draw())
    return len(found) / (time.process_time() - start), found


def support(drawn: Sequence[Any], programs: int) -> float:
    """Effective support, from how often samples collide."""
    pairs = sum(count * (count - 1) for count in Counter(drawn).values())
    return len(drawn) * (len(drawn) - 1) / pairs / programs if pairs else float("nan")


def main() -> None:
    """Times all samplers on all spaces and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seconds", type=float, default=2.0, help="a cell")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    columns = ("Heron's", "CP-SAT random", "clasp", "ours, certified", "ours, one a call", "ours, batch")
    table = Table("space", "programs", "compile s", "rows", *columns, "one/Heron's", "batch/Heron's")
    for label, part in spaces(arguments.target, arguments.sizes):
        start = time.process_time()
        part.limits = type(part.limits)(seconds=None)
        size, circuit = part.size, part.circuit
        assert circuit is not None, "these spaces are compiled without limits"
        compiled = time.process_time() - start
        problem = Problem(part)
        clasp = Clasp(problem, arguments.seed)
        samplers: list[Sampler] = [
            FreshModel(problem, arguments.seed),
            RandomSearch(problem, arguments.seed),
            clasp,
            Ours(problem, arguments.seed, Clasp(problem, arguments.seed)),
            Ours(problem, arguments.seed),
        ]
        rates = []
        for sampler in samplers:
            speed, drawn = rate(sampler.draw, arguments.seconds)
            rates.append(speed)
            _check(problem, drawn[:50])
        rng = np.random.default_rng(arguments.seed)
        batches, _ = rate(partial(circuit.sample, 10_000, rng), arguments.seconds)
        rates.append(10_000 * batches)
        ratios = [f"{rates[4] / rates[0]:.0f}", f"{rates[5] / rates[0]:.0f}"]
        table.add_row(
            label, f"{size:,}", f"{compiled:.2f}", f"{circuit.rows:,}", *(f"{one:,.0f}" for one in rates), *ratios
        )
    console = Console(width=190)
    console.print("samples a CPU-second", table)
    _supports(arguments, console)


def _supports(arguments: argparse.Namespace, console: Console) -> None:
    """The effective support of every sampler on one small space."""
    part = Task(operator("gemm", {"m": 16, "n": 64, "k": 32}), resolve_target(arguments.target)).space.parts[0]
    problem = Problem(part)
    table = Table("sampler", "samples", "distinct", "effective support %", title=f"{part.size:,} programs")
    for name, sampler in (
        ("Heron's", FreshModel(problem, 1)),
        ("CP-SAT random", RandomSearch(problem, 1)),
        ("clasp", Clasp(problem, 1)),
        ("ours", Ours(problem, 1)),
    ):
        drawn = [sampler.draw() for _ in range(2_000)]
        table.add_row(name, str(len(drawn)), str(len(set(drawn))), f"{100 * support(drawn, part.size):.1f}")
    console.print(table)


def _check(problem: Problem, drawn: Sequence[tuple[int, ...]]) -> None:
    """Every sample is one program of the space."""
    for one in drawn:
        pins = {
            knob: frozenset(value for value in problem.values[knob] if problem.number(value) == number)
            for knob, number in zip(problem.knobs, one, strict=True)
        }
        if problem.part.count(pins) != 1:
            raise AssertionError(f"{dict(zip(map(str, problem.knobs), one, strict=True))} is no program")


if __name__ == "__main__":
    main()
