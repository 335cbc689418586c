"""`heron-asp sample`: programs as values, as the TVM schedule, and verified by building and running them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common
from heron_asp.errors import ExitCode, HeronError

if TYPE_CHECKING:
    from heron_asp.space import Candidate
    from heron_asp.task import Task

NAME = "sample"
_MOST = 1_000_000  # programs: some GB


class Show(StrEnum):
    """What is shown of a program: its values, or a `View` of it."""

    VALUES = "values"
    SCHEDULE = "schedule"
    TIR = "tir"


@common.over_a_task()
def command(
    task: common.Task,
    number: Annotated[int, typer.Option("-n", "--number", help="How many programs.", min=1, max=_MOST)] = 1,
    seed: common.Seed = 0,
    show: Annotated[
        Show, typer.Option("--show", help="Values, the schedule, or the program that comes out of it (TIR).")
    ] = Show.VALUES,
    verify: Annotated[
        bool, typer.Option("--verify", help="Build, run and check each; exit 4 unless all are correct.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Instead of the samples, how uniform they are (-n 80000, say).")
    ] = False,
    pin: common.Pin = None,
    json: common.Json = False,
) -> int:
    """Uniform samples of the space."""
    import numpy as np

    pins = common.parse_pins(pin)
    common.require_programs(task, pins)
    candidates = task.space.sample(number, np.random.default_rng(seed), pins)
    if report:
        _report(task, candidates, json)
        return ExitCode.OK
    found = [_entry(task, candidate, show) for candidate in candidates]
    if verify:
        _verify(task, candidates, found)
    valid = sum(one["status"] == "correct" for one in found)
    if json:
        common.print_json({"samples": found, "valid": valid if verify else None, "total": len(found)})
    else:
        _print(found, verify, valid)
    return ExitCode.NO_SURVIVOR if verify and valid < len(found) else ExitCode.OK


def _entry(task: Task, candidate: Candidate, show: Show) -> dict[str, Any]:
    from heron_asp.backends import View, backend_of

    entry: dict[str, Any] = {
        "sketch": candidate.sketch,
        "key": candidate.key,
        "values": candidate.to_json(),
        "status": None,
    }
    if show is not Show.VALUES:
        entry[str(show)] = backend_of(task.target).show(task, candidate, View(str(show)))
    return entry


def _report(task: Task, candidates: list[Candidate], json: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from heron_asp.space.uniformity import uniformity
    from heron_asp.terms import text

    if not task.space.exact or len(candidates) < 2:
        raise HeronError("--report needs an exact space and at least two samples", "give -n 80000")
    found = uniformity(task.space, candidates)
    if json:
        common.print_json({**asdict(found), "variable": text(found.variable)})
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{found.draws:,} samples of {found.programs:,} programs; {found.distinct:,} distinct")
    console.print(f"chi2/dof {found.chi2:.3f}, effective support {100 * found.support:.1f} %")
    console.print(f"worst distance of a marginal {found.marginal:.4f}, of {text(found.variable)}")


def _verify(task: Task, candidates: list[Candidate], found: list[dict[str, Any]]) -> None:
    from heron_asp.backends import backend_of
    from heron_asp.measure.result import Limits

    backend = backend_of(task.target)
    device = backend.device(task, Limits(repeats=1, repeat_ms=1), backend.verifies)
    for candidate, entry in zip(candidates, found, strict=True):
        measurement = device.measure(candidate)
        entry["status"] = str(measurement.status)
        entry["error"] = measurement.error
        entry["seconds"] = measurement.seconds
        entry["measured"] = device.measures


def _print(found: list[dict[str, Any]], verify: bool, valid: int) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for one in found:
        if "schedule" in one or "tir" in one:
            console.print(one.get("schedule") or one["tir"])
        else:
            console.print(one["key"])
        if one["status"]:
            console.print(f"  {one['status']} {one['error']}".rstrip())
    if verify:
        console.print(f"{valid} of {len(found)} correct")
