"""`heron-asp worker`: measures a folder of compiled candidates on this machine's GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heron_asp.cli import common
from heron_asp.errors import ExitCode

NAME = "worker"

Seconds = Annotated[float | None, typer.Option("--limit", help="Seconds for all candidates.", min=0.1)]


def command(
    folder: Annotated[
        Path, typer.Argument(help="Holds jobs.json; results.jsonl is written there.", show_default=False)
    ],
    driver: Annotated[str, typer.Option("--driver", help="The CUDA driver's library.")] = "libcuda.so.1",
    limit: Seconds = None,
    job_limit: Annotated[float, typer.Option("--job-limit", help="Seconds for one candidate.", min=0.1)] = 20.0,
    timing: Annotated[float, typer.Option("--timing", help="Seconds for each timing of one.", min=0.001)] = 0.25,
    pack: Annotated[bool, typer.Option("--pack", help="Only write worker.pyz into the folder, to copy it.")] = False,
    json: common.Json = False,
) -> int:
    """Measure compiled candidates on this machine's GPU. What has a result is skipped; Ctrl-C keeps what is there."""
    from heron_asp.backends.cuda import worker
    from heron_asp.backends.cuda.measured import work_here
    from heron_asp.backends.cuda.worker.options import Options

    options = Options(driver, limit or Options().limit, job_limit, timing)
    if pack:
        sys.stdout.write(f"{worker.pack(folder / worker.FILE)}\n")
        return ExitCode.OK
    found = work_here(folder, options, _say)
    if json:
        common.print_json(found)
    else:
        counts = ", ".join(f"{count} {status}" for status, count in found["status"].items()) or "nothing measured"
        sys.stdout.write(f"{counts}; {found['left']} left; results in {folder / worker.RESULTS}\n")
    return ExitCode.INTERRUPTED if found["interrupted"] else ExitCode.OK


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
