"""`heron-asp tune --cases`: many cases in one run, with a line for each of them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from heron_asp.cli import common
from heron_asp.errors import ExitCode, HeronError, MissingError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from heron_asp.cli.tune import How
    from heron_asp.measure.device import Device
    from heron_asp.session import CaseProgress, SessionOutcome, SessionProgress
    from heron_asp.session.cases import Member

_WIDTH = 80
_EVERY = 0.25  # seconds between two pictures
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def tune(options: common.TaskOptions, file: Path, table: str, budget: str | None, how: How) -> int:
    """Tunes the cases of a file.

    Args:
        options: of all tasks.
        file: of the cases.
        table: its array of tables.
        budget: time for all of them.
        how: what else was asked.
    """
    from heron_asp.backends import backend_of
    from heron_asp.cli.tune import make_device, replayed_run
    from heron_asp.host import require_host
    from heron_asp.session import Session, SessionOptions
    from heron_asp.session.cases import members, read_cases
    from heron_asp.session.journal import SessionDirectory

    if options.given.keys() & {"operator", "shape"}:
        raise HeronError("an operator or -s together with --cases", f"{file} says them")
    seconds = _seconds(budget) if budget is not None else None
    if seconds is None and how.trials is None:
        raise HeronError("--cases needs a budget for all cases together", "--budget 30m, --trials N, or both")
    cases = read_cases(file, table)
    target = options.given.get("target") or _host_target()
    found = members(cases, lambda case: options.task(**case.options, target=target))
    if replayed_run(how.device) is None:
        backend_of(found[0].task.target).require_device(how.device)
        require_host(found[0].task.target)

    def device(member: Member) -> Device:
        return make_device(member.task, how.device, how.limits, member.name)

    asked = SessionOptions(seconds, how.trials, how.seed, how.search, how.sizes)
    task = found[0].task
    name = f"{table if table != 'cases' else file.stem}-{task.target.name}-t{task.threads}-s{how.seed}"
    directory = SessionDirectory(how.out or Path("runs") / name)
    with _Reporter(how.json) as reporter:
        outcome = Session(found, device, asked, directory, reporter.progress).run(how.resume)
    if how.json:
        common.print_json(outcome.to_json())
    else:
        _print(outcome)
    return _code(outcome)


def _code(outcome: SessionOutcome) -> ExitCode:
    if outcome.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.NO_SURVIVOR if outcome.without else ExitCode.OK


def _seconds(said: str) -> float:
    """Seconds of `90s`, `30m`, `1.5h`.

    Raises:
        HeronError: it is no such time.
    """
    matched = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smh])", said, re.ASCII)
    if not matched or not 1 <= float(matched[1]) * _UNITS[matched[2]] <= common.MOST_SECONDS:
        raise HeronError(f"--budget {said}: no time", "e.g. 90s, 30m or 2h")
    return float(matched[1]) * _UNITS[matched[2]]


def _host_target() -> str:
    """This machine, if a target names it.

    Raises:
        MissingError: none does.
    """
    from heron_asp.host import llvm_cpu, runnable_targets
    from heron_asp.resources import targets_folder
    from heron_asp.target import load_target

    cpu = llvm_cpu()
    for name in runnable_targets():
        if cpu in load_target(targets_folder() / f"{name}.toml").machine.llvm_cpus:
            return name
    raise MissingError(f"no target names this machine, which LLVM calls {cpu}", "-t NAME says what to tune for")


class _Reporter:
    """Live progress: a table on a terminal, a line a round otherwise; nothing but errors under --json."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.live: Live | None = None
        self.shown = 0.0
        self.number = 0

    def __enter__(self) -> _Reporter:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            # No thread of its own: a process that is forked while one draws could wait for its locks forever.
            self.live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            with suppress(OSError):
                self.live.stop()

    def progress(self, now: SessionProgress) -> None:
        """Called after every trial. That nobody reads it any more does not end the session."""
        if self.quiet:
            return
        try:
            self._draw(now) if self.live is not None else self._line(now)
        except OSError:
            self.quiet = True

    def _draw(self, now: SessionProgress) -> None:
        if self.live is not None and time.monotonic() - self.shown > _EVERY:
            self.shown = time.monotonic()
            self.live.update(_table(now.cases, _spent(now)), refresh=True)

    def _line(self, now: SessionProgress) -> None:
        if now.number == self.number:
            return
        self.number = now.number
        tuned = [one for one in now.cases if one.seconds is not None]
        total = sum(one.weight * (one.seconds or 0.0) for one in tuned)
        said = [
            f"round {now.number}",
            _spent(now),
            f"{len(tuned)} of {len(now.cases)} cases",
            f"{common.duration(total)} in all",
        ]
        sys.stderr.write("  ".join(said) + "\n")


def _spent(now: SessionProgress) -> str:
    trials = sum(one.trials for one in now.cases)
    of_trials = f" of {now.trials}" if now.trials is not None else ""
    of_seconds = f" of {now.seconds:.0f}" if now.seconds is not None else ""
    return f"{trials}{of_trials} trials, {now.elapsed:.0f}{of_seconds} s"


def _table(cases: Sequence[CaseProgress], caption: str) -> Table:
    """A line a case, 80 columns wide."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", width=_WIDTH, pad_edge=False)
    table.add_column("case", no_wrap=True, ratio=1)
    for name, width in (("weight", 6), ("trials", 6), ("warm-up", 8), ("best", 8), ("peak", 5)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("", no_wrap=True, min_width=10)
    for one in cases:
        share = one.share_of_peak
        table.add_row(
            one.name,
            f"{one.weight:g}",
            str(one.trials),
            common.duration(one.before),
            common.duration(one.seconds),
            f"{100 * share:.0f} %" if share else "",
            str(one.state),
        )
    return table


def _print(outcome: SessionOutcome) -> None:
    from rich.console import Console

    from heron_asp.resources import counted

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(_table(outcome.cases, ""))
    for one in outcome.cases:
        if one.error:
            console.print(f"{one.name}: {one.error}")
        if len(one.cases) > 1:
            console.print(f"{one.name}: also {', '.join(one.cases[1:])}")
    if outcome.interrupted:
        console.print("interrupted; continue with --resume")
    elif any(one.state == "waiting" for one in outcome.cases):
        console.print("the budget did not reach all cases; continue with --resume and a larger one")
    before, after = outcome.before, outcome.after
    if after:
        without = len(outcome.without)
        left_out = f", {counted(without, 'case')} without a program left out" if without else ""
        console.print(
            f"weighted time of all cases: {common.duration(before)} after the warm-up, {common.duration(after)} now "
            f"({before / after:.2f} times as fast{left_out})"
        )
    console.print(f"{outcome.trials} trials, {outcome.elapsed:.1f} s, recorded in {outcome.path}")
    if after and not outcome.without:
        console.print(f"heron-asp export {outcome.path}/* -o lib")
