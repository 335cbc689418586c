"""Folders of candidates that the fake driver runs: products of 16x16 matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from heron_asp.backends.cuda.jobs import Data, Drawn, Entry, Expected, Problem, write_jobs
from heron_asp.backends.cuda.program import Buffer, Kernel, Program, Use
from heron_asp.backends.cuda.worker.data import drawn

SIDE = 16
A, B, C = (
    Buffer(name, "float32", (SIDE, SIDE), use) for name, use in (("a", Use.INPUT), ("b", Use.INPUT), ("c", Use.OUTPUT))
)
HALF = Buffer("half", "float32", (SIDE, SIDE), Use.SCRATCH)
COLD, WARM = 384e-6, 256e-6  # seconds on the fake driver of `kernel_of` with its usual grid


def kernel_of(name: str, grid: int = 1000, arguments: Sequence[str] = ("a", "b", "c"), shared: int = 0) -> Kernel:
    return Kernel(name, (grid, 1, 1), (256, 1, 1), shared, 0, tuple(arguments))


def entry_of(cubin: Path, *kernels: Kernel, name: str = "") -> Entry:
    scratch = (HALF,) if any("half" in kernel.arguments for kernel in kernels) else ()
    program = Program("", kernels, (A, B, C, *scratch))
    return Entry(name or "+".join(kernel.name for kernel in kernels), program, cubin.read_bytes())


def problem(architecture: str = "sm_80") -> Problem:
    """Two cases: one from files, one that is drawn."""
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in "ab")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    whole = [drawn(seed, SIDE * SIDE, -2, 2).reshape(SIDE, SIDE) for seed in (5, 6)]
    places = np.arange(0, SIDE * SIDE, 3)
    picked = (whole[0] @ whole[1]).reshape(-1)[places].astype(np.int16)
    return Problem(
        "product",
        architecture,
        (A, B, C),
        (
            Data("random", {"a": a, "b": b}, {"c": Expected(exact, np.full(exact.shape, 1e-4))}),
            Data("whole", {"a": Drawn(5, -2, 2), "b": Drawn(6, -2, 2)}, {"c": Expected(picked, 0.0, places)}),
        ),
    )


def usual(cubin: Path) -> list[Entry]:
    """Candidates of which three are right."""
    doubled = kernel_of("twice", arguments=("a", "half"))
    ends = [kernel_of(name) for name in ("wrong", "nothing", "beyond", "absent")]
    return [
        entry_of(cubin, kernel_of("product")),
        entry_of(cubin, doubled, kernel_of("product", arguments=("half", "b", "c")), name="doubled"),
        *(entry_of(cubin, kernel) for kernel in ends),
        entry_of(cubin, kernel_of("spoils")),
        entry_of(cubin, kernel_of("large", shared=150 * 1024)),
        entry_of(cubin, kernel_of("huge", shared=200 * 1024)),
    ]


def write(folder: Path, entries: Sequence[Entry], architecture: str = "sm_80") -> Path:
    write_jobs(folder, problem(architecture), entries)
    return folder


def renamed(entry: Entry, name: str) -> Entry:
    return replace(entry, name=name)
