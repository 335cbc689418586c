"""The operators and networks of Heron's evaluation on a GPU target: are there programs, how many, how fast is `check`?

    python benchmarks/tensorcore_suite.py                          the 51 operators
    python benchmarks/tensorcore_suite.py --network resnet50 bert  layers of networks, batch 16
    python benchmarks/tensorcore_suite.py -t t4 --only G1,C2D1     some cases, another GPU
    python benchmarks/tensorcore_suite.py --tune 16 --only G1      tunes with the model too: modelled, not measured

Prints a line a case: programs (exact where no `about` stands before the number), and seconds of CPU that `check` takes
beyond the import of its libraries. With `--tune` each case is tuned end to end, so that every candidate is compiled
with nvcc and emulated, and ranked by the model; nothing is said of a real GPU's speed. Exits with 1 where a case has no
program.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import tomllib
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from rich.console import Console

from heron_asp import operator, resolve_target
from heron_asp.errors import HeronError
from heron_asp.operators import Operator
from heron_asp.task import Task

SUITE = Path(__file__).parent / "heron_suite.toml"
NETWORKS = ("resnet50", "vgg16", "inceptionv3", "bert")


def main() -> int:
    """Looks at every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="a100")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=[])
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--tune", type=int, default=0, metavar="TRIALS")
    parser.add_argument("--out", type=Path, default=Path("runs/tensorcore_suite"), help="of the runs of --tune")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    asked = parser.parse_args()
    target, console = resolve_target(asked.target), Console(highlight=False, soft_wrap=True)
    only = {name for name in asked.only.split(",") if name}
    rows = []
    for name, made in _cases(asked.network):
        if only and name not in only:
            continue
        row = _row(name, made, Task(made, target))
        if asked.tune and "error" not in row:
            row |= _tuned(Task(made, target), asked.tune, asked.out / name)
        console.print(_line(row))
        rows.append(row)
    counted = [row for row in rows if "programs" in row]
    slowest = max((row["seconds"] for row in counted), default=0.0)
    console.print(
        f"{len(counted)} of {len(rows)} cases have programs on {target.name}; slowest check {slowest:.2f} s of CPU"
    )
    if asked.json:
        asked.json.write_text(json.dumps({"format": 1, "target": target.name, "rows": rows}, indent=1) + "\n")
    return 0 if rows and len(counted) == len(rows) else 1


def _cases(networks: list[str]) -> Iterator[tuple[str, Operator]]:
    suite: Mapping[str, Any] = tomllib.loads(SUITE.read_text())
    for case in suite["tensorcore_operators"] if not networks else []:
        yield case["case"], operator(case["operator"], case["shape"], case["dtype"])
    for network in networks:
        for number, layer in enumerate(suite[f"network_{network}"]):
            yield f"{network}-{number}", operator(layer["operator"], layer["shape"], layer["dtype"])


def _row(name: str, made: Operator, task: Task) -> dict[str, Any]:
    start = _cpu()
    said = {"case": name, "operator": made.label}
    try:
        size, exact = task.space.size, task.space.exact
    except HeronError as error:
        return {**said, "error": str(error)}
    if not size:
        return {**said, "error": "no program"}
    axes = [axis for axis in task.block.axes if axis.kind == "spatial"]
    return {
        **said,
        "programs": int(size),
        "exact": exact,
        "seconds": _cpu() - start,
        "product": {axis.name: axis.extent for axis in task.block.axes},
        "blocks_of_16": prod(-(-axis.extent // 16) for axis in axes),
    }


def _cpu() -> float:
    """Seconds of CPU of this process and of those that compiled circuits for it: others on the machine do not count."""
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in every)


def _tuned(task: Task, trials: int, out: Path) -> dict[str, Any]:
    from heron_asp.backends import backend_of
    from heron_asp.measure.result import Limits
    from heron_asp.store import RunDirectory
    from heron_asp.tuning import TuneOptions, tune

    start = time.monotonic()
    device = backend_of(task.target).device(task, Limits(), "model")
    outcome = tune(task, device, TuneOptions(trials), RunDirectory(out), resume=out.exists()).to_json()
    best = outcome["best"]
    return {
        "trials": outcome["trials"],
        "measured": outcome["measured"],
        "modelled_us": best["seconds"] * 1e6 if best else None,
        "tuning_seconds": time.monotonic() - start,
    }


def _line(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"{row['case']:14s} {row['operator']}: {row['error']}"
    about = "" if row["exact"] else "about "
    said = f"{row['case']:14s} {about}{row['programs']:>16,} programs  {row['seconds']:5.2f} s  {row['operator']}"
    if "modelled_us" in row:
        counts = ", ".join(f"{count} {status}" for status, count in row["trials"].items() if count)
        said += f": {counts}; {row['modelled_us']:.1f} us ({row['measured']}), {row['tuning_seconds']:.0f} s"
    return said


if __name__ == "__main__":
    raise SystemExit(main())
