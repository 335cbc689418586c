"""`heron-asp tune`: searches for the fastest program, with live progress."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common
from heron_asp.errors import ExitCode, HeronError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from heron_asp.measure.device import Device
    from heron_asp.measure.result import Limits
    from heron_asp.outcome import Outcome, Progress
    from heron_asp.store import RunDirectory
    from heron_asp.task import Task

NAME = "tune"


class SearchName(StrEnum):
    """How candidates are proposed."""

    CGA = "cga"
    RANDOM = "random"


@common.over_a_task(looks=False, partly=True)
def command(
    task: common.TaskOptions,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", help="A TOML file of many cases to tune instead of one.", show_default=False),
    ] = None,
    table: Annotated[str | None, typer.Option("--list", help="Its array of tables.", show_default="cases")] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Time for all cases together, e.g. 90s, 30m or 2h.", show_default=False),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            help="Candidates to measure, of all cases together, those included that --resume finds measured.",
            min=1,
            show_default="64, or as before",
        ),
    ] = None,
    seed: common.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Run directory; with --cases, a directory of one for each case. By default runs/<what>-...",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue what --out records.")] = False,
    search: Annotated[
        SearchName, typer.Option("--search", help="The genetic search, or plain uniform sampling.")
    ] = SearchName.CGA,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="'local'; 'replay:RUN' to answer from a recorded run; of a GPU also 'model', or 'worker:HOST' by ssh.",
        ),
    ] = "local",
    batch: Annotated[
        int | None, typer.Option("--batch", help="Candidates measured a round [scaled to --trials].", min=1)
    ] = None,
    first: Annotated[int | None, typer.Option("--first", help="Candidates of the first, uniform round.", min=1)] = None,
    population: Annotated[int | None, typer.Option("--population", help="Candidates of a generation.", min=2)] = None,
    generations: Annotated[int | None, typer.Option("--generations", help="Generations a round.", min=1)] = None,
    elites: Annotated[int | None, typer.Option("--elites", help="Candidates that pass on unchanged.", min=1)] = None,
    history: Annotated[
        int | None, typer.Option("--history", help="Best measured that join each population.", min=1)
    ] = None,
    keys: Annotated[
        float | None, typer.Option("--keys", help="Share of influential variables that crossover pins.", min=0, max=1)
    ] = None,
    exploit: Annotated[
        float | None, typer.Option("--exploit", help="Share of a round from the top of the prediction.", min=0, max=1)
    ] = None,
    children: Annotated[
        int | None, typer.Option("--children", help="Children sampled from one pinned problem.", min=1)
    ] = None,
    build_timeout: Annotated[
        float,
        typer.Option(
            "--build-timeout", help="Seconds that building a candidate may take.", min=0.1, max=common.MOST_SECONDS
        ),
    ] = 60.0,
    run_timeout: Annotated[
        float,
        typer.Option(
            "--run-timeout", help="Seconds that checking and timing it may take.", min=0.1, max=common.MOST_SECONDS
        ),
    ] = 30.0,
    json: common.Json = False,
) -> int:
    """Search for the fastest program: build, check and time candidates, record every step, confirm the winner.

    With --cases, tune many cases in one run: trials go where they are expected to save most time.
    """
    from heron_asp.measure.result import Limits

    asked = {
        "batch": batch, "first": first, "population": population, "generations": generations, "elites": elites,
        "history": history, "keys": keys, "exploit": exploit, "children": children,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    limits = Limits(build=build_timeout, run=run_timeout)
    how = How(trials, seed, str(search), given, device, limits, out, resume, json)
    if cases is not None:
        from heron_asp.cli import tune_cases

        return tune_cases.tune(task, cases, table or "cases", budget, how)
    for option, value in (("--list", table), ("--budget", budget)):
        if value is not None:
            raise HeronError(f"{option} {value}: without --cases FILE")
    return _tune(task.task(), how)


@dataclass(frozen=True)
class How:
    """What was asked besides what to tune; `sizes` are those of the search that were given."""

    trials: int | None
    seed: int
    search: str
    sizes: dict[str, Any]
    device: str
    limits: Limits
    out: Path | None
    resume: bool
    json: bool


def _tune(task: Task, how: How) -> int:
    from heron_asp.store import RunDirectory
    from heron_asp.tuning import TuneOptions, tune

    run = RunDirectory(how.out or Path("runs") / run_name(task, how.seed))
    trials = how.trials or _budget(run, how.resume)
    options = TuneOptions(trials, how.seed, how.search, how.sizes)
    device = make_device(task, how.device, how.limits)
    common.require_programs(task)
    with _Reporter(task, trials, how.json, device.measures) as reporter:
        outcome = tune(task, device, options, run, how.resume, reporter.progress)
    if how.json:
        common.print_json(outcome.to_json())
    else:
        _print(outcome)
    return ExitCode.INTERRUPTED if outcome.interrupted else ExitCode.OK


def _budget(run: RunDirectory, resume: bool) -> int:
    """The trials of a run for which none are asked."""
    from heron_asp.store import read_budget
    from heron_asp.tuning import TRIALS

    before = run.recorded() if resume else None
    return (before and read_budget(run.path, before)) or TRIALS


def make_device(task: Task, said: str, limits: Limits, run: str = "") -> Device:
    """What `--device` means.

    Args:
        task: what is measured.
        said: the option.
        limits: of building and running.
        run: the run of the task within the directory to replay.

    Raises:
        HeronError: there is no such device, or it cannot measure the task.
        MissingError: this machine lacks instructions, or there is nothing to replay.
    """
    from heron_asp.backends import backend_of
    from heron_asp.measure.replay import ReplayDevice

    replayed = replayed_run(said)
    if replayed is not None:
        return ReplayDevice.load(replayed / run)
    return backend_of(task.target).device(task, limits, said)


def replayed_run(said: str) -> Path | None:
    """The recorded run that `--device` means; None where it means a device."""
    kind, _, argument = said.partition(":")
    return Path(argument) if kind == "replay" and argument else None


def run_name(task: Task, seed: int) -> str:
    """The run directory of a task."""
    made = task.operator
    said = made.said
    extents = "x".join(str(said[key]) for key in made.kind.keys)
    further = [f"{key}{value}" for key, value in said.items() if key not in made.kind.keys]
    further += [made.layout] if made.layout != made.kind.layout else []
    further += [re.sub(r"[^\w.]", "-", step.text) for step in made.epilogue]
    parts = [made.name, made.dtype, extents, *further, task.target.name, f"t{task.threads}", f"s{seed}"]
    return "-".join(parts)


class _Reporter:
    """Live progress: a bar on a terminal, a line every few trials otherwise; nothing but errors under --json."""

    def __init__(self, task: Task, trials: int, quiet: bool, measures: str = "") -> None:
        from heron_asp.measure.device import WALL_TIME

        self.note = "" if measures in ("", WALL_TIME) else f" ({measures})"
        self.label = task.operator.label
        self.trials = trials
        self.quiet = quiet
        self.every = max(1, trials // 8)
        self.bar: Bar | None = None
        self.report: Callable[[Progress], None] = lambda _progress: None

    def __enter__(self) -> _Reporter:
        if self.quiet:
            return self
        if sys.stderr.isatty():
            self._start_bar()
        else:
            self.report = self._line
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            with suppress(OSError):
                self.bar.stop()

    def progress(self, now: Progress) -> None:
        """Called after every trial. That nobody reads it any more does not end the run."""
        try:
            self.report(now)
        except OSError:
            self.report = lambda _progress: None

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        self.bar = Display(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            TextColumn("{task.fields[failures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        row = self.bar.add_task(self.label, total=self.trials, best="", failures="")
        self.bar.start()
        bar = self.bar

        def report(now: Progress) -> None:
            bar.update(row, completed=now.trial, best=_best(now) + self.note, failures=_failures(now))

        self.report = report

    def _line(self, now: Progress) -> None:
        if now.trial % self.every and now.trial != now.trials:
            return
        left = now.elapsed / now.trial * (now.trials - now.trial)
        said = [
            f"trial {now.trial}/{now.trials}",
            _best(now) + self.note,
            _failures(now),
            f"{now.elapsed:.0f} s, {left:.0f} s left",
        ]
        sys.stderr.write("  ".join(part for part in said if part) + "\n")


def _best(now: Progress) -> str:
    if now.best is None:
        return "no correct program yet"
    speed = now.operations / now.best
    share = f" = {100 * now.share_of_peak:.1f} % of the peak" if now.share_of_peak else ""
    return f"best {now.best * 1e6:.1f} us, {speed / 1e9:.1f} GOP/s{share}"


def _failures(now: Progress) -> str:
    failed = [f"{count} {status}" for status, count in sorted(now.statuses.items()) if status != "correct"]
    return f"failed: {', '.join(failed)}" if failed else "none failed"


def _print(outcome: Outcome) -> None:
    from rich.console import Console

    from heron_asp.measure.device import WALL_TIME

    console = Console(highlight=False, markup=False, soft_wrap=True)
    data = outcome.to_json()
    best = data["best"]
    counts = ", ".join(f"{count} {status}" for status, count in data["trials"].items() if count)
    console.print(f"{data['operator']} on {data['target']}, threads {data['threads']}: {counts}")
    if data["exhausted"]:
        console.print("the space is exhausted: every program of it was measured")
    if data["interrupted"]:
        console.print("interrupted; continue with --resume")
    if best:
        peak = "measured peak" if data["measured"] == WALL_TIME else "peak"
        share = f", {100 * best['share_of_peak']:.1f} % of the {peak}" if best["share_of_peak"] else ""
        sketch = outcome.task.space[best["sketch"]].sketch
        plain = "" if sketch.tensorized else " (not tensorized)"
        cycles = f"{best['cycles']:,} cycles = " if "cycles" in best else ""
        share += f", {100 * best['share_of_bound']:.1f} % of the bound" if "share_of_bound" in best else ""
        console.print(f"best: {cycles}{best['seconds'] * 1e6:.2f} us, {best['gops']:.1f} GOP/s{share}{plain}")
        console.print(f"  {best['key']}")
        if best["ties"]:
            console.print(f"  {len(best['ties'])} other programs are within 1 %: a tie")
    if data["warning"]:
        console.print(f"note: {data['warning']}; no share of it is given")
    if data["measured"] != WALL_TIME:
        console.print(f"measured: {data['measured']}")
    console.print(f"{data['wall_seconds']:.1f} s, recorded in {data['run']}")
