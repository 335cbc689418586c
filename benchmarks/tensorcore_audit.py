"""What the rules make of GEMM 1024^3 on a GPU, rule by rule, beside what Heron's paper says of its own problem.

    python benchmarks/tensorcore_audit.py
    python benchmarks/tensorcore_audit.py -t h100 --shape m=512,n=512,k=512 --json audit.json

The paper (ASPLOS 2023) names 173 variables and 372 constraints for GEMM 1024^3 on TensorCore. There each constraint
speaks of two or three variables (PROD, SUM, EQ, LE, IN, SELECT). A constraint here has a name and may multiply any
number of variables, and no variable stands for another one. So the table counts twice: what has a name, and, in
brackets, the same in the paper's form: a product or a sum of n members is n - 1 constraints and n - 2 further
variables, and what a knob may be is one more.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.operators import parse_shape
from heron_asp.sketch import Constraint, Sketch
from heron_asp.space import SketchSpace, is_shown
from heron_asp.terms import Term, Value

PAPER = {"variables": 173, "constraints": 372}
TITLES = {
    "s1": "S1 Tensorize, padding",
    "s2": "S2 multi-level tiling",
    "s3": "S3 multi-scope copies, pipelines",
    "c1": "C1 AddLoopSplit",
    "c2": "C2 AddLoopFuse",
    "c3": "C3 AddCandidates",
    "c4": "C4 AddStageFuse",
    "c5": "C5 AddMemLimit",
    "c6": "C6 AddDLASpecific",
}
_TENSORIZING = ("pad", "tensorize", "native", "shift", "move", "start_with")
_CHAINED = ("product", "sum", "at_most")


def rule_of_step(primitive: Term, sketch: Sketch) -> str:
    """The rule of the paper that asks for a schedule primitive."""
    if primitive.name in _TENSORIZING:
        return "s1"
    copies = {copy for copy, *_ in sketch.of("copy")}
    return "s3" if primitive.name == "annotate" or copies & set(_inside(primitive)) else "s2"


def rule_of_knob(knob: Value) -> str:
    """The rule of the paper that brings in a variable to choose."""
    name = knob.name if isinstance(knob, Term) else ""
    return {"extent": "s1", "tile": "s2", "inner": "s2"}.get(name, "s3")


def _inside(value: Value) -> Iterator[Value]:
    yield value
    arguments = value.arguments if isinstance(value, Term) else value if isinstance(value, tuple) else ()
    for argument in arguments:
        yield from _inside(argument)


def elementary(constraint: Constraint) -> int:
    """As how many constraints of two or three variables it would be said."""
    return max(1, len(constraint.members) - 1) if constraint.kind.name in _CHAINED else 1


def further(constraint: Constraint) -> int:
    """How many more variables that would take."""
    return elementary(constraint) - 1


def examine(part: SketchSpace) -> dict[str, Any]:
    """What each rule of the paper gives a sketch."""
    sketch = part.sketch
    shown = [knob for knob in sketch.knobs if is_shown(knob)]
    rules = {name: Counter[str]() for name in TITLES}
    for step in sketch.steps:
        rules[rule_of_step(step.primitive, sketch)]["steps"] += 1
    for knob in shown:
        rules[rule_of_knob(knob)]["variables"] += 1
        rules["c3"]["elementary"] += 1  # what it may be
    for constraint in part.constraints:
        row = rules[constraint.rule]
        row["constraints"] += 1
        row["elementary"] += elementary(constraint)
        row["further"] += further(constraint)
        row["variables"] += constraint.defines is not None and constraint.defines not in sketch.knobs
    return {"sketch": part.name, "programs": part.size, "rules": {name: dict(row) for name, row in rules.items()}}


def total(found: dict[str, Any], what: str) -> int:
    """A number of all rules together."""
    return sum(row.get(what, 0) for row in found["rules"].values())


def main() -> None:
    """Counts, prints, keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="a100")
    parser.add_argument("--shape", default="m=1024,n=1024,k=1024")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    made = operator("gemm", parse_shape(arguments.shape), "f16f16f32")
    rows = [examine(part) for part in Task(made, resolve_target(arguments.target)).space]
    console = Console(width=120)
    for found in rows:
        console.print(_table(found))
    console.print(f"Heron's paper: {PAPER['variables']} variables, {PAPER['constraints']} constraints")
    if arguments.json:
        arguments.json.write_text(json.dumps({"paper": PAPER, "sketches": rows}, indent=1) + "\n")


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['sketch']}: {found['programs']:,} programs", title_justify="left")
    for heading in ("rule", "schedule steps", "variables", "constraints"):
        table.add_column(heading, justify="left" if heading == "rule" else "right")
    for name, title in TITLES.items():
        row = found["rules"][name]
        constraints, small = row.get("constraints", 0), row.get("elementary", 0)
        said = [str(row.get("steps", "")), str(row.get("variables", "")), f"{constraints} ({small})" if small else ""]
        table.add_row(title, *said)
    variables, constraints = total(found, "variables"), total(found, "constraints")
    table.add_section()
    table.add_row(
        "all",
        str(total(found, "steps")),
        f"{variables} ({variables + total(found, 'further')})",
        f"{constraints} ({total(found, 'elementary')})",
    )
    return table


if __name__ == "__main__":
    main()
