"""Are sampled programs valid? Builds, runs and checks uniform samples of many shapes, odd ones among them.

    python benchmarks/validity.py -t zen4 --samples 20

Prints a line a shape and exits with 1 unless every sample is correct.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import numpy as np

from heron_asp import LocalDevice, Task, operator, resolve_target
from heron_asp.host import require_host
from heron_asp.measure.result import Limits, Status
from heron_asp.task import available_threads

PRODUCTS = [  # m, n, k
    (1, 1, 1), (3, 5, 7), (4, 768, 2048), (127, 127, 127), (1000, 1000, 1000), (1009, 1009, 1009), (1, 1024, 1024),
    (64, 9, 2048), (1, 2048, 8192), (2, 2, 2), (16, 16, 16), (17, 15, 13), (31, 33, 35), (64, 64, 64), (5, 1, 9),
    (1, 1, 4096), (100, 1, 100), (1, 17, 3), (257, 63, 129), (512, 48, 5), (8, 4096, 4), (61, 976, 61),
    (129, 1008, 255), (6, 250, 1021), (384, 384, 384), (1024, 512, 768),
]  # fmt: skip
OTHERS = [
    ("gemm", "bf16bf16f32", {"m": 31, "n": 33, "k": 35}),
    ("gemm", "bf16bf16f32", {"m": 127, "n": 250, "k": 509}),
    ("gemm", "f32f32f32", {"m": 31, "n": 33, "k": 35}),
    ("gemm", "f16f16f32", {"m": 12, "n": 50, "k": 30}),
    ("gemv", "u8s8s32", {"m": 1000, "k": 1000}),
    ("gemv", "u8s8s32", {"m": 1, "k": 1}),
    ("gemv", "bf16bf16f32", {"m": 101, "k": 203}),
    ("batch_matmul", "u8s8s32", {"batch": 5, "m": 31, "n": 33, "k": 35}),
    ("batch_matmul", "u8s8s32", {"batch": 12, "m": 128, "n": 64, "k": 128}),
    ("batch_matmul", "bf16bf16f32", {"batch": 3, "m": 17, "n": 40, "k": 24}),
]


def main() -> None:
    """Samples, verifies, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--target", default="zen4")
    parser.add_argument("--samples", type=int, default=20, help="a shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, available_threads()])
    arguments = parser.parse_args()
    target = resolve_target(arguments.target)
    require_host(target)
    cases = [("gemm", "u8s8s32", {"m": m, "n": n, "k": k}) for m, n, k in PRODUCTS] + OTHERS
    total: Counter[str] = Counter()
    for number, (name, dtype, shape) in enumerate(cases):
        threads = arguments.threads[number % len(arguments.threads)]
        task = Task(operator(name, shape, dtype), target, threads)
        device = LocalDevice(task, Limits(repeats=1, repeat_ms=1))
        found: Counter[str] = Counter()
        for candidate in task.space.sample(arguments.samples, np.random.default_rng(arguments.seed)):
            measured = device.measure(candidate)
            found[str(measured.status)] += 1
            if measured.status is not Status.CORRECT:
                print(f"  {candidate.key}\n  {measured.status}: {measured.error}")
        total += found
        print(f"{task.operator.label:<52} threads {threads}  {task.space.size:>9} programs  {dict(found)}", flush=True)
    print(f"{total['correct']} of {sum(total.values())} samples of {len(cases)} shapes are correct")
    sys.exit(0 if total["correct"] == sum(total.values()) else 1)


if __name__ == "__main__":
    main()
