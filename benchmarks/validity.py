"""Are sampled programs valid? Builds, runs and checks uniform samples of every sketch of many operators.

    python benchmarks/validity.py -t zen4                    products of many shapes, odd ones among them
    python benchmarks/validity.py -t zen4 --suite            the operators of the paper
    python benchmarks/validity.py -t zen4 --random 200       random small operators of every kind

Prints a line an operator, the first failures, and a table of what became of the samples of each kind; `--json` writes
all of it. A correct program is built a second time with a check at each access, which must stay inside of its tensor
(`--no-bounds` leaves that out). Exits with 1 unless every operator has a program and every sample is correct. One
program is built and run at a time, each in a process of its own; `--part 2/4` takes the second quarter of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bounds import outside
from instances import random_operators

from heron_asp import LocalDevice, Task, operator, resolve_target
from heron_asp.child import Report, run_in_child
from heron_asp.host import require_host
from heron_asp.measure.result import Limits, Status
from heron_asp.operators import Operator
from heron_asp.space import Candidate, SketchSpace
from heron_asp.target import Target
from heron_asp.task import available_threads

SUITE = Path(__file__).with_name("heron_suite.toml")
PRODUCTS = [  # m, n, k
    (1, 1, 1), (3, 5, 7), (4, 768, 2048), (127, 127, 127), (1000, 1000, 1000), (1009, 1009, 1009), (1, 1024, 1024),
    (64, 9, 2048), (1, 2048, 8192), (2, 2, 2), (16, 16, 16), (17, 15, 13), (31, 33, 35), (64, 64, 64), (5, 1, 9),
    (1, 1, 4096), (100, 1, 100), (1, 17, 3), (257, 63, 129), (512, 48, 5), (8, 4096, 4), (61, 976, 61),
    (129, 1008, 255), (6, 250, 1021), (384, 384, 384), (1024, 512, 768),
]  # fmt: skip
OTHERS = [
    ("gemm", "bf16bf16f32", {"m": 31, "n": 33, "k": 35}),
    ("gemm", "bf16bf16f32", {"m": 127, "n": 250, "k": 509}),
    ("gemm", "f32f32f32", {"m": 31, "n": 33, "k": 35}),
    ("gemm", "f16f16f32", {"m": 12, "n": 50, "k": 30}),
    ("gemv", "u8s8s32", {"m": 1000, "k": 1000}),
    ("gemv", "u8s8s32", {"m": 1, "k": 1}),
    ("gemv", "bf16bf16f32", {"m": 101, "k": 203}),
    ("batch_matmul", "u8s8s32", {"batch": 5, "m": 31, "n": 33, "k": 35}),
    ("batch_matmul", "u8s8s32", {"batch": 12, "m": 128, "n": 64, "k": 128}),
    ("batch_matmul", "bf16bf16f32", {"batch": 3, "m": 17, "n": 40, "k": 24}),
]
NO_PROGRAM, ERROR = "no program", "error"  # what becomes of an operator besides the statuses of its samples
OUTSIDE = "outside"  # of a correct sample that reads or writes beyond a tensor
SHOWN = 20  # failures


@dataclass
class Row:
    """What became of an operator.

    Attributes:
        name: of the case.
        kind: of the operator.
        label: the operator in one line.
        threads: that its kernels used.
        programs: in all sketches.
        compile_seconds: longest time that compiling the space of a sketch took.
        seconds: all in all.
        statuses: of its samples.
        failures: (program, status, error) of those that are not correct.
    """

    name: str
    kind: str
    label: str
    threads: int
    programs: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, program: str, status: str, error: str) -> None:
        """Counts a sample, or why there is none."""
        self.statuses[status] += 1
        if status != Status.CORRECT:
            self.failures.append((program, status, error))


@dataclass(frozen=True)
class Checker:
    """Tries operators on a target.

    Attributes:
        target: the machine.
        samples: of every sketch.
        seed: of the samples.
        limits: of a program.
        bounds: whether accesses are checked too.
        relaxed: rules of thumb that are lifted.
    """

    target: Target
    samples: int
    seed: int
    limits: Limits
    bounds: bool = True
    relaxed: tuple[str, ...] = ()

    def check(self, name: str, made: Operator, threads: int) -> Row:
        """Builds, runs and checks uniform samples of every sketch of an operator."""
        row = Row(name, made.name, made.label, threads)
        start = time.monotonic()
        try:
            task = Task(made, self.target, threads, relaxed=self.relaxed)
            device = LocalDevice(task, self.limits)
            for sketch in task.space:
                for candidate in self._sampled(row, sketch):
                    row.add(candidate.key, *self._tried(task, device, candidate))
            if not row.programs:
                row.add("", NO_PROGRAM, "every sketch is empty")
        except Exception as error:  # whatever it is, it is a finding about this operator
            row.add("", ERROR, f"{type(error).__name__}: {error}".replace("\n", "; ")[-500:])
        row.seconds = time.monotonic() - start
        return row

    def _sampled(self, row: Row, sketch: SketchSpace) -> list[Candidate]:
        start = time.monotonic()
        row.programs += sketch.size
        row.compile_seconds = max(row.compile_seconds, time.monotonic() - start)
        return sketch.sample(self.samples, np.random.default_rng(self.seed))

    def _tried(self, task: Task, device: LocalDevice, candidate: Candidate) -> tuple[str, str]:
        """What became of a sample, and what is wrong with it."""
        measured = device.measure(candidate)
        if measured.status is not Status.CORRECT or not self.bounds:
            return measured.status, measured.error
        program, inputs = task.program(candidate), device.operands.cases[0].inputs

        def work(report: Report) -> None:
            report("outside", outside(task, program, inputs))

        outcome = run_in_child(work, [self.limits.build + self.limits.run])
        said = outcome.value("outside")
        if said is None:
            said = outcome.value("error") or f"signal {outcome.signal}, timed out: {outcome.timed_out}"
        return (OUTSIDE if said else Status.CORRECT), said


def instances(arguments: argparse.Namespace) -> list[tuple[str, Operator]]:
    """What is asked for, with a name each."""
    found = []
    if arguments.suite:
        with arguments.suite.open("rb") as file:
            for case in tomllib.load(file)["dlboost_operators"]:
                found.append((case["case"], operator(case["operator"], case["shape"], case["dtype"])))
    if arguments.random:
        made = random_operators(arguments.random, arguments.seed)
        found += [(f"random {number}", one) for number, one in enumerate(made)]
    if not found:
        cases = [("gemm", "u8s8s32", {"m": m, "n": n, "k": k}) for m, n, k in PRODUCTS] + OTHERS
        found = [(f"product {at}", operator(name, shape, dtype)) for at, (name, dtype, shape) in enumerate(cases)]
    if arguments.only:
        found = [(name, one) for name, one in found if re.fullmatch(arguments.only, name)]
    part, parts = map(int, arguments.part.split("/"))
    return [one for at, one in enumerate(found) if at * parts // len(found) == part - 1]


def table(rows: list[Row]) -> list[str]:
    """A line a kind of operator, a column a status."""
    statuses = [*Status, OUTSIDE, NO_PROGRAM, ERROR]
    shown = [status for status in statuses if any(row.statuses[status] for row in rows)]
    lines = ["".join([f"{'kind':<20}{'operators':>10}", *(f"{status:>13}" for status in shown)])]
    for kind in [*sorted({row.kind for row in rows}), "all"]:
        of = [row for row in rows if kind in (row.kind, "all")]
        counts = [sum(row.statuses[status] for row in of) for status in shown]
        lines.append("".join([f"{kind:<20}{len(of):>10}", *(f"{count:>13}" for count in counts)]))
    return lines


def main() -> None:
    """Samples, verifies, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--suite", nargs="?", type=Path, const=SUITE, help="the operators of a suite (TOML)")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="so many random operators")
    parser.add_argument("--samples", type=int, default=20, help="of every sketch")
    parser.add_argument("--seed", type=int, default=0, help="of the random operators and of the samples")
    parser.add_argument("--only", metavar="REGEX", help="only the cases with such a name, such as 'C2D.|random 7'")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts of the cases")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, available_threads()], help="in turn")
    parser.add_argument("--relax", action="append", default=[], metavar="NAME", help="lift a rule of thumb")
    parser.add_argument("--bounds", action=argparse.BooleanOptionalAction, default=True, help="check accesses too")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    require_host(target)
    limits = Limits(repeats=1, repeat_ms=1)
    checker = Checker(target, arguments.samples, arguments.seed, limits, arguments.bounds, tuple(arguments.relax))
    rows = []
    for number, (name, made) in enumerate(instances(arguments)):
        threads = arguments.threads[number % len(arguments.threads)]
        row = checker.check(name, made, threads)
        rows.append(row)
        said = ", ".join(f"{count} {status}" for status, count in row.statuses.items())
        print(
            f"{row.name:<11} {row.label:<72} threads {threads} {row.programs:>13} programs, space "
            f"{row.compile_seconds:4.1f} s, all {row.seconds:5.1f} s: {said}",
            flush=True,
        )
        if arguments.json:
            arguments.json.write_text(json.dumps([vars(one) for one in rows], indent=1) + "\n")
    failures = [(row, *failure) for row in rows for failure in row.failures]
    for row, program, status, error in failures[:SHOWN]:
        print(f"\n{row.name}: {row.label}, threads {row.threads}\n  {program}\n  {status}: {error}")
    print("\n" + "\n".join(table(rows)))
    print(f"\n{sum(row.statuses['correct'] for row in rows)} samples are correct, {len(failures)} findings")
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()
