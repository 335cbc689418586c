"""A session: many cases tuned in turns, each in a run directory of its own, with one budget."""

from __future__ import annotations

import math
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from heron_asp.errors import ExitCode, HeronError, InternalError
from heron_asp.host import available_bytes
from heron_asp.measure.device import Device
from heron_asp.search import SearchOptions
from heron_asp.session.allocation import choose
from heron_asp.session.budget import Budget
from heron_asp.session.cases import Member
from heron_asp.session.entry import Entry
from heron_asp.session.journal import Planned, SessionDirectory
from heron_asp.session.summary import CaseProgress, SessionOutcome, SessionProgress, State
from heron_asp.store import write_whole
from heron_asp.tuning import TRIALS, TuneOptions, TuningRun

_SECONDS_A_TRIAL = 0.5  # that sizes are made for; many take less
_FEWEST, _MOST = 16, 256  # trials of a case that sizes are made for
_CONFIRMING = 0.3  # share of the budget that may be kept for confirmations
_CONFIRMING_FIRST = 0.1  # the same during the warm-up: that each case has a program comes first
_WARM_UP = 0.5  # share of the time that is left that the warm-up of all cases may take


@dataclass(frozen=True)
class SessionOptions:
    """How a session is made.

    Attributes:
        seconds: wall-clock time that it may take; None if only trials are counted.
        trials: of all cases together; None if only time is.
        seed: of the searches, and of the choice of cases.
        search: `cga` or `random`.
        sizes: of the genetic search, where they differ from those for the budget. A session that is continued keeps
            the sizes that it was started with.
        confirm: rounds in which the contenders are measured again.
    """

    seconds: float | None = None
    trials: int | None = None
    seed: int = 0
    search: str = "cga"
    sizes: Mapping[str, float] = field(default_factory=dict)
    confirm: int = 5

    def all_sizes(self, cases: int) -> SearchOptions:
        """Sizes of a new session with so many cases."""
        each = [self.trials / cases] if self.trials is not None else []
        each += [self.seconds / cases / _SECONDS_A_TRIAL] if self.seconds is not None else []
        expected = int(np.clip(min(each, default=TRIALS), _FEWEST, _MOST))
        return replace(SearchOptions.scaled(expected), **self.sizes)  # type: ignore[arg-type]  # checked by the CLI


class Session:
    """Tunes many cases.

    Args:
        members: what to tune.
        make_device: what measures a case; asked when its turn comes.
        options: budget, seed, search.
        directory: where everything is recorded.
        progress: called after every trial and every change of a case's state.
        clock: seconds, from anywhere.
    """

    def __init__(
        self,
        members: Sequence[Member],
        make_device: Callable[[Member], Device],
        options: SessionOptions,
        directory: SessionDirectory,
        progress: Callable[[SessionProgress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.members = members
        self.make_device = make_device
        self.options = options
        self.directory = directory
        self.progress = progress
        self.budget = Budget(options.seconds, options.trials, clock=clock)
        self._memory = available_bytes() // 2
        self._awake: OrderedDict[str, Device] = OrderedDict()
        self.entries: dict[str, Entry] = {}
        self._number = 0
        self._defects: list[str] = []

    def run(self, resume: bool = False) -> SessionOutcome:
        """Spends the budget and confirms each case's best.

        Raises:
            HeronError: the directory is in use, or records another session.
            InternalError: a defect of ours showed; everything is recorded all the same.
        """
        header = self._header(resume)
        self.directory.open(header, resume)
        self._make_entries(header["sizes"])
        interrupted = False
        try:
            cut_off = self._restore()
            self._append("started", {"time": time.time(), "machine": platform.node()})
            if cut_off is not None:
                self._round(cut_off)
            self._warm_up()
            self._spend()
            self._confirm()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for entry in self.entries.values():
                entry.close()
            self.directory.close()
        outcome = self._outcome(interrupted)
        write_whole(self.directory.result_file, outcome.to_json())
        if self._defects:
            raise InternalError("; ".join(self._defects))
        return outcome

    def _header(self, resume: bool) -> dict[str, Any]:
        first = self.members[0].task
        cases = [{"name": one.name, "operator": one.task.operator.label, "weight": one.weight} for one in self.members]
        sizes = asdict(self.options.all_sizes(len(cases)))
        before = self.directory.recorded_sizes(cases) if resume else None
        return {
            "format": 1,
            "target": first.target.name,
            "threads": first.threads,
            "seed": self.options.seed,
            "search": self.options.search,
            "sizes": {**before, **self.options.sizes} if before else sizes,
            "cases": cases,
            "versions": {name: version(name) for name in ("heron-asp", "apache-tvm", "clingo")},
        }

    def _make_entries(self, sizes: Mapping[str, float]) -> None:
        self.sizes = SearchOptions(**sizes)  # type: ignore[arg-type]  # checked
        options = TuneOptions(None, self.options.seed, self.options.search, sizes, self.options.confirm)
        self.entries = {one.name: Entry(one, self.directory.path / one.name, options) for one in self.members}

    def _restore(self) -> Planned | None:
        """Takes over what is recorded; the round that was cut off, if one was."""
        journal = self.directory.journal()
        for ended in journal.ended:
            self.entries[ended.case].restore(ended)
        for name, failure in journal.failed.items():
            self.entries[name].restore_failure(*failure)
        for entry in self.entries.values():
            entry.restore_result()
        self.budget.before = journal.elapsed
        self._number = journal.number
        return journal.open

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """A first round for each case that had none."""
        waiting = [entry for entry in self.entries.values() if not entry.standing.rounds]
        for number, entry in enumerate(waiting):
            left = self.budget.trials_left(self._made)
            share = _WARM_UP * (self.budget.left - self._reserve) / (len(waiting) - number)
            if not left or self._spent():
                return
            self._next(entry, min(self.sizes.first, max(1, left // (len(waiting) - number))), share)

    def _spend(self) -> None:
        """Further rounds, where they are expected to save most."""
        standings = {name: entry.standing for name, entry in self.entries.items()}
        while left := self.budget.trials_left(self._made):
            able = [name for name, entry in self.entries.items() if not self._spent(entry)]
            name = choose(standings, able, self.options.seed, self._number + 1)
            if name is None:
                return
            self._next(self.entries[name], min(self.sizes.batch, left))

    def _next(self, entry: Entry, trials: int, seconds: float | None = None) -> None:
        planned = Planned(self._number + 1, entry.member.name, entry.standing.trials, trials)
        self._append("round", planned.to_json())
        self._round(planned, seconds)

    def _round(self, planned: Planned, seconds: float | None = None) -> None:
        """Makes the trials of a round, within so many seconds if it has found a program by then."""
        self._number = planned.number
        entry = self.entries[planned.case]
        with self._guarded(entry):
            start = self.budget.elapsed
            run = self._opened(entry)

            def stop() -> bool:
                over = seconds is not None and run.best is not None and self.budget.elapsed - start > seconds
                return over or self._spent(entry)

            try:
                entry.make(run, planned, stop)
            except HeronError:
                self._ended(entry, run, planned)
                raise
            self._ended(entry, run, planned)

    def _ended(self, entry: Entry, run: TuningRun, planned: Planned) -> None:
        ended = entry.end(run, planned)
        further = {"peak": ended.peak, "exhausted": ended.exhausted, "confirmation": ended.confirmation}
        self._append("ended", {**planned.to_json(), **asdict(ended.round), **further})
        self._show()

    def _opened(self, entry: Entry) -> TuningRun:
        """The run of a case; the operands of those that were not measured lately make room for its own."""
        run = entry.open(self.make_device, self._show)
        name = entry.member.name
        self._awake[name] = run.device
        self._awake.move_to_end(name)
        while len(self._awake) > 1 and sum(device.held for device in self._awake.values()) > self._memory:
            _, device = self._awake.popitem(last=False)
            device.rest()
        return run

    @property
    def _made(self) -> int:
        return sum(entry.standing.trials for entry in self.entries.values())

    @property
    def _reserve(self) -> float:
        """Seconds to keep for confirmations: what they need, but not most of the budget."""
        needed = sum(entry.confirmation for entry in self.entries.values() if not entry.confirmed)
        warming = any(not entry.standing.rounds and not entry.standing.closed for entry in self.entries.values())
        return min(needed, (_CONFIRMING_FIRST if warming else _CONFIRMING) * (self.budget.seconds or math.inf))

    def _spent(self, entry: Entry | None = None) -> bool:
        """Whether there is no time for further trials, of a case if one is named."""
        trial = entry.standing.seconds_a_trial if entry else 0.0
        return self.budget.left <= self._reserve + trial

    @contextmanager
    def _guarded(self, entry: Entry) -> Iterator[None]:
        """A case that fails does not end the session."""
        try:
            yield
        except HeronError as error:
            state = State.INFEASIBLE if error.code == ExitCode.INFEASIBLE else State.FAILED
            self._failed(entry, str(error), state)
        except InternalError as error:
            self._defects.append(f"{entry.member.name}: {error}")
            self._failed(entry, str(error), State.FAILED)

    def _failed(self, entry: Entry, error: str, state: State) -> None:
        entry.fail(state, error)
        self._append("failed", {"case": entry.member.name, "state": str(state), "error": error})
        self._show()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        """Confirms the best of each case that has one; first where most time is spent."""
        waiting = [
            entry
            for entry in self.entries.values()
            if entry.standing.best is not None and not entry.confirmed and entry.shown.state is not State.FAILED
        ]
        waiting.sort(key=lambda one: -one.member.weight * (one.standing.best or 0.0))
        for number, entry in enumerate(waiting):
            contenders = self.budget.contenders(sum(one.confirmation for one in waiting[number:]))
            if not contenders:
                entry.shown.error = "not confirmed: no time was left"
                continue
            with self._guarded(entry):
                entry.confirm(self._opened(entry), contenders)
            self._show()

    def _append(self, event: str, row: Mapping[str, Any]) -> None:
        self.directory.append({"event": event, **row, "elapsed": self.budget.elapsed})

    def _shown(self) -> list[CaseProgress]:
        return [entry.shown for entry in self.entries.values()]

    def _show(self) -> None:
        self.progress(
            SessionProgress(self._shown(), self._number, self.budget.elapsed, self.budget.seconds, self.budget.trials)
        )

    def _outcome(self, interrupted: bool) -> SessionOutcome:
        first = self.members[0].task
        return SessionOutcome(
            self._shown(), first.target.name, first.threads, self.budget.elapsed, self.directory.path, interrupted
        )
