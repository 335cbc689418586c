"""A case of a session while it is tuned: its standing, its run, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heron_asp.errors import InfeasibleError
from heron_asp.measure.device import Device
from heron_asp.outcome import Progress
from heron_asp.runs import load_run
from heron_asp.session.allocation import Round, Standing
from heron_asp.session.budget import confirmation_seconds, rounds_within
from heron_asp.session.cases import Member
from heron_asp.session.journal import Ended, Planned
from heron_asp.session.summary import CaseProgress, State
from heron_asp.store import RunDirectory
from heron_asp.tuning import TuneOptions, TuningRun


class Entry:
    """A case.

    Args:
        member: what to tune.
        path: its run directory.
        options: of its run.

    Attributes:
        standing: what the allocation of trials reads.
        shown: what is shown.
        run: None until it is opened; what was recorded before is replayed only when there is more to do.
        confirmation: seconds that confirming is expected to take.
        confirmed: nothing was measured since it was confirmed.
    """

    def __init__(self, member: Member, path: Path, options: TuneOptions) -> None:
        task = member.task
        self.member = member
        self.options = options
        self.directory = RunDirectory(path)
        kind = f"{task.operator.name} {task.operator.dtype}"
        self.standing = Standing(member.weight, task.useful_operations, kind)
        self.shown = CaseProgress(
            member.name,
            member.cases,
            task.operator.label,
            task.operator.operations,
            task.useful_operations,
            member.weight,
            path,
        )
        self.run: TuningRun | None = None
        self.confirmation = 0.0
        self.confirmed = False

    def restore(self, ended: Ended) -> None:
        """Takes over a recorded round."""
        self._account(ended)

    def restore_result(self) -> None:
        """Takes over the result of a confirmation, if nothing was measured after it."""
        path = self.directory.path
        if self.standing.best is None or not self.directory.result_file.exists():
            return
        run = load_run(path)
        finished = sum(trial.measurement is not None for trial in run.trials.values())
        result = run.result or {}
        if result.get("best") and sum(result.get("trials", {}).values()) == finished:
            self._confirmed(result["best"]["seconds"])

    def open(self, make_device: Callable[[Member], Device], progress: Callable[[], None]) -> TuningRun:
        """The run; opened, and its recorded trials replayed, the first time.

        Raises:
            HeronError: the run directory is of another task, or cannot be used.
            InfeasibleError: the task has no program.
        """
        if self.run is not None:
            return self.run
        task = self.member.task
        self.shown.state = State.TUNING
        if task.space.size == 0:
            raise InfeasibleError(f"{task.operator.label} on {task.target.name}: no program")

        def report(now: Progress) -> None:
            if now.trial > self.standing.trials:  # not one that is only replayed
                self.shown.trials = now.trial
                self.shown.peak = now.peak
                self.shown.seconds = now.best
                progress()

        run = TuningRun(task, make_device(self.member), self.options, self.directory, report)
        self.run = run
        run.open(resume=True)
        run.advance(run.replayed)
        return run

    def close(self) -> None:
        """Releases the run directory."""
        if self.run is not None:
            self.run.close()

    def make(self, run: TuningRun, planned: Planned, stop: Callable[[], bool]) -> None:
        """Makes the trials of a round, those that are left of it if it was cut off."""
        self.confirmed = False
        self.shown.state = State.TUNING
        self.shown.error = ""
        run.advance(max(0, planned.start + planned.trials - len(run.done)), stop)

    def end(self, run: TuningRun, planned: Planned) -> Ended:
        """Takes account of a round, however many of its trials were made."""
        measured = [measurement for _, measurement in run.done]
        made = measured[planned.start :]
        seconds = sum(one.build_seconds + one.run_seconds for one in made)
        ended = Ended(
            self.member.name,
            Round(len(made), run.best, seconds),
            run.peak,
            run.exhausted,
            confirmation_seconds(measured, self.options.confirm),
        )
        self._account(ended)
        return ended

    def _account(self, ended: Ended) -> None:
        first = not self.standing.rounds
        self.standing.rounds.append(ended.round)
        self.standing.peak = self.shown.peak = ended.peak
        self.standing.closed = ended.exhausted
        self.shown.trials = self.standing.trials
        self.shown.seconds = ended.round.best
        self.shown.state = State.TUNED if ended.round.best is not None else State.TUNING
        if first or self.shown.before is None:
            self.shown.before = ended.round.best
        self.confirmation = ended.confirmation

    def confirm(self, run: TuningRun, contenders: int) -> None:
        """Measures the best again, of so many contenders, and writes the result.

        Raises:
            HeronError: no candidate was correct.
            InternalError: the winner is faster than the peak; the result is written all the same.
        """
        assert run.best is not None
        try:
            outcome = run.conclude(rounds_within(run.best, self.options.confirm), contenders)
            self.shown.error = outcome.warning
        finally:
            self.shown.peak = run.peak
        self._confirmed(outcome.seconds or run.best)

    def _confirmed(self, seconds: float) -> None:
        self.shown.seconds = seconds
        self.shown.state = State.CONFIRMED
        self.confirmed = True

    def fail(self, state: State, error: str) -> None:
        """Nothing more is measured in this session."""
        self.standing.closed = True
        self.restore_failure(state, error)

    def restore_failure(self, state: State, error: str) -> None:
        """Takes over a recorded failure; a session that is continued may try again."""
        self.shown.state = state
        self.shown.error = error
