"""Measures on a machine with a GPU that is there for some minutes only: all is made ready before, and read after.

    python benchmarks/gpu_session.py prepare SESSION --cases G1,C1 -t h100 --budget 600
    python benchmarks/gpu_session.py run     SESSION --limit 600       # there: Python 3.8, numpy; torch for the peer
    python benchmarks/gpu_session.py report  SESSION

`prepare` needs no GPU: it takes samples and the best programs of the model, compiles them with nvcc, and writes folders
of jobs with what is needed to check them. `run` needs SESSION and this folder's `gpu_session.py` and `gpu`, nothing
else of heron_asp; it may be called again, and goes on; `--pack FILE.tar` leaves the results in one file. `report` says
how many samples were valid, shows the best program of each case beside cuBLAS or cuDNN (through PyTorch, on the same
data, with the L2 cache cold and warm alike), what the driver says of registers and shared memory beside what the rules
and the compiler said, and how the model ranks programs; it writes SESSION/report.json and report.md.

Operators and shapes are those of `heron_suite.toml`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the machine with the GPU has none of these
    from gpu.prepare import Case, Source

SUITE = Path(__file__).parent / "heron_suite.toml"
LIST = "tensorcore_operators"
USUAL = "G1,G2,G3,B1,C1,C2,C1D1,C3D1"
OFFERS = "gpu.offers:candidates_of"


def candidates_of(name: str) -> Source:
    """What makes the candidates of a case: samples first, then the best of the model; a function in a module.

    Raises:
        HeronError: there is no such function.
    """
    from heron_asp.errors import HeronError

    module, _, function = name.partition(":")
    try:
        found: Source = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise HeronError(f"--offers {name}: {error}", f"MODULE:FUNCTION, e.g. {OFFERS}") from None
    return found


def cases_of(names: Sequence[str], target: str, dtype: str | None) -> list[Case]:
    """Cases of the suite.

    Raises:
        HeronError: there is none of that name, or no such target.
    """
    import tomllib

    from gpu.prepare import Case

    from heron_asp.errors import HeronError
    from heron_asp.host import resolve_target
    from heron_asp.operators import operator
    from heron_asp.resources import suggestion

    tables = {one["case"]: one for one in tomllib.loads(SUITE.read_text())[LIST]}
    for name in names:
        if name not in tables:
            raise HeronError(f"--cases {name}: no such case", suggestion(name, tables))
    machine = resolve_target(target)
    return [
        Case(name, operator(table["operator"], table["shape"], dtype or table["dtype"]), machine)
        for name, table in ((name, tables[name]) for name in names)
    ]


def _prepare(arguments: argparse.Namespace) -> int:
    from gpu.prepare import prepare

    from heron_asp.backends.cuda.nvcc import compile_cubin

    cases = cases_of(arguments.cases.split(","), arguments.target, arguments.dtype)
    source = candidates_of(arguments.offers)
    prepare(arguments.session, cases, source, compile_cubin, arguments.budget, arguments.workers, print)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from gpu.there import pack, run

    code = run(arguments.session, arguments.limit, arguments.driver, not arguments.no_peer)
    if arguments.pack:
        pack(arguments.session, arguments.pack)
    return code


def _report(arguments: argparse.Namespace) -> int:
    from gpu.report import COLUMNS, cells, markdown, notes, report
    from rich.console import Console
    from rich.table import Table

    found = report(arguments.session)
    (arguments.session / "report.json").write_text(json.dumps(found, indent=1))
    (arguments.session / "report.md").write_text(markdown(found))
    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for head, _ in COLUMNS:
        table.add_column(head, justify="left" if head == "case" else "right")
    for row in found["cases"]:
        table.add_row(*cells(row))
    console.print(table)
    for note in notes(found):
        console.print(note)
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """Prepares, runs or reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("prepare", _prepare), ("run", _run), ("report", _report)):
        command = commands.add_parser(name)
        command.add_argument("session", type=Path)
        command.set_defaults(function=function)
        if name == "prepare":
            command.add_argument("--cases", default=USUAL, help="names, with commas between them [%(default)s]")
            command.add_argument("-t", "--target", default="h100", help="the GPU [%(default)s]")
            command.add_argument("--dtype", help="e.g. f16f16f32 [as in the suite]")
            command.add_argument("--budget", type=float, default=600, help="seconds for all [%(default)s]")
            command.add_argument("--workers", type=int, default=os.cpu_count(), help="compiled at once [%(default)s]")
            command.add_argument("--offers", default=OFFERS, help="what makes candidates [%(default)s]")
        if name == "run":
            command.add_argument("--limit", type=float, default=600, help="seconds for all [%(default)s]")
            command.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
            command.add_argument("--pack", type=Path, help="a tar file of all results, to bring them back")
            command.add_argument("--driver", default="libcuda.so.1", help="the CUDA driver's library [%(default)s]")
    arguments = parser.parse_args(given)
    function = arguments.function
    if function is _run:
        return int(function(arguments))
    from heron_asp.errors import HeronError

    try:
        return int(function(arguments))
    except HeronError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return int(error.code)


if __name__ == "__main__":
    sys.exit(main())
