"""Does the space of VTA hold just what runs? Every assignment of the knobs, no constraint asked, against the space.

    python benchmarks/vta_completeness.py                every problem; exits with 1 on any failure
    python benchmarks/vta_completeness.py --most 500     fewer assignments of each sketch

On a device with memories of a few entries (vta_small.toml) the knobs range freely: all tilings of every extent, all
places of copies, one or two buffers, all orders. An assignment is valid if a program can be made of it that fits the
memories, passes the checker and computes the right result. The space's rules of thumb are lifted.

    tried     assignments, all or a random choice
    valid     of them
    space     assignments that the space holds: all are tried
    missing   valid ones whose program the space does not hold in any form: a failure (recall below 1)
    wrong     of the space, that are not valid: a failure (precision below 1)
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from heron_asp.backends.vta.completeness import examine
from heron_asp.operators import operator
from heron_asp.target import load_target
from heron_asp.task import Task

PROBLEMS = (
    ("gemm", {"m": 4, "n": 8, "k": 8}),
    ("gemm", {"m": 3, "n": 7, "k": 9}),
    ("conv1d", {"n": 2, "w": 3, "ci": 8, "co": 4, "kw": 2, "padding": 1}),
)
LIFTED = ("overhead", "awkward")


def main() -> None:
    """Tries, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1 << 30, help="assignments of a sketch")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of assignments")
    arguments = parser.parse_args()
    target = load_target(Path(__file__).with_name("vta_small.toml"))
    print(f"{'problem':<48}{'tried':>8}{'valid':>8}{'space':>8}{'missing':>9}{'wrong':>7}{'s':>6}")
    failed = False
    for name, shape in PROBLEMS:
        begin = time.monotonic()
        usual = target.shared.defaults
        task = Task(operator(name, shape, usual.dtype, None, usual.epilogue), target, relaxed=LIFTED)
        found = examine(task, arguments.most, arguments.seed)
        label = f"{name} {','.join(f'{key}={value}' for key, value in shape.items())}"
        print(f"{label:<48}{found.tried:>8}{found.valid:>8}{found.members:>8}{len(found.missing):>9}"
              f"{len(found.wrong):>7}{time.monotonic() - begin:>6.0f}", flush=True)  # fmt: skip
        for values in found.missing[:3]:
            print("  FAILURE: missing", {str(knob): value for knob, value in values.items()})
        for values, error in found.wrong[:3]:
            print(f"  FAILURE: {error}:", {str(knob): value for knob, value in values.items()})
        failed |= bool(found.missing or found.wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
