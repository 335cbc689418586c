"""Programs of two tuners timed in turn, in one process, by one timer; every result is checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from peers.packed import Array, Packed

from heron_asp.child import Report, run_in_child
from heron_asp.errors import InternalError
from heron_asp.measure.data import cases
from heron_asp.measure.kernel import Built, build, tvm_target, use_threads
from heron_asp.measure.result import Limits
from heron_asp.measure.stopwatch import Stopwatch
from heron_asp.schedule.replay import KERNEL
from heron_asp.space import Candidate
from heron_asp.target import Target
from heron_asp.task import Task

SELECTION = 20  # rounds in which the programs of a group are told apart
REPETITIONS = 4  # of a round
SECONDS = 120.0  # for each program


class Clock(Protocol):
    """What tells how long a call of a compiled program takes."""

    def seconds(self) -> float:
        """Seconds of a call, from one repetition."""


class PackedKernel:
    """A program over packed weights. Compiling may abort the process.

    Args:
        module: an IRModule with a kernel (activation, packed weights, result).
        target: TVM's target.
        inputs: activation, packed weights and expected result, see `Packed.cases`.
    """

    def __init__(self, module: Any, target: Any, inputs: Sequence[tuple[Array, Array, Array]]) -> None:
        import tvm

        self.inputs = inputs
        self.executable = tvm.compile(module, target=target)
        self.executable[KERNEL]  # TVM generates the code at the first access
        self.tensors: list[Any] = []

    def wrong(self) -> str:
        """Runs it on all inputs; what is wrong with its results, empty if nothing is."""
        import numpy as np
        import tvm

        for *operands, expected in reversed(self.inputs):  # the first ones are timed
            garbage = np.full(expected.shape, 0x5A5A5A5A, np.int32)
            self.tensors = [tvm.runtime.tensor(array) for array in (*operands, garbage)]
            self.executable[KERNEL](*self.tensors)
            bad = int((self.tensors[-1].numpy() != expected).sum())
            if bad:
                return f"{bad} of {expected.size} elements are wrong"
        return ""

    def stopwatch(self, threads: int, repeat_ms: float) -> Stopwatch:
        """Times calls on the inputs that were run last."""
        return Stopwatch(self.executable, self.tensors, threads, repeat_ms)


class OurKernel:
    """A program of ours."""

    def __init__(self, task: Task, candidate: Candidate) -> None:
        self.cases = cases(task.operator)
        self.built: Built = build(task.operator, task.program(candidate), task.target, task.threads)

    def wrong(self) -> str:
        """Runs it on all inputs; what is wrong with its results, empty if nothing is."""
        errors = (case.error(self.built.run(case.inputs)) for case in self.cases)
        return next((error for error in errors if error), "")

    def stopwatch(self, threads: int, repeat_ms: float) -> Stopwatch:
        """Times calls on random inputs."""
        return Stopwatch(self.built.executable, self.built.arguments(self.cases[0].inputs), threads, repeat_ms)


@dataclass(frozen=True)
class Contest:
    """Who is compared.

    Attributes:
        workload: what the packed programs compute.
        task: ours; None where we have no such operator.
        ours: our programs by label.
        theirs: groups of files of scheduled modules by label; the fastest of a group stands for it.
    """

    workload: Packed
    target: Target
    threads: int
    task: Task | None = None
    ours: Mapping[str, Candidate] = field(default_factory=dict)
    theirs: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    def times(self, rounds: int, limits: Limits) -> dict[str, list[float]]:
        """Seconds of a call in each round, by label. A group without files has none.

        Raises:
            InternalError: a program that was correct does not build, or is wrong.
        """

        def work(report: Report) -> None:
            report("times", self._times(rounds, limits))

        programs = len(self.ours) + sum(map(len, self.theirs.values()))
        outcome = run_in_child(work, [SECONDS * (1 + programs)])
        times: dict[str, list[float]] | None = outcome.value("times")
        if times is None:
            said = outcome.value("error") or outcome.stderr or f"signal {outcome.signal}"
            raise InternalError(f"what was correct could not be compared: {said}")
        return times

    def _times(self, rounds: int, limits: Limits) -> dict[str, list[float]]:
        import tvm

        use_threads(self.threads)
        target, inputs = tvm_target(self.target, self.threads), self.workload.cases()
        files = {file for group in self.theirs.values() for file in group}
        packed = {file: PackedKernel(tvm.ir.load_json(file.read_text()), target, inputs) for file in sorted(files)}
        ours = {label: OurKernel(self.task, candidate) for label, candidate in self.ours.items() if self.task}
        for label, kernel in ours.items():
            require_right(label, kernel.wrong())
        for file, program in packed.items():
            require_right(file, program.wrong())
        clocks = {file: program.stopwatch(self.threads, limits.repeat_ms) for file, program in packed.items()}
        least = {file: min(times) for file, times in in_turn(clocks, SELECTION).items()}
        chosen = {label: kernel.stopwatch(self.threads, limits.repeat_ms) for label, kernel in ours.items()}
        for label, group in self.theirs.items():
            if group:
                chosen[label] = clocks[min(group, key=lambda file: least[file])]
        once = {id(clock): clock for clock in chosen.values()}  # one program may stand for two groups
        times = in_turn(once, rounds)
        return {label: times[id(clock)] for label, clock in chosen.items()}


def require_right(program: object, wrong: str) -> None:
    """Raises ValueError, naming the program, if there is something wrong with its results."""
    if wrong:
        raise ValueError(f"{program}: {wrong}")


def in_turn(clocks: Mapping[Any, Clock], rounds: int) -> dict[Any, list[float]]:
    """Seconds of a call of each program in each round; every other round goes backwards."""
    times: dict[Any, list[float]] = {key: [] for key in clocks}
    for number in range(rounds):
        for key in list(clocks)[:: -1 if number % 2 else 1]:
            times[key].append(min(clocks[key].seconds() for _ in range(REPETITIONS)))
    return times


def speedup(ours: Sequence[float] | None, theirs: Sequence[float] | None) -> float | None:
    """How many times as fast ours is, by the best rounds; None where a side has no program.

    Both programs do the same each time, so whatever makes a round longer is something else that ran.
    """
    return min(theirs) / min(ours) if ours and theirs else None
