"""`heron-asp report`: summarises a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common

if TYPE_CHECKING:
    from heron_asp.runs import Run
    from heron_asp.session.report import SessionReport

NAME = "report"


def command(
    run: Annotated[
        Path, typer.Argument(help="A run directory of heron-asp tune, or one of tune --cases.", show_default=False)
    ],
    json: common.Json = False,
) -> None:
    """Summarise a run: convergence, failures, the best program. Of many cases: where each of them is."""
    from heron_asp.runs import load_run
    from heron_asp.store import SESSION_HEADER

    if (run / SESSION_HEADER).is_file():
        from heron_asp.session.report import read_session

        session = read_session(run)
        if json:
            common.print_json(session.to_json())
        else:
            _print_session(session)
        return
    summary = summarise(load_run(run))
    if json:
        common.print_json(summary)
    else:
        _print(summary)


def _print_session(session: SessionReport) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from heron_asp.resources import counted

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{session.path}: on {session.target}, {counted(session.threads, 'thread')}, {session.state}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", no_wrap=True)
    for name in ("weight", "trials", "best", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for one in session.cases:
        share = f"{100 * one.share:.1f} %" if one.share is not None else ""
        row = (one.case, f"{one.weight:g}", str(one.trials), common.duration(one.seconds), share, str(one.state))
        table.add_row(*row)
    console.print(table)
    for one in session.cases:
        if one.error:
            console.print(f"{one.case}: {'; '.join(one.error.splitlines())}")
    console.print(f"weighted time of all cases: {common.duration(session.weighted_seconds) or 'none yet'}")
    console.print(f"{session.trials} trials, {session.elapsed:.1f} s; report {session.path}/CASE says more of a case")


def summarise(run: Run) -> dict[str, Any]:
    """The JSON object of `report`."""
    made = run.operator
    trials = run.trials
    convergence, best = [], None
    statuses: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    build = ran = 0.0
    for number in sorted(trials):
        measurement = trials[number].measurement
        if measurement is None:
            statuses["unfinished"] += 1
            continue
        statuses[str(measurement.status)] += 1
        build += measurement.build_seconds
        ran += measurement.run_seconds
        if measurement.error:
            errors[measurement.error] += 1
        if measurement.seconds is not None and (best is None or measurement.seconds < best):
            best = measurement.seconds
            convergence.append({"trial": number, "seconds": best, "gops": made.operations / best / 1e9})
    result = run.result or {}
    confirmed = result.get("best")
    if confirmed:
        confirmed = {**confirmed, "gops": made.operations / confirmed["seconds"] / 1e9}
    return {
        "run": str(run.path),
        "operator": made.label,
        "target": run.header["target"],
        "threads": run.header["threads"],
        "seed": run.header["seed"],
        "search": run.header["search"],
        "state": "finished" if run.result else "unfinished",
        "budget": run.budget,
        "trials": dict(statuses),
        "errors": [{"error": error, "trials": count} for error, count in errors.most_common(5)],
        "convergence": convergence,
        "best": confirmed or _unconfirmed(run, made.operations),
        "measured": result.get("measured"),
        "peak_gops": result.get("peak_gops"),
        "build_seconds": build,
        "run_seconds": ran,
        "exhausted": result.get("exhausted"),
        "versions": run.header["versions"],
    }


def _unconfirmed(run: Run, operations: int) -> dict[str, Any] | None:
    from heron_asp.errors import HeronError

    try:
        sketch, values, seconds = run.best()
    except HeronError:
        return None
    return {
        "seconds": seconds,
        "gops": operations / seconds / 1e9,
        "values": values,
        "sketch": sketch,
        "status": "correct",
    }


def _print(summary: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{summary['operator']} on {summary['target']}, threads {summary['threads']}, {summary['state']}")
    done = sum(summary["trials"].values())
    counts = ", ".join(f"{count} {status}" for status, count in summary["trials"].items())
    console.print(
        f"{done} of {summary['budget'] or done} trials by {summary['search']}, seed {summary['seed']}: {counts}"
    )
    for one in summary["errors"]:
        console.print(f"  {one['trials']} x {one['error']}")
    for point in summary["convergence"]:
        console.print(f"  trial {point['trial']:>5}: {point['seconds'] * 1e6:>10.2f} us {point['gops']:>8.1f} GOP/s")
    best = summary["best"]
    if best:
        share, peak = best.get("share_of_peak"), summary["peak_gops"]
        cycles = f"{best['cycles']:,} cycles = " if best.get("cycles") else ""
        console.print(
            f"best: {cycles}{best['seconds'] * 1e6:.2f} us, {best['gops']:.1f} GOP/s"
            + (f", {100 * share:.1f} % of the peak of {peak:.1f}" if share and peak else ", not confirmed")
        )
        for name, value in best["values"].items():
            console.print(f"  {name} = {value}")
    if summary["measured"]:
        console.print(f"measured: {summary['measured']}")
    console.print(f"building {summary['build_seconds']:.1f} s, running {summary['run_seconds']:.1f} s")
