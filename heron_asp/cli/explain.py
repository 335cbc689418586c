"""`heron-asp explain`: the smallest set of constraints that says no, and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common
from heron_asp.errors import ExitCode, HeronError

if TYPE_CHECKING:
    from heron_asp.space import Pins
    from heron_asp.task import Task

NAME = "explain"


@common.over_a_task()
def command(
    task: common.Task,
    pin: common.Pin = None,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program", help="A program as `sample --json` prints it: why is it refused?", exists=True, dir_okay=False
        ),
    ] = None,
    json: common.Json = False,
) -> int:
    """Why is there no program, or none with these values? The smallest set of constraints, and what would help."""
    from heron_asp.explain import conflict, sentences, untensorized, variable_state

    pins = {**(_program(program, task) if program else {}), **common.parse_pins(pin)}
    refused = None
    if not any(sketch.tensorized for sketch in task.derivation.sketches):
        reasons, remedies = untensorized(task)
        refused = {"conflict": reasons, "remedies": remedies}
    sketches: list[dict[str, Any]] = []
    for part in task.space:
        states = [variable_state(part, variable, value) for variable, values in pins.items() for value in values]
        known = {variable: values for variable, values in pins.items() if variable in part.variables}
        found = conflict(part, known)
        sketches.append(
            {
                "sketch": part.name,
                "programs": part.count(known) if len(known) == len(pins) else 0,
                "pins": states,
                "conflict": sentences(found, task) if found else [],
                "remedies": list(found.remedies) if found else [],
            }
        )
    feasible = any(one["programs"] for one in sketches)
    answer = {"feasible": feasible, "not_tensorized": refused, "sketches": sketches}
    if json:
        common.print_json(answer)
    else:
        _print(task.operator.label, answer)
    return ExitCode.OK if feasible else ExitCode.INFEASIBLE


def _program(path: Path, task: Task) -> Pins:
    """The values of a program: a JSON object of values by variable, or one with such an object as `values`.

    Raises:
        HeronError: the file holds something else, or names a sketch that the task does not have.
    """
    from heron_asp.record import read_json
    from heron_asp.resources import suggestion

    data = read_json(path)
    samples = data.get("samples") if isinstance(data, dict) else None
    if isinstance(samples, list) and len(samples) == 1:
        data = samples[0]
    if isinstance(data, dict) and "sketch" in data:
        name, known = str(data.pop("sketch")), [sketch.name for sketch in task.derivation.sketches]
        if name not in known:
            raise HeronError(f"{path}: there is no sketch '{name}'", suggestion(name, known))
    values = data.get("values", data) if isinstance(data, dict) else None
    if not values or not isinstance(values, dict) or not all(isinstance(one, (int, str)) for one in values.values()):
        raise HeronError(
            f"{path}: not a program", 'an object such as {"tile(c, m, task)": 4}, or what sample --json prints'
        )
    return {common.term(name): frozenset({common.term(str(value))}) for name, value in values.items()}


def _print(label: str, answer: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if answer["not_tensorized"]:
        console.print(f"{label}: no instruction of the target runs it")
        for sentence in answer["not_tensorized"]["conflict"]:
            console.print(f"  {sentence}")
        for remedy in answer["not_tensorized"]["remedies"]:
            console.print(f"  what would help: {remedy}")
    for one in answer["sketches"]:
        verdict = f"{common.large(one['programs'])} programs" if one["programs"] else "no program"
        console.print(f"sketch '{one['sketch']}': {verdict}")
        for line in (*one["pins"], *one["conflict"]):
            console.print(f"  {line}")
        for remedy in one["remedies"]:
            console.print(f"  what would help: {remedy}")
