"""`heron-asp audit`: every variable and every constraint, with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common

if TYPE_CHECKING:
    from heron_asp.task import Task

NAME = "audit"


def command(
    operator: common.OperatorName,
    shape: common.Shape,
    target: common.TargetName,
    dtype: common.DType = "u8s8s32",
    threads: common.Threads = 1,
    rules: common.Rules = None,
    relax: common.Relax = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only constraints of one rule, c1 to c6.")] = None,
    json: common.Json = False,
) -> None:
    """Every variable with its values and every constraint with its rule, its schedule step, its force and its text."""
    task = common.make_task(operator, shape, target, dtype, threads, rules, relax)
    found = examine(task, rule)
    if json:
        common.print_json(found)
    else:
        _print(found)


def examine(task: Task, rule: str | None = None) -> dict[str, Any]:
    """The JSON object of `audit`: what all searched sketches have, each variable and constraint once."""
    from heron_asp.render import evidence, formula, origin
    from heron_asp.space.space import is_shown
    from heron_asp.terms import plain, text

    variables: dict[str, dict[str, Any]] = {}
    constraints: dict[str, dict[str, Any]] = {}
    for part in task.space:
        for variable, domain in sorted(part.domains.items(), key=lambda pair: text(pair[0])):
            if is_shown(variable):
                entry = variables.setdefault(
                    text(variable),
                    {"name": text(variable), "values": [], "origin": origin(variable, part.sketch), "sketches": []},
                )
                entry["sketches"].append(part.name)
                entry["values"] = sorted({*entry["values"], *map(plain, domain)}, key=lambda v: (isinstance(v, str), v))
        for constraint in part.sketch.constraints:
            if rule and constraint.rule != rule.lower():
                continue
            entry = constraints.setdefault(
                f"{constraint.name} {formula(constraint)}",
                {
                    "id": constraint.name,
                    "rule": constraint.rule,
                    "kind": constraint.kind.name,
                    "force": constraint.force,
                    "step": [str(step) for step in constraint.steps],
                    "variables": [text(variable) for variable in constraint.variables if is_shown(variable)],
                    "text": formula(constraint),
                    "evidence": evidence(constraint, task.target.pays),
                    "sketches": [],
                },
            )
            entry["sketches"].append(part.name)
    return {
        "operator": task.operator.label,
        "target": task.target.name,
        "threads": task.threads,
        "sketches": [part.name for part in task.space],
        "variables": list(variables.values()),
        "constraints": list(constraints.values()),
    }


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    every = len(found["sketches"])
    console.print(f"{found['operator']} on {found['target']}: sketches {', '.join(found['sketches'])}")
    console.print(f"\n{len(found['variables'])} variables")
    for one in found["variables"]:
        values = ", ".join(map(str, one["values"]))
        values = values if len(values) <= 90 else f"{len(one['values'])} values, {values[:70]}..."
        where = "" if len(one["sketches"]) == every else f"   (only {', '.join(one['sketches'])})"
        console.print(f"  {one['name']:<26} {one['origin']:<24} {values}{where}")
    console.print(f"\n{len(found['constraints'])} constraints")
    rule = ""
    for one in sorted(found["constraints"], key=lambda c: (c["rule"], c["id"])):
        if one["rule"] != rule:
            rule = one["rule"]
            console.print(f"\n{rule.upper()}")
        where = "" if len(one["sketches"]) == every else f"   (only {', '.join(one['sketches'])})"
        console.print(f"  {one['id']:<28} {one['force']:<5} {one['text']}{where}")
        console.print(f"  {'':<28}       from {', '.join(one['step'])}")
        if one["evidence"]:
            console.print(f"  {'':<28}       {one['evidence']}")
