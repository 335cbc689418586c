"""What the emulator finds: each barrier and each wait is taken out of correct CUDA programs in turn.

    python benchmarks/emulator_mutations.py

prints for each program how many of them matter, how many were found and by which of the four schedules. A mutant that
no schedule finds is printed with its line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from heron_asp.backends.cuda.emulator import Emulated, EmulationError, compile_program, schedules
from heron_asp.backends.cuda.program import Program
from tests.cuda_kernels import PROGRAMS, Case

_BARRIER = re.compile(r"__syncthreads\(\);")
_WAIT = re.compile(r"tvm_builtin_ptx_cp_async_wait_group_async_wait_group_(\d+)\(\);")


@dataclass(frozen=True)
class Mutant:
    """A program with one synchronization less.

    Attributes:
        what: was done, as `barrier 2` or `wait 0 -> 1`: numbers count from the top of the source.
        line: of the source.
        program: the rest of it.
    """

    what: str
    line: int
    program: Program


def mutants(program: Program) -> Iterator[Mutant]:
    """Each barrier left out, each wait weakened by one group and left out."""
    source = program.source
    start = source.index('extern "C" __global__')

    def changed(what: str, match: re.Match[str], text: str) -> Mutant:
        mutated = source[: match.start()] + text + source[match.end() :]
        return Mutant(what, source.count("\n", 0, match.start()) + 1, replace(program, source=mutated))

    for number, match in enumerate(_BARRIER.finditer(source, start)):
        yield changed(f"barrier {number} left out", match, "")
    for number, match in enumerate(_WAIT.finditer(source, start)):
        groups = int(match[1])
        weaker = f'asm volatile("cp.async.wait_group {groups + 1};");'
        yield changed(f"wait {number} for {groups + 1} groups in place of {groups}", match, weaker)
        yield changed(f"wait {number} left out", match, "")


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
        tried = [(mutant, found(compile_program(mutant.program), case)) for mutant in mutants(case.program)]
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
