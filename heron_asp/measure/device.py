"""Devices: what can tell how fast a candidate is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

from heron_asp.child import Child, Outcome, Report, run_in_child
from heron_asp.errors import ExitCode, HeronError, InternalError, telling_line
from heron_asp.host import available_bytes
from heron_asp.measure.data import bytes_compared, bytes_needed
from heron_asp.measure.kernel import Built, build, lowered_hash, spoilt, tvm_target, use_threads
from heron_asp.measure.operands import Operands, PackingError, kernel_alone
from heron_asp.measure.peak import ACCUMULATORS, peak_program
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.measure.stopwatch import Stopwatch
from heron_asp.operators import Operator
from heron_asp.schedule.replay import Program
from heron_asp.space import Candidate
from heron_asp.task import Task, available_threads

logger = logging.getLogger(__name__)

WALL_TIME = "time on this machine"
LEAST = 3  # repetitions before a candidate is given up
_MOST_BUILDS = 8  # at once
_COMPARED = 2**27  # bytes of results a second that are made and compared, at least: what lets a large check take longer


class Device(Protocol):
    """Measures candidates of one task.

    Attributes:
        width: how many candidates it builds at once.
        held: bytes that it takes while it measures, until `rest`.
        measures: what its numbers are, in words.
    """

    width: int
    held: int
    measures: str

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        """Starts building candidates that `measure` will be asked for next."""

    def rest(self) -> None:
        """Nothing is measured for a while: gives memory and processes back."""

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """Builds, checks and times a candidate; `best` is the least time so far, in seconds."""

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        """Times candidates again, interleaved: for each candidate the seconds of a call in each round.

        There are none for a candidate that turns out to lack its instruction.
        """

    def peak(self) -> float | None:
        """Operations a second of the intrinsic on data in registers; None where there is no intrinsic."""

    def fingerprint(self, candidate: Candidate) -> str | None:
        """Equal for candidates that are the same program; None where that is not known."""


def room_for(operator: Operator) -> int:
    """Bytes that checking programs of an operator takes.

    Raises:
        HeronError: this machine has not as many free.
    """
    needed, free = bytes_needed(operator), available_bytes()
    if needed > free:
        raise HeronError(
            f"{operator.label}: checking a program takes about {needed / 2**30:.1f} GiB of memory, "
            f"{free / 2**30:.1f} GiB are free",
            "smaller extents, or a machine with more memory",
            ExitCode.MISSING,
        )
    return needed


class LocalDevice:
    """This machine: a forked process for each candidate.

    Attributes:
        width: how many candidates are built at once.
        running: seconds that checking and timing a candidate may take: the limit, and more where results are large.
    """

    def __init__(self, task: Task, limits: Limits | None = None) -> None:
        self.measures = WALL_TIME
        tvm_target(task.target, task.threads)  # a mistake in the target is one error, not one a candidate
        self.held = room_for(task.operator)
        self.task = task
        self.limits = limits or Limits()
        self.running = self.limits.run + bytes_compared(task.operator) / _COMPARED
        self.width = min(available_threads(), _MOST_BUILDS)
        self._programs: dict[str, Program] = {}
        self._ahead: dict[str, Child | Measurement] = {}

    @cached_property
    def operands(self) -> Operands:
        """What candidates are called with and checked on."""
        return Operands(self.task)

    def rest(self) -> None:
        """Ends what is being built, and frees the operands until they are needed again."""
        self.build_ahead([])
        self.__dict__.pop("operands", None)

    def fingerprint(self, candidate: Candidate) -> str | None:
        """A hash of the lowered program: loops of one step are gone, names do not count."""
        try:
            return lowered_hash(self._program(candidate))
        except InternalError:
            raise
        except Exception:  # what TVM refuses is told by `measure`
            return None

    def _program(self, candidate: Candidate) -> Program:
        """The candidate's program; the last few are kept, since they are hashed, built and measured in turn."""
        if candidate.key not in self._programs:
            if len(self._programs) >= 2 * self.width:
                self._programs.pop(next(iter(self._programs)))
            self._programs[candidate.key] = self.task.program(candidate)
        return self._programs[candidate.key]

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        """Starts building candidates, each in a process of its own; what was built before and not measured is dropped.

        A build would disturb a measurement on the next core, so nothing is measured before all are built.
        """
        for started in self._ahead.values():
            if isinstance(started, Child):
                started.kill()
        self._ahead = {}
        for candidate in candidates:
            self._ahead[candidate.key] = self._start(candidate)

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """Builds, checks and times a candidate."""
        if candidate.key not in self._ahead:
            self.build_ahead([candidate])
        for other in self._ahead.values():
            if isinstance(other, Child):
                other.reached("build")
        started = self._ahead.pop(candidate.key)
        if isinstance(started, Measurement):
            return started
        started.go(best)
        return self._measurement(started.outcome())

    def _start(self, candidate: Candidate) -> Child | Measurement:
        """A process that builds a candidate, waits for `go` and measures it; or why there is none."""
        try:
            program = self._program(candidate)
            operands = self.operands.of(program)
        except InternalError:
            raise
        except PackingError as error:
            return Measurement(Status.COMPILE, error=f"packing its constants: {telling_line(error)}")
        except Exception as error:  # TVM refuses the schedule: a hole in the constraints, and a row like any other
            return Measurement(Status.CONSTRAINTS, error=telling_line(error))
        mnemonics = self._mnemonics(candidate)

        def work(report: Report) -> None:
            built = build(self.task.operator, kernel_alone(program), self.task.target, self.task.threads)
            best = report("build", None)
            use_threads(self.task.threads)
            report("run", self._check_and_time(built, operands, best, mnemonics))

        return Child(work, [self.limits.build, self.running], pause="build")

    def _mnemonics(self, candidate: Candidate) -> list[str]:
        intrinsics = self.task.space[candidate.sketch].sketch.intrinsics
        return [self.task.target.intrinsics[name].mnemonic for name in intrinsics]

    def _check_and_time(
        self, built: Built, operands: Sequence[Sequence[Any]], best: float | None, mnemonics: Sequence[str]
    ) -> tuple[str, Any]:
        result = built.garbage()
        for case, tensors in zip(self.operands.cases, operands, strict=True):
            error = case.error(built.call([*tensors, spoilt(result)]))
            if error:
                missing = _missing(mnemonics, built)  # tells more, if that is why
                return ("without", missing) if missing else ("wrong", error)
        arguments = [*operands[0], result]
        stopwatch = Stopwatch(built.executable, arguments, self.task.threads, self.limits.repeat_ms)
        if best is not None and stopwatch.guess > self.limits.early * best:
            return "early", [stopwatch.guess]
        runs = self._repetitions(stopwatch, best)
        # Disassembling takes as long as compiling: only what may become the best has to show its instruction.
        missing = _missing(mnemonics, built) if best is None or min(runs) < best else []
        return ("without", missing) if missing else ("timed", runs)

    def _repetitions(self, stopwatch: Stopwatch, best: float | None) -> list[float]:
        """Seconds of a call in each repetition; fewer of them where it is clear that this is not the best."""
        most = max(
            min(LEAST, self.limits.repeats), self._affordable(stopwatch, self.limits.repeats, self.limits.timing)
        )
        runs = [stopwatch.guess]
        while len(runs) < most:
            runs.append(stopwatch.seconds())
            if best is not None and len(runs) >= LEAST and min(runs) > self.limits.clearly * best:
                break
        return runs

    def _affordable(self, stopwatch: Stopwatch, most: int, seconds: float) -> int:
        """How many repetitions fit into so many seconds: at least one, at most so many."""
        return max(1, min(most, int(seconds / max(stopwatch.guess, self.limits.repeat_ms / 1e3))))

    def _measurement(self, outcome: Outcome) -> Measurement:
        build_seconds = outcome.seconds("build")
        built = any(name == "build" for name, _, _ in outcome.reports)
        stage = Status.RUNTIME if built else Status.COMPILE
        run_seconds = outcome.seconds("run")
        if outcome.timed_out:
            what = f"building took more than {self.limits.build:g} s" if stage is Status.COMPILE else ""
            what = what or f"running took more than {self.running:.3g} s"
            return Measurement(Status.TIMEOUT, error=what, build_seconds=build_seconds)
        error = outcome.value("error")
        if error or outcome.signal:
            said = (
                telling_line(error) if error else f"killed by signal {outcome.signal}: {telling_line(outcome.stderr)}"
            )
            return Measurement(stage, error=said, build_seconds=build_seconds)
        if outcome.value("run") is None:
            return Measurement(stage, error="the process ended without a result", build_seconds=build_seconds)
        kind, value = outcome.value("run")
        if kind == "without":
            return Measurement(
                Status.COMPILE,
                error=f"the machine code of a tensorized kernel has no {', '.join(value)}: LLVM may have made another "
                "instruction of it that the machine's compiler.mcpu has",
                build_seconds=build_seconds,
            )
        if kind == "wrong":
            return Measurement(Status.CORRECTNESS, error=value, build_seconds=build_seconds, run_seconds=run_seconds)
        return Measurement(
            Status.CORRECT,
            seconds=min(value),
            runs=tuple(value),
            early=kind == "early",
            build_seconds=build_seconds,
            run_seconds=run_seconds,
        )

    def compare(self, candidates: Sequence[Candidate], rounds: int = 5) -> list[list[float]]:
        """Times candidates again, in turn, in one process; none for machine code that lacks its instruction."""
        programs = [self._program(candidate) for candidate in candidates]
        operands = [self.operands.of(program)[0] for program in programs]
        mnemonics = [self._mnemonics(candidate) for candidate in candidates]

        def work(report: Report) -> None:
            task = self.task
            built = [build(task.operator, kernel_alone(one), task.target, task.threads) for one in programs]
            without = [bool(_missing(needed, one)) for needed, one in zip(mnemonics, built, strict=True)]
            report("built", None)
            use_threads(task.threads)
            stopwatches = [
                Stopwatch(one.executable, [*tensors, one.garbage()], task.threads, self.limits.repeat_ms)
                for one, tensors in zip(built, operands, strict=True)
            ]
            each = [
                self._affordable(stopwatch, self.limits.repeats // 4, 2 * self.limits.timing / rounds)
                for stopwatch in stopwatches
            ]
            times: list[list[float]] = [[] for _ in built]
            for _ in range(rounds):
                for stopwatch, repeats, seconds in zip(stopwatches, each, times, strict=True):
                    seconds.append(min(stopwatch.seconds() for _ in range(repeats)))
            report("times", [[] if lacking else seconds for lacking, seconds in zip(without, times, strict=True)])

        limits = [self.limits.build * len(programs), self.limits.run * len(programs)]
        outcome = run_in_child(work, limits)
        times = outcome.value("times")
        if times is None:
            raise InternalError(
                "candidates that were correct could not be measured again: "
                + str(outcome.value("error") or outcome.stderr or f"signal {outcome.signal}")
            )
        return list(times)

    def peak(self) -> float | None:
        """Operations a second of the intrinsic on data in registers, on all threads of the task."""
        intrinsics = [name for sketch in self.task.sketches for name in sketch.intrinsics]
        if not intrinsics:
            return None
        intrinsic = self.task.target.intrinsics[intrinsics[0]]
        programs = [peak_program(intrinsic, self.task.target, self.task.threads, sums) for sums in ACCUMULATORS]

        def work(report: Report) -> None:
            use_threads(self.task.threads)
            report("peak", max(program.measure() for program in programs))

        outcome = run_in_child(work, [self.limits.build + self.limits.run])
        peak = outcome.value("peak")
        if peak is None:
            raise InternalError(f"the peak kernel did not run: {outcome.value('error') or outcome.stderr}")
        return float(peak)


def _missing(mnemonics: Sequence[str], built: Built) -> list[str]:
    """Instructions that a program's machine code should have and has not."""
    assembly = built.assembly() if mnemonics else ""
    return [mnemonic for mnemonic in mnemonics if mnemonic not in assembly]
