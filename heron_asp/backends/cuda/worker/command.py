"""The command line of the worker, of the parent and of the process that it starts."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from math import inf
from pathlib import Path
from typing import Any

from .options import INTERRUPTED, Options, WorkerError
from .parent import read, work

_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


def main() -> None:
    """Measures the candidates of a folder and exits."""
    usual = Options()
    parser = argparse.ArgumentParser(prog="worker", description="Measures compiled candidates on a GPU.")
    parser.add_argument("folder", type=Path, help="holds jobs.json; results.jsonl is written there")
    parser.add_argument("--driver", default=usual.driver, help="the CUDA driver's library [%(default)s]")
    parser.add_argument("--limit", type=_seconds, default=usual.limit, help="seconds for all candidates")
    parser.add_argument("--job-limit", type=_seconds, default=usual.job_limit, help="seconds for one [%(default)s]")
    parser.add_argument("--timing", type=_seconds, default=usual.timing, help="seconds for a timing [%(default)s]")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    options = Options(given.driver, given.limit, given.job_limit, given.timing)
    if given.serve:
        _serve(given.folder, options)
    try:
        found = work(given.folder, options, [sys.executable, sys.argv[0]], lambda line: _say(sys.stderr, line))
    except WorkerError as error:
        _say(sys.stderr, f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
        sys.exit(error.code)
    _say(sys.stdout, json.dumps(found))
    sys.exit(INTERRUPTED if found["interrupted"] else 0)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= inf:
        raise ValueError(text)
    return value


def _say(stream: Any, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


def _serve(folder: Path, options: Options) -> None:
    """Measures the candidates whose numbers come in; never returns."""
    from .bench import Bench  # and numpy, which the parent does without

    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no line of ours
    try:
        jobs = read(folder)
        bench = Bench(folder, jobs, options)
    except WorkerError as error:
        _say(channel, json.dumps({"error": error.message, "hint": error.hint, "code": error.code}))
        os._exit(error.code)
    _say(channel, json.dumps({"device": bench.facts}))
    for line in sys.stdin:
        row, usable = bench.measure(jobs["candidates"][int(line)])
        _say(channel, json.dumps({**row, "lost": not usable}))
        if not usable:
            break
    os._exit(0)  # without the driver's own ending, which may wait for what will not end
