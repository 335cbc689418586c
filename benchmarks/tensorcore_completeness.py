"""Does the space of a GPU hold just what runs? Assignments of the knobs, no constraint asked, against the space.

    python benchmarks/tensorcore_completeness.py               every problem; exits with 1 on any failure
    python benchmarks/tensorcore_completeness.py --most 40     fewer assignments of each sketch

On small products the knobs range over more than the rules offer: tiles that do and do not multiply to the extent, with
the instruction's unit and without, extents between the paddings, vectors up to 32 bytes, rows that are apart by many
numbers, all pipelines at all numbers of rounds. A quarter of what is tried are members, half differ from a member in
one or two of these, the rest is drawn freely. The space's rules of thumb are lifted.

    tried    assignments
    valid    TVM makes a program that passes its check, and is right in the emulator in any order of threads and copies
    space    assignments that the space holds
    guarded  valid by a condition that TVM puts around a split: no tiling, as the rules mean one
    form     valid ones that the space lacks, while it holds the same source in another form
    known    valid ones that the space lacks for a reason that is listed below
    missing  valid ones that it lacks for any other reason: a failure (recall below 1)
    wrong    of the space, that are not valid: a failure (precision below 1)
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from heron_asp import Task, operator, resolve_target
from heron_asp.backends.cuda.completeness import Found, examine

PROBLEMS = ({"m": 32, "n": 32, "k": 32}, {"m": 16, "n": 64, "k": 32})
KNOWN = {  # what the rules leave out though it runs, and why
    r"candidates:padding": "rows further apart than two lines of 16 bytes: banks are met as by none, one or two",
    r"candidates:vector\(load": "vectors of more than 16 bytes: they may be padding, so TVM copies elements singly",
    r"c6:overlap\(c, k, stage": "more buffers than rounds: some are never filled, and nothing is ever on its way",
    r"c6:async": "copies of less than 4 bytes: none runs by itself, and the pipeline waits for each",
    r"c6:idle": "blocks of threads that have padding only, where TVM happens to get their sums right",
}


def reason(names: tuple[str, ...]) -> str | None:
    """Why assignments that these constraints refuse are no programs of the space; None if that is not known."""
    found = [next((why for pattern, why in KNOWN.items() if re.match(pattern, name)), None) for name in names]
    return None if None in found else " and ".join(dict.fromkeys(one for one in found if one))


def main() -> None:
    """Tries, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="a100")
    parser.add_argument("--most", type=int, default=200, help="assignments of a sketch (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of assignments")
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console, rows, failed = Console(width=160), [], False
    target = resolve_target(arguments.target)
    for shape in PROBLEMS:
        begin = time.monotonic()
        task = Task(operator("gemm", shape, "f16f16f32"), target, relaxed=tuple(target.pays))
        found = examine(task, arguments.most, arguments.seed, arguments.workers)
        row = summary(",".join(f"{key}={value}" for key, value in shape.items()), found)
        rows.append({**row, "seconds": round(time.monotonic() - begin)})
        failed |= bool(row["missing"] or row["wrong"] or found.apart)
        _print(rows[-1:], console)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if failed else 0)


def summary(problem: str, found: Found) -> dict[str, Any]:
    """What was found, with what is known taken apart from what is missing."""
    known: Counter[str] = Counter()
    missing: dict[str, dict[str, Any]] = {}
    for names, many in found.missing.items():
        if why := reason(names):
            known[why] += many
        else:
            missing[" and ".join(names)] = {"programs": many, "example": found.examples[names]}
    return {
        "problem": f"gemm {problem}",
        "tried": found.tried,
        "valid": found.valid,
        "space": found.members,
        "guarded": found.guarded,
        "form": found.forms,
        "known": dict(known),
        "missing": missing,
        "wrong": {key[0]: {"programs": many, "example": found.examples[key]} for key, many in found.wrong.items()},
        "apart": found.apart,
        "precision": found.precision,
        "recall": 1 - sum(one["programs"] for one in missing.values()) / max(1, found.valid),
        "refused": dict(found.refused),
    }


def _print(rows: list[dict[str, Any]], console: Console) -> None:
    made = Table()
    for heading in (
        "problem",
        "tried",
        "valid",
        "space",
        "guarded",
        "form",
        "known",
        "missing",
        "wrong",
        "precision",
        "recall",
        "s",
    ):
        made.add_column(heading, justify="left" if heading == "problem" else "right")
    for row in rows:
        lost, wrong = (sum(one["programs"] for one in row[kind].values()) for kind in ("missing", "wrong"))
        counts = [
            row["tried"],
            row["valid"],
            row["space"],
            row["guarded"],
            row["form"],
            sum(row["known"].values()),
            lost,
            wrong,
        ]
        made.add_row(
            row["problem"], *map(str, counts), f"{row['precision']:.3f}", f"{row['recall']:.3f}", str(row["seconds"])
        )
    console.print(made)
    for row in rows:
        for why, many in row["known"].items():
            console.print(f"  {many} valid and left out: {why}", highlight=False)
        for kind in ("missing", "wrong"):
            for name, one in row[kind].items():
                console.print(
                    f"  FAILURE: {one['programs']} {kind}: {name}, e.g. {one['example']}", highlight=False, markup=False
                )
        if row["apart"]:
            console.print(f"  FAILURE: of {row['apart']} assignments the problem thinks otherwise than its constraints")


if __name__ == "__main__":
    main()
