"""The convolutions of ResNet-18 on VTA: cycles of each after tuning, and of all together.

heron-asp tune --cases benchmarks/vta_resnet18.toml -t vta-pynq --budget 20m --out runs/resnet18
python benchmarks/vta_resnet18.py runs/resnet18

cycles     of the best program, counted by the model of the RTL
bound      share of what no program can beat: one micro-op a cycle, every operand over the 64-bit bus once
total      weighted by how often resnet18_v1 has a layer. The whole network, with its other operators, took
           7,729,601 cycles on the RTL with schedules written by hand (apache/tvm-vta, pull request 30)
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from heron_asp.backends import backend_of
from heron_asp.runs import load_run

PUBLISHED = 7_729_601


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", type=Path, help="directory of tune --cases")
    arguments = parser.parse_args()
    cases = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["cases"]
    total = steps = 0.0
    print(f"{'layer':<6}{'shape':<34}{'count':>6}{'trials':>8}{'cycles':>10}{'bound':>8}")
    for case in cases:
        run = load_run(arguments.session / case["case"])
        task = run.task()
        hertz, bound = backend_of(task.target).clock(task.target), backend_of(task.target).bound(task)
        if hertz is None or bound is None:
            parser.error(f"{arguments.session}: tuned for {task.target.name}, which is no device of VTA")
        cycles, count = run.best()[2] * hertz, case.get("count", 0)
        total, steps = total + count * cycles, steps + count * bound * hertz
        shape = case["shape"]
        said = (
            f"{shape['h']}x{shape['w']}x{shape['ci']} -> {shape['co']}, {shape['kh']}x{shape['kw']}/{shape['stride']}"
        )
        print(
            f"{case['case']:<6}{said:<34}{count:>6}{len(run.trials):>8}{cycles:>10,.0f}{bound * hertz / cycles:>8.1%}"
        )
    print(
        f"total {total:,.0f} cycles, {steps / total:.1%} of the bound; published for the whole network: {PUBLISHED:,}"
    )


if __name__ == "__main__":
    main()
