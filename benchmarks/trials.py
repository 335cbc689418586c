"""How many trials a second tuning makes, and where their time goes.

python benchmarks/trials.py -t zen4 --trials 64

Building overlaps with building, so the parts add up to more than a trial; nothing overlaps with running. Processor time
is what compares on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from heron_asp import LocalDevice, RunDirectory, Task, TuneOptions, operator, resolve_target
from heron_asp.host import require_host
from heron_asp.operators import parse_shape
from heron_asp.tuning import TuningRun

SHAPES = ["m=64,n=64,k=64", "m=1,n=1024,k=1024", "m=512,n=768,k=3072", "m=1024,n=1024,k=2048"]


def main() -> None:
    """Prints a line a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--shapes", nargs="*", default=SHAPES)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--dtype", default="u8s8s32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=64)
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    require_host(target)
    table = Table("gemm", "best", "trials a second", "ms a trial", "of processor time", "building", "running")
    for shape in arguments.shapes:
        task = Task(operator("gemm", parse_shape(shape), arguments.dtype), target, arguments.threads)
        with tempfile.TemporaryDirectory() as folder:
            run = TuningRun(task, LocalDevice(task), TuneOptions(arguments.trials), RunDirectory(Path(folder) / "run"))
            run.open(resume=False)
            start, before = time.monotonic(), sum(os.times()[:4])
            made = run.advance(arguments.trials)
            seconds, processor = time.monotonic() - start, sum(os.times()[:4]) - before
            run.close()
        table.add_row(
            shape,
            f"{1e6 * (run.best or 0.0):.1f} us",
            f"{made / seconds:.1f}",
            *(
                f"{1e3 * part:.0f}"
                for part in (
                    seconds / made,
                    processor / made,
                    mean(measurement.build_seconds for _, measurement in run.done),
                    mean(measurement.run_seconds for _, measurement in run.done),
                )
            ),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
