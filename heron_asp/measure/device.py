"""Devices: what can tell how fast a candidate is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from heron_asp.child import Outcome, Report, run_in_child
from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.host import available_bytes
from heron_asp.measure.data import Case, bytes_needed, cases
from heron_asp.measure.kernel import Built, build, lowered_hash, tvm_target, use_threads
from heron_asp.measure.peak import peak_program
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.schedule.replay import Program
from heron_asp.space import Candidate
from heron_asp.task import Task

logger = logging.getLogger(__name__)


class Device(Protocol):
    """Measures candidates of one task."""

    def measure(self, candidate: Candidate, best: float | None) -> Measurement:
        """Builds, checks and times a candidate; `best` is the least time so far, in seconds."""

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        """Times candidates again, interleaved: for each candidate the seconds of a call in each round."""

    def peak(self) -> float | None:
        """Operations a second of the intrinsic on data in registers; None where there is no intrinsic."""

    def fingerprint(self, candidate: Candidate) -> str | None:
        """Equal for candidates that are the same program; None where that is not known."""


class LocalDevice:
    """This machine: a forked process for each candidate."""

    def __init__(self, task: Task, limits: Limits | None = None) -> None:
        tvm_target(task.target, task.threads)  # a mistake in the target is one error, not one a candidate
        needed, free = bytes_needed(task.operator), available_bytes()
        if needed > free:
            raise HeronError(
                f"{task.operator.label}: checking a program takes about {needed / 2**30:.1f} GiB of memory, "
                f"{free / 2**30:.1f} GiB are free",
                "smaller extents, or a machine with more memory",
                ExitCode.MISSING,
            )
        self.task = task
        self.limits = limits or Limits()
        self._last: tuple[str, Program] | None = None

    @cached_property
    def cases(self) -> list[Case]:
        """The inputs that candidates are checked on; made once, inherited by every child."""
        return cases(self.task.operator)

    def fingerprint(self, candidate: Candidate) -> str | None:
        """A hash of the lowered program: loops of one step are gone, names do not count."""
        try:
            return lowered_hash(self._program(candidate))
        except InternalError:
            raise
        except Exception:  # what TVM refuses is told by `measure`
            return None

    def _program(self, candidate: Candidate) -> Program:
        """The candidate's program; the last one is kept, since it is hashed and then measured."""
        if self._last is None or self._last[0] != candidate.key:
            self._last = (candidate.key, self.task.program(candidate))
        return self._last[1]

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """Builds, checks and times a candidate."""
        try:
            program = self._program(candidate)
        except InternalError:
            raise
        except Exception as error:  # TVM refuses the schedule: a hole in the constraints, and a row like any other
            return Measurement(Status.CONSTRAINTS, error=_last_line(error))
        mnemonics = self._mnemonics(candidate)
        self.cases  # noqa: B018 - made here, not in every child

        def work(report: Report) -> None:
            built = build(self.task.operator, program, self.task.target, self.task.threads)
            assembly = built.assembly() if mnemonics else ""
            report("build", [mnemonic for mnemonic in mnemonics if mnemonic not in assembly])
            use_threads(self.task.threads)
            self._check_and_time(built, best, report)

        return self._measurement(run_in_child(work, [self.limits.build, self.limits.run]))

    def _mnemonics(self, candidate: Candidate) -> list[str]:
        intrinsics = self.task.space[candidate.sketch].sketch.intrinsics
        return [self.task.target.intrinsics[name].mnemonic for name in intrinsics]

    def _check_and_time(self, built: Built, best: float | None, report: Report) -> None:
        for case in self.cases:
            error = case.error(built.run(case.inputs))
            if error:
                report("run", ("wrong", error))
                return
        arguments = built.arguments(self.cases[0].inputs)
        first = built.time(arguments, 1, 1)
        if best is not None and min(first) > self.limits.early * best:
            report("run", ("early", first))
            return
        report("run", ("timed", built.time(arguments, self.limits.repeats, self.limits.repeat_ms)))

    def _measurement(self, outcome: Outcome) -> Measurement:
        build_seconds = outcome.seconds("build")
        stage = Status.COMPILE if outcome.value("build") is None else Status.RUNTIME
        run_seconds = outcome.seconds("run")
        if outcome.timed_out:
            what = f"building took more than {self.limits.build:g} s" if stage is Status.COMPILE else ""
            what = what or f"running took more than {self.limits.run:g} s"
            return Measurement(Status.TIMEOUT, error=what, build_seconds=build_seconds)
        error = outcome.value("error")
        if error or outcome.signal:
            said = _last_line(error) if error else f"killed by signal {outcome.signal}: {_last_line(outcome.stderr)}"
            return Measurement(stage, error=said, build_seconds=build_seconds)
        missing = outcome.value("build")
        if missing:
            said = f"the machine code of a tensorized kernel has no {', '.join(missing)}"
            return Measurement(Status.COMPILE, error=said, build_seconds=build_seconds)
        if outcome.value("run") is None:
            return Measurement(stage, error="the process ended without a result", build_seconds=build_seconds)
        kind, value = outcome.value("run")
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
        """Times candidates again, in turn, in one process."""
        programs = [self.task.program(candidate) for candidate in candidates]

        def work(report: Report) -> None:
            task = self.task
            built = [build(task.operator, program, task.target, task.threads) for program in programs]
            use_threads(task.threads)
            arguments = [one.arguments(self.cases[0].inputs) for one in built]
            report("built", None)
            times: list[list[float]] = [[] for _ in built]
            for _ in range(rounds):
                for one, tensors, seconds in zip(built, arguments, times, strict=True):
                    seconds.append(min(one.time(tensors, 2, self.limits.repeat_ms)))
            report("times", times)

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
        operator_program = peak_program(intrinsic, self.task.target, self.task.threads)

        def work(report: Report) -> None:
            use_threads(self.task.threads)
            report("peak", operator_program.measure())

        outcome = run_in_child(work, [self.limits.build + self.limits.run])
        peak = outcome.value("peak")
        if peak is None:
            raise InternalError(f"the peak kernel did not run: {outcome.value('error') or outcome.stderr}")
        return float(peak)


def _last_line(error: object) -> str:
    """The line of TVM's long messages that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "error" in line]
    return (telling or lines or ["no message"])[-1][:500]
