"""What compiling the spaces of sketches takes: seconds of CPU for grounding and for elimination, rows, memory.

    python benchmarks/compiling.py -t zen4

GEMMs of sizes with few and with many divisors, and convolutions of seven and nine loops, two to four tiles each, with
the footprints of their tensors in one to three memories. Each is compiled by itself, in a child process.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.child import Report, run_in_child
from heron_asp.sketch import Sketch
from heron_asp.space import SketchSpace
from heron_asp.space.compiled import compile_program
from heron_asp.space.ground import ground
from heron_asp.terms import Term, Value, fact

SIZES = (64, 1024, 1008, 1009, 4096, 5040, 7560, 8192)
LEVELS = ("grid", "outer", "middle", "inner")
SMALL = {"n": 16, "p": 56, "q": 56, "co": 64, "ci": 64, "r": 3, "s": 3}
LARGE = {"n": 32, "p": 112, "q": 112, "co": 256, "ci": 128, "r": 7, "s": 7}
VOLUME = {"n": 8, "d": 16, "p": 56, "q": 56, "co": 64, "ci": 64, "t": 3, "r": 3, "s": 3}
TAPS = {"p": "r", "q": "s", "d": "t"}


@dataclass
class _Facts:
    """A sketch under construction."""

    atoms: dict[str, list[tuple[Value, ...]]]

    def add(self, name: str, *arguments: Value) -> None:
        self.atoms.setdefault(name, []).append(arguments)

    def number(self, value: int) -> Term:
        """A named number."""
        self.add("knob", fact("size", value))
        self.add("candidate", fact("size", value), value)
        return fact("size", value)

    def define(
        self, id_: Term, kind: Term, factors: Sequence[Value] = (), parts: Sequence[tuple[int, Value]] = ()
    ) -> None:
        """A constraint."""
        self.add("constraint", "c4", id_, kind)
        self.add("because", "c4", id_, fact("reorder", "conv"))
        for one in factors:
            self.add("factor", "c4", id_, one)
        for coefficient, one in parts:
            self.add("part", "c4", id_, coefficient, one)


def conv_like(loops: Mapping[str, int] = SMALL, tiles: int = 3, capacities: Sequence[int] = (262_144,)) -> SketchSpace:
    """A convolution.

    Args:
        loops: extents; output positions, channels, batch, and a tap for each dimension of a window.
        tiles: tiles of each loop.
        capacities: bytes of memories; the first one holds what all tiles but the outermost reach, the next one less.
    """
    facts = _Facts({})
    levels = LEVELS[-tiles:]
    for loop, extent in loops.items():
        facts.add("knob", fact("extent", loop))
        facts.add("candidate", fact("extent", loop), extent)
        for level in levels:
            facts.add("knob", fact("tile", loop, level))
        nest = [fact("tile", loop, level) for level in levels]
        facts.define(fact("split", loop), fact("product", fact("extent", loop)), nest)
        for depth in range(1, len(capacities) + 1):
            reach = fact("reach", loop, depth)
            facts.define(reach, fact("product", reach), nest[depth:])
    windows = {out: tap for out, tap in TAPS.items() if out in loops}
    for depth, capacity in enumerate(capacities, 1):
        for out, tap in windows.items():
            width = fact("width", out, depth)
            both = [(1, fact("reach", loop, depth)) for loop in (out, tap)]
            facts.define(width, fact("sum", width, -1), parts=both)
        inside = {loop: fact("reach", loop, depth) for loop in loops}
        footprints = {
            "input": [inside["n"], inside["ci"], *(fact("width", out, depth) for out in windows)],
            "weight": [inside["co"], inside["ci"], *(inside[tap] for tap in windows.values())],
            "output": [inside["n"], inside["co"], *(inside[out] for out in windows), facts.number(4)],
        }
        for tensor, factors in footprints.items():
            footprint = fact("footprint", tensor, depth)
            facts.define(footprint, fact("product", footprint), factors)
        parts = [(1, fact("footprint", tensor, depth)) for tensor in footprints]
        facts.define(fact("fits", depth), fact("at_most", capacity), parts=parts)
    return SketchSpace(Sketch({predicate: tuple(dict.fromkeys(rows)) for predicate, rows in facts.atoms.items()}))


def spaces(target: str, sizes: Sequence[int]) -> Iterator[tuple[str, SketchSpace]]:
    """The sketches to compile, with labels."""
    for size in sizes:
        task = Task(operator("gemm", {"m": size, "n": size, "k": size}), resolve_target(target))
        for part in task.space:
            yield f"gemm {size}^3, {part.name}", part
    yield "7 loops, 3 tiles, 1 memory", conv_like()
    yield "7 loops, 4 tiles, 2 memories", conv_like(SMALL, 4, (2**20, 2**15))
    yield "7 larger loops, 4 tiles, 2 memories", conv_like(LARGE, 4, (2**20, 2**15))
    yield "7 larger loops, 4 tiles, 3 memories", conv_like(LARGE, 4, (2**20, 2**15, 2**11))
    yield "9 loops, 3 tiles, 1 memory", conv_like(VOLUME)
    yield "9 loops, 4 tiles, 2 memories", conv_like(VOLUME, 4, (2**20, 2**15))
    yield "9 loops, 4 tiles, 3 memories", conv_like(VOLUME, 4, (2**20, 2**15, 2**11))


def compiling(part: SketchSpace) -> list[str]:
    """The cells of a row: seconds of CPU, rows of the circuit, MiB at most, programs."""
    start = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = ground(part.control())
    grounded = time.process_time()
    compiled = compile_program(program, part.limits.rows)
    end = time.process_time()
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rows = compiled.circuit.rows if compiled.circuit else 0
    programs = f"{compiled.bound():,}" if compiled.exact else f"about {compiled.bound() * compiled.acceptance:.1e}"
    seconds = (grounded - start, end - grounded, end - start)
    return [*(f"{one:.2f}" for one in seconds), f"{rows:,}", f"{memory:.0f}", programs]


def main() -> None:
    """Compiles all spaces and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    arguments = parser.parse_args()
    table = Table("space", "ground s", "eliminate s", "together", "rows", "MiB", "programs")
    for label, part in spaces(arguments.target, arguments.sizes):

        def child(report: Report, part: SketchSpace = part) -> None:
            report("cells", compiling(part))

        outcome = run_in_child(child, [600.0])
        table.add_row(label, *(outcome.value("cells") or [str(outcome.value("error"))]))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
