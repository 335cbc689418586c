"""`heron-asp audit`: every variable and every constraint, with its origin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_asp.cli import common
from heron_asp.errors import HeronError

if TYPE_CHECKING:
    from heron_asp.task import Task

NAME = "audit"
_RULES = ("c1", "c2", "c3", "c4", "c5", "c6")


@common.over_a_task()
def command(
    task: common.Task,
    rule: Annotated[str | None, typer.Option("--rule", help="Only constraints of one rule, c1 to c6.")] = None,
    impact: Annotated[
        bool, typer.Option("--impact", help="Also the exact number of programs with each constraint lifted.")
    ] = False,
    diff: Annotated[
        Path | None,
        typer.Option("--diff", help="What changed since an earlier audit --json.", exists=True, dir_okay=False),
    ] = None,
    json: common.Json = False,
) -> None:
    """Every variable with its values and every constraint with its rule, its schedule step, its force and its text."""
    if rule is not None:
        _require_rule(task, rule)
    found = examine(task, rule)
    if impact:
        found["impact"] = _impact(task)
    if diff is not None:
        _compare(diff, found, json)
    elif json:
        common.print_json(found)
    else:
        _print(found)


def _require_rule(task: Task, rule: str) -> None:
    from heron_asp.resources import suggestion

    known = {*_RULES, *(constraint.rule for part in task.space for constraint in part.constraints)}
    if rule.lower() not in known:
        raise HeronError(f"--rule {rule!r}: no such rule", suggestion(rule.lower(), known))


def _impact(task: Task) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from heron_asp.impact import impacts

    return [asdict(one) for one in impacts(task)]


def _compare(path: Path, found: dict[str, Any], json: bool) -> None:
    """Prints what differs from an earlier audit."""
    from dataclasses import asdict

    from rich.console import Console

    from heron_asp.impact import difference
    from heron_asp.record import Audit, checked, read_json

    try:
        before = checked(read_json(path), Audit, path)
    except HeronError as error:
        raise HeronError(f"{path}: not the output of audit --json", error.message) from None
    for key in ("operator", "target", "threads"):
        if before[key] != found[key]:
            raise HeronError(f"{path} is of {key} {before[key]}, not of {found[key]}")
    different = difference(before, found)
    if json:
        common.print_json(asdict(different))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    was, now = different.programs
    console.print(f"{found['operator']}: {was:,} programs before, {now:,} after")
    for sign, lines in (("-", different.removed), ("+", different.added)):
        for line in lines:
            console.print(f"{sign} {line}")
    for name, old, new in different.changed:
        console.print(f"- {name} {old}\n+ {name} {new}")
    for name, old_values, new_values in different.variables:
        console.print(f"  {name}: {old_values} values before, {new_values} after")


def examine(task: Task, rule: str | None = None) -> dict[str, Any]:
    """The JSON object of `audit`: what all searched sketches have, each variable and constraint once."""
    from heron_asp.render import evidence, formula, origin
    from heron_asp.space import is_shown
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
        for constraint in part.constraints:
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
        "programs": task.space.size,
        "exact": task.space.exact,
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
    rules = Counter(one["rule"] if one["kind"] == "own" else one["rule"].upper() for one in found["constraints"])
    console.print(
        f"\n{len(found['constraints'])} constraints: {', '.join(f'{r} {n}' for r, n in sorted(rules.items()))}"
    )
    rule = ""
    for one in sorted(found["constraints"], key=lambda c: (c["kind"] == "own", c["rule"], c["id"])):
        if one["rule"] != rule:
            rule = one["rule"]
            console.print(f"\n{rule if one['kind'] == 'own' else rule.upper()}")
        where = "" if len(one["sketches"]) == every else f"   (only {', '.join(one['sketches'])})"
        console.print(f"  {one['id']:<24} {one['force']:<5} {one['text']}{where}")
        if one["step"]:
            console.print(f"  {'':<24}       from {', '.join(one['step'])}")
    evidence = dict.fromkeys(one["evidence"] for one in found["constraints"] if one["evidence"])
    if evidence:
        console.print("\nRules of thumb (pays)")
        for said in evidence:
            console.print(f"  {said}")
    if "impact" in found:
        console.print(f"\n{found['programs']:,} programs; without")
        for one in found["impact"]:
            more = one["programs"] / found["programs"] if found["programs"] else float("inf")
            console.print(f"  {one['lifted']:<28} {one['force']:<5} {one['programs']:>16,}   x {more:.3g}")
