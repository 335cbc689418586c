"""A device that measures candidates by the models of VTA: checked, simulated on data, their cycles counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from heron_asp.backends.vta.checker import check
from heron_asp.backends.vta.cycles import count_cycles
from heron_asp.backends.vta.functional import simulate
from heron_asp.backends.vta.lowering import Lowered, Problem, lower, nest_of, problem_of
from heron_asp.backends.vta.machine import numbers_of
from heron_asp.backends.vta.tokens import follow
from heron_asp.child import Child, Outcome, Report
from heron_asp.errors import HeronError, InternalError
from heron_asp.measure.data import Case, cases
from heron_asp.measure.device import room_for
from heron_asp.measure.result import Limits, Measurement, Status
from heron_asp.space import Candidate
from heron_asp.task import Task, available_threads

_KEPT = 16  # programs
_MOST_AT_ONCE = 8


class VtaDevice:
    """Models of VTA, in a forked process for each candidate; see `heron_asp.measure.device.Device`.

    Attributes:
        width: how many candidates it measures at once: they do not disturb one another.
        held: bytes that the data take on which candidates are checked.
        measures: what its cycles are.
    """

    def __init__(self, task: Task, limits: Limits | None = None) -> None:
        self.held = room_for(task.operator)
        self.task = task
        self.limits = limits or Limits()
        self.numbers = numbers_of(task.target)
        self.measures = self.numbers.measures
        self.width = min(available_threads(), _MOST_AT_ONCE)
        self._problems: dict[str, Problem] = {}
        self._programs: dict[str, Lowered | HeronError] = {}
        self._ahead: dict[str, Child] = {}

    @cached_property
    def _cases(self) -> list[Case]:
        return cases(self.task.operator)

    def rest(self) -> None:
        """Ends what runs, and frees the data until they are needed again."""
        self.build_ahead([])
        self.__dict__.pop("_cases", None)
        self._programs.clear()

    def fingerprint(self, candidate: Candidate) -> str | None:
        """The program itself; None where it cannot be made."""
        try:
            lowered = self.lowered(candidate)
        except HeronError:  # told by `measure`
            return None
        return str(hash((tuple(lowered.instructions), lowered.uops.tobytes())))

    def lowered(self, candidate: Candidate) -> Lowered:
        """The program of a candidate; the last few are kept, since they are asked for in turn.

        Raises:
            HeronError: it cannot be made: a hole in the constraints.
        """
        if candidate.key not in self._programs:
            if len(self._programs) >= _KEPT:
                self._programs.pop(next(iter(self._programs)))
            self._programs[candidate.key] = self._lowered(candidate)
        found = self._programs[candidate.key]
        if isinstance(found, HeronError):
            raise found
        return found

    def _lowered(self, candidate: Candidate) -> Lowered | HeronError:
        sketch = self.task.space[candidate.sketch].sketch
        if candidate.sketch not in self._problems:
            intrinsic = self.task.target.intrinsics[self.numbers.intrinsic]
            self._problems[candidate.sketch] = problem_of(self.task.block, sketch, intrinsic, self.numbers.config)
        try:
            return lower(self._problems[candidate.sketch], nest_of(self.task.block, sketch, candidate.values))
        except HeronError as error:
            return error

    def build_ahead(self, candidates: Sequence[Candidate]) -> None:
        """Starts measuring candidates, each in a process of its own."""
        for started in self._ahead.values():
            started.kill()
        self._ahead = {}
        every = self._cases if candidates else []
        for candidate in candidates:

            def work(report: Report, candidate: Candidate = candidate) -> None:
                try:
                    lowered = self.lowered(candidate)
                except InternalError:
                    raise
                except HeronError as error:
                    report("run", (Status.CONSTRAINTS, str(error), None))
                    return
                report("build", None)
                report("run", self._run(lowered, every))

            self._ahead[candidate.key] = Child(work, [self.limits.build, self.limits.run])

    def measure(self, candidate: Candidate, best: float | None = None) -> Measurement:
        """Checks a program and counts its cycles; what takes part in the choice is checked on all data.

        What a program does is the same for all data, so random ones tell whether it is right; what else there is in
        them, such as overflows, is looked at for what would be the best.
        """
        if candidate.key not in self._ahead:
            self.build_ahead([candidate])
        found = self._measurement(self._ahead.pop(candidate.key).outcome())
        if found.seconds is not None and (best is None or found.seconds < best):
            lowered = self.lowered(candidate)
            for case in self._cases[1:]:
                memory = lowered.image(case.inputs)
                simulate(lowered.instructions, memory, self.numbers.config)
                wrong = case.error(lowered.result(memory).reshape(case.expected.shape))
                if wrong:
                    return Measurement(Status.CORRECTNESS, error=wrong)
        return found

    def _run(self, lowered: Lowered, every: Sequence[Case]) -> tuple[Status, str, float | None]:
        config, case, waits = self.numbers.config, every[0], follow(lowered.instructions)
        memory = lowered.image(case.inputs)
        if found := check(lowered.instructions, config, memory, waits):
            return Status.COMPILE, found[0].message, None
        simulate(lowered.instructions, memory, config, waits.order)
        wrong = case.error(lowered.result(memory).reshape(case.expected.shape))
        if wrong:
            return Status.CORRECTNESS, wrong, None
        return Status.CORRECT, "", count_cycles(lowered.instructions, config, checked=True) / self.numbers.hertz

    def _measurement(self, outcome: Outcome) -> Measurement:
        status, error, seconds = outcome.value("run") or (Status.RUNTIME, "", None)
        if outcome.timed_out:
            status, error = Status.TIMEOUT, "simulating it took too long"
        elif outcome.value("run") is None:
            error = str(outcome.value("error") or outcome.stderr or "the process ended without a result")
        runs = (seconds,) if seconds else ()
        took = outcome.seconds("build"), outcome.seconds("run")
        return Measurement(status, seconds, runs, error, build_seconds=took[0], run_seconds=took[1])

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        """The cycles again: they are the same in every round."""
        counted = [count_cycles(self.lowered(one).instructions, self.numbers.config) for one in candidates]
        return [[cycles / self.numbers.hertz] * rounds for cycles in counted]

    def peak(self) -> float | None:
        """One micro-op a cycle."""
        return self.numbers.operations
