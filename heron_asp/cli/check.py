"""`heron-asp check`: is the operator feasible on the target, and how many programs are there?"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from heron_asp.cli import common
from heron_asp.errors import ExitCode

if TYPE_CHECKING:
    from heron_asp.space import Pins
    from heron_asp.task import Task

NAME = "check"


@common.over_a_task()
def command(
    task: common.Task,
    pin: common.Pin = None,
    tensorized: common.Tensorized = False,
    json: common.Json = False,
) -> int:
    """Is the operator feasible, and how many programs are there? Exit 0 if it is, 3 if not."""
    start = time.monotonic()
    found = examine(task, common.parse_pins(pin), tensorized)
    found["seconds"] = round(time.monotonic() - start, 3)
    if json:
        common.print_json(found)
    else:
        _print(task, found)
    return ExitCode.OK if found["feasible"] else ExitCode.INFEASIBLE


def examine(task: Task, pins: Pins, tensorized: bool) -> dict[str, Any]:
    """The JSON object of `check`, without its time."""
    from heron_asp.explain import conflict, sentences, untensorized

    searched = {part.name: part for part in task.space if part.sketch.tensorized or not tensorized}
    parts = [searched.get(sketch.name) or task.space_of(sketch) for sketch in task.derivation.sketches]
    common.require_variables(parts, pins)
    sketches: list[dict[str, Any]] = []
    for part in parts:
        sketch = part.sketch
        programs = task.space.count_in(part, pins)
        sketches.append(
            {
                "name": sketch.name,
                "programs": programs,
                "variables": len(part.variables),
                "exact": part.exact,
                "acceptance": part.compiled.acceptance,
                "rejecting": [one.name for one in part.compiled.rejecting],
                "constraints": len(part.constraints),
                "tensorized": sketch.tensorized,
                "searched": sketch.name in searched,
                "set_aside_by": sketch.aside,
                "circuit_rows": part.circuit.rows if part.circuit else 0,
            }
        )
    programs = sum(one["programs"] for one in sketches if one["searched"])
    conflicts: list[str] = []
    remedies: list[str] = []
    if not any(sketch.tensorized for sketch in task.derivation.sketches):
        conflicts, remedies = untensorized(task)
    if programs == 0 and searched and not (tensorized and conflicts):
        having = [part for part in searched.values() if pins.keys() <= part.variables.keys()]
        first = next(iter(having or searched.values()))
        found = conflict(first, pins)
        if found:
            conflicts, remedies = [*conflicts, *sentences(found, task)], [*remedies, *found.remedies]
        conflicts += common.foreign_values(parts, pins)
    constraints = {c.name: c for part in searched.values() for c in part.constraints}
    variables = {variable for part in searched.values() for variable in part.variables}
    return {
        "feasible": programs > 0,
        "programs": programs,
        "exact": all(one["exact"] for one in sketches if one["searched"]),
        "sketches": sketches,
        "dropped_sketches": list(task.derivation.dropped),
        "variables": len(variables),
        "constraints": len(constraints),
        "by_rule": dict(sorted(Counter(c.rule for c in constraints.values()).items())),
        "conflict": conflicts,
        "remedies": remedies,
        "operator": task.operator.label,
        "target": task.target.name,
        "threads": task.threads,
        "relaxed": list(task.relaxed),
    }


def _print(task: Task, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from heron_asp.resources import counted

    console = Console()
    verdict = (
        f"[bold]{common.large(found['programs'], found['exact'])} programs[/]"
        if found["feasible"]
        else "[bold red]infeasible[/]"
    )
    console.print(f"{found['operator']} on {found['target']}, {counted(task.threads, 'thread')}: {verdict}")
    table = Table(box=None, pad_edge=False)
    for heading in ("sketch", "programs", "variables", "constraints", ""):
        table.add_column(heading, justify="left" if heading in ("sketch", "") else "right")
    for one in found["sketches"]:
        notes = [] if one["tensorized"] else ["not tensorized"]
        if one["set_aside_by"]:
            notes.append("set aside")
        if not one["exact"]:
            share = f"{100 * one['acceptance']:.1f} % of the samples"
            notes.append(f"{share} satisfy {', '.join(one['rejecting'])}, the rest are drawn anew")
        count = common.large(one["programs"], one["exact"])
        table.add_row(one["name"], count, str(one["variables"]), str(one["constraints"]), "; ".join(notes))
    console.print(table)
    for name in dict.fromkeys(one["set_aside_by"] for one in found["sketches"] if one["set_aside_by"]):
        console.print(_aside(task, name), highlight=False)
    rules = ", ".join(f"{rule} {count}" for rule, count in found["by_rule"].items())
    console.print(f"constraints by rule: {rules}")
    if found["conflict"]:
        console.print("why" if not found["feasible"] else "why no instruction of the target is used")
        for sentence in found["conflict"]:
            console.print(f"  {sentence}", markup=False, highlight=False)
    for remedy in found["remedies"]:
        console.print(f"  what would help: {remedy}", markup=False, highlight=False)
    for name in found["dropped_sketches"]:
        console.print(f"  not searched, there are more than enough: {name}")
    console.print(f"{found['seconds']:.2f} s")


def _aside(task: Task, name: str) -> str:
    known = task.target.pays.get(name)  # a rule file of the user's may give a reason of its own
    return f"set aside by rule of thumb '{name}'" + (f": {known.meaning}" if known else "")
