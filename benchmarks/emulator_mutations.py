"""What the emulator finds: each barrier and each wait is taken out of correct CUDA programs in turn.

    python benchmarks/emulator_mutations.py

prints for each program how many of them matter, how many were found and by which of the four schedules. A mutant that
no schedule finds is printed with its line.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from heron_asp.backends.cuda.emulator import Emulated, EmulationError, compile_program, schedules
from heron_asp.backends.cuda.program import Kernel, Program
from tests.cuda_kernels import PROGRAMS, Case

_BARRIER = re.compile(r"__syncthreads\(\);")
_WAIT = re.compile(r"tvm_builtin_ptx_cp_async_wait_group_async_wait_group_(\d+)\(\);")


@dataclass(frozen=True)
class Mutant:
    """A program with one synchronization less.

    Attributes:
        what: was done, as `barrier 2 left out`: numbers count from the top of the source.
        line: of the original source.
        program: the rest of it; all mutants of a program are kernels of one source, so that it is compiled once.
    """

    what: str
    line: int
    program: Program


def mutants(program: Program) -> list[Mutant]:
    """Each barrier left out, each wait weakened by one group and left out."""
    (kernel,) = program.kernels
    start = program.source.index('extern "C" __global__')
    head, body = program.source[:start], program.source[start:]
    made: list[tuple[str, int, Kernel]] = []
    text = head
    for what, first, last, new in _changes(body):
        name = f"{kernel.name}_{len(made)}"
        text += (body[:first] + new + body[last:]).replace(f"{kernel.name}(", f"{name}(")
        line = program.source.count("\n", 0, start + first) + 1
        made.append((what, line, replace(kernel, name=name)))
    return [Mutant(what, line, replace(program, source=text, kernels=(one,))) for what, line, one in made]


def _changes(body: str) -> Iterator[tuple[str, int, int, str]]:
    """What is done, from where to where in a kernel, and what stands there then."""
    for number, match in enumerate(_BARRIER.finditer(body)):
        yield f"barrier {number} left out", *match.span(), ""
    for number, match in enumerate(_WAIT.finditer(body)):
        groups = int(match[1])
        weaker = f'asm volatile("cp.async.wait_group {groups + 1};");'
        yield f"wait {number} for all but {groups + 1} groups", *match.span(), weaker
        yield f"wait {number} left out", *match.span(), ""


def found(emulated: Emulated, case: Case) -> list[bool]:
    """Whether each of the four schedules finds a program wrong."""
    return [not _right(emulated, case, *schedule) for schedule in schedules()]


def _right(emulated: Emulated, case: Case, *schedule: object) -> bool:
    try:
        outputs = emulated.run(case.arrays, *schedule)  # type: ignore[arg-type]
    except EmulationError:
        return False
    return all(np.array_equal(outputs[name], case.expected[name]) for name in case.expected)


def main() -> None:
    """Prints the table."""
    names = [f"{order.name.lower()}, {copies.name.lower()}" for order, copies in schedules()]
    print(f"{'program':24} {'mutants':>8} {'found':>6}   " + "  ".join(names))
    total = survived = 0
    for name, make in PROGRAMS.items():
        case = make()
        with tempfile.TemporaryDirectory() as folder:
            tried = [
                (mutant, found(compile_program(mutant.program, Path(folder)), case)) for mutant in mutants(case.program)
            ]
        left = [mutant for mutant, by in tried if not any(by)]
        each = [sum(by[index] for _, by in tried) for index in range(len(names))]
        counts = "  ".join(f"{count:>{len(one)}}" for count, one in zip(each, names, strict=True))
        print(f"{name:24} {len(tried):>8} {len(tried) - len(left):>6}   {counts}")
        for mutant in left:
            print(f"    not found: {mutant.what}, line {mutant.line}")
        total, survived = total + len(tried), survived + len(left)
    print(f"{total} mutants, {total - survived} found")


if __name__ == "__main__":
    main()
