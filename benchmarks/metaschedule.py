"""Our tuner against MetaSchedule of TVM 0.27, at equal trials and at equal time: int8, weights known ahead.

    python benchmarks/metaschedule.py --trials 64 --threads 1 --out runs/metaschedule

The cases stand in metaschedule.toml. Both sides build, check and time a candidate in a forked process under the same
limits, and start with nothing known. MetaSchedule gets its weights packed by hand, its own rules for VNNI and what
peers/metaschedule.py mends; with `--rules stock` its rules are as they come, with `mended` they do not vectorize the
loop around a tensorized block, which cannot be built. Its best five programs are measured again, like ours.

    ours, theirs   GOP/s of the best programs after --trials, timed in turn in one process, outputs checked
    valid          trials that were built, ran and were right
    s/trial        seconds of tuning by trials, search included, imports not
    trials         ours / theirs at equal trials, by their best rounds; above 1 ours is faster
    our time       ... where theirs has as long as our trials took, be that fewer or more trials
    their time     ... where ours has as many trials as go into the time of theirs

A row is kept in --out as soon as it is there; a second call makes those that are missing or have an error, and with
`--again` times the programs of all rows once more, without tuning. Time is wall
time; where others use the machine too, `--clock cpu` counts the processor's seconds instead, on both sides.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path

from peers.match import PAIRS, Case, Match, Options, Result
from peers.metaschedule import CLOCKS, RULES
from rich.console import Console
from rich.table import Table

from heron_asp import resolve_target
from heron_asp.errors import HeronError
from heron_asp.host import require_host
from heron_asp.measure.result import Status
from heron_asp.store import write_whole
from heron_asp.task import available_threads


def load_cases(file: Path, only: Sequence[str]) -> list[Case]:
    """The cases of a file, or those of them that are named.

    Raises:
        HeronError: a name is not among them.
    """
    cases = [Case(**row) for row in tomllib.loads(file.read_text())["cases"]]
    known = [case.name for case in cases]
    for name in only:
        if name not in known:
            raise HeronError(f"--only {name}: no such case in {file}", f"one of {', '.join(known)}")
    return [case for case in cases if not only or case.name in only]


def opened(out: Path, options: Options) -> Path:
    """The folder of the rows, made or continued.

    Raises:
        HeronError: its rows were made with other options.
    """
    file = out / "options.json"
    (out / "rows").mkdir(parents=True, exist_ok=True)
    if not file.exists():
        write_whole(file, asdict(options))
    elif (made := json.loads(file.read_text())) != asdict(options):
        different = [f"{key} {made.get(key)}, asked {value}" for key, value in asdict(options).items()
                     if made.get(key) != value]  # fmt: skip
        raise HeronError(f"{out} holds rows of other options: {'; '.join(different)}", "give another --out")
    return out / "rows"


def recorded(file: Path) -> Result | None:
    """A row that is kept and has no error."""
    if not file.exists():
        return None
    result = Result(**json.loads(file.read_text()))
    return None if result.error else result


def print_results(results: Sequence[Result]) -> None:
    """The table, what is not in it, and the geometric means."""
    table = Table("case", "threads", "rules", "ours", "theirs", "valid", "valid", "s/trial", "s/trial",
                  "trials", "our time", "their time")  # fmt: skip
    notes = []
    for result in results:
        table.add_row(
            result.case, str(result.threads), result.rules,
            *(f"{result.gops[side]:.0f}" if side in result.gops else "" for side in ("ours", "theirs")),
            *(valid(statuses) for statuses in (result.ours, result.theirs)),
            *(f"{seconds / sum(statuses.values()):.2f}" if statuses else ""
              for seconds, statuses in ((result.our_seconds, result.ours), (result.their_seconds, result.theirs))),
            *(f"{result.ratios[name]:.2f}" if name in result.ratios else "" for name in PAIRS),
        )  # fmt: skip
        where = f"{result.case}, threads {result.threads}, {result.rules}"
        if result.ours:
            notes.append(f"{where}: {result.in_our_time} trials of theirs in our time of {result.our_seconds:.0f} s, "
                         f"{result.in_their_time} of ours in theirs of {result.their_seconds:.0f} s (they took "
                         f"{result.these_seconds:.0f} s)")  # fmt: skip
        bad = {key: many for key, many in result.theirs.items() if key != Status.CORRECT}
        if bad:
            notes.append(f"{where}: failed trials of theirs: {bad}")
        if result.error:
            notes.append(f"{where}: {result.error}")
    console = Console(width=130)
    console.print("GOP/s, valid trials and seconds a trial: ours, then theirs; the ratios are ours by theirs")
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
    for said, ratios in sorted(by_rules(results).items()):
        mean = prod(ratios) ** (1 / len(ratios))
        console.print(f"{said}: geometric mean of {len(ratios)}: {mean:.2f}, from {min(ratios):.2f} to "
                      f"{max(ratios):.2f}")  # fmt: skip


def by_rules(results: Sequence[Result]) -> dict[str, list[float]]:
    """The ratios of all cases for each set of rules, and against the better of them where a case has all of them."""
    gathered: dict[str, list[float]] = {}
    sets = list(dict.fromkeys(result.rules for result in results))
    for name in PAIRS:
        rows: dict[tuple[str, int], list[float]] = {}
        for result in results:
            if name in result.ratios:
                gathered.setdefault(f"{result.rules}, equal {name}", []).append(result.ratios[name])
                rows.setdefault((result.case, result.threads), []).append(result.ratios[name])
        whole = [min(ratios) for ratios in rows.values() if len(ratios) == len(sets)]
        if whole and len(sets) > 1:
            gathered[f"the better of {' and '.join(sets)}, equal {name}"] = whole
    return gathered


def valid(statuses: dict[str, int]) -> str:
    """Correct trials of all."""
    return f"{statuses.get(Status.CORRECT, 0)}/{sum(statuses.values())}" if statuses else ""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4", help="a machine's name or file")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, available_threads()}))
    parser.add_argument("--rules", nargs="*", choices=RULES, default=list(RULES))
    parser.add_argument("--cases", type=Path, default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("--only", nargs="*", default=[], help="names of cases")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="MetaSchedule's candidates between two updates")
    parser.add_argument("--warmup", type=int, default=64, help="trials before its cost model is asked")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of a run of MetaSchedule (%(default)s)")
    parser.add_argument("--again", action="store_true", help="time the programs of rows that are there once more")
    parser.add_argument("--out", type=Path, default=Path("runs/metaschedule"))
    return parser.parse_args()


def main() -> None:
    """Tunes by both, compares, keeps and prints the rows."""
    said = arguments()
    require_host(resolve_target(said.target))
    options = Options(
        said.target, said.trials, said.rounds, said.seed, said.batch, said.warmup, said.clock, said.timeout
    )
    out = said.out.resolve()
    rows = opened(out, options)
    results = []
    for threads in said.threads:
        for case in load_cases(said.cases, said.only):
            match = Match(case, threads, options, out)
            for rules in said.rules:
                file = rows / f"{case.name}-t{threads}-{rules}.json"
                result = None if said.again else recorded(file)
                if result is None:
                    result = match.result(rules)
                    write_whole(file, asdict(result))
                print(f"{file.stem}: {result.ratios or result.error}", file=sys.stderr)
                results.append(result)
    print_results(results)


if __name__ == "__main__":
    try:
        main()
    except HeronError as error:
        sys.exit(str(error))
