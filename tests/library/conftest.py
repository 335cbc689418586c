"""An exported library with kernels of every operator, and ways to call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from heron_asp.child import Report, run_in_child
from heron_asp.errors import MissingError
from heron_asp.library import CCompiler, Manifest, Tuned, export_tuned, find_compiler
from heron_asp.library.call import SharedLibrary
from heron_asp.library.interface import Interface
from heron_asp.operators import Operator, operator
from heron_asp.target import Target
from heron_asp.task import Task
from heron_asp.terms import parse

NAME = "probe"
IMAGE = {"n": 1, "h": 8, "w": 7, "ci": 12, "co": 32, "kh": 3, "kw": 3}
Work = Callable[[SharedLibrary], object]


def sampled(
    target: Target,
    name: str,
    dtype: str | None = None,
    threads: int = 1,
    pins: str = "",
    plain: bool = False,
    layout: str | None = None,
    epilogue: str = "",
    **shape: int,
) -> Tuned:
    """A random program, as if tuning had found it: `pins` are `variable=value; ...`, `plain` avoids all intrinsics."""
    task = Task(operator(name, shape, dtype, layout, epilogue), target, threads, relaxed=["vector"] if plain else [])
    pinned = dict(pin.split("=") for pin in pins.split("; ") if pin)
    values = {parse(variable): frozenset({parse(value)}) for variable, value in pinned.items()}
    parts = [part for part in task.space if not (plain and part.sketch.tensorized)]
    found = [one for part in parts for one in part.sample(1, np.random.default_rng(0), values)]
    assert found, f"no program of {task.operator.label} with {pins}"
    return Tuned(task, found[0], seconds=1e-6, share_of_peak=0.5)


@pytest.fixture(scope="session")
def compiler() -> CCompiler:
    try:
        return find_compiler()
    except MissingError as error:
        pytest.skip(error.message)


@dataclass(frozen=True)
class Exported:
    """An exported library."""

    folder: Path
    manifest: Manifest

    @property
    def file(self) -> Path:
        return self.folder / self.manifest.library

    def call(self, work: Work) -> object:
        """Calls the library in a child process, so that no crash and no thread of it meets other tests."""
        outcome = run_in_child(lambda report: _work(self.file, work, report), [60.0])
        assert outcome.value("error") is None, outcome.value("error")
        assert outcome.signal == 0, f"killed by signal {outcome.signal}: {outcome.stderr}"
        assert not outcome.timed_out
        return outcome.value("result")


def _work(file: Path, work: Work, report: Report) -> None:
    report("result", work(SharedLibrary(file, file.stem.removeprefix("lib"))))


PROGRAMS: tuple[dict[str, object], ...] = (
    {"name": "gemm", "m": 64, "n": 64, "k": 64},
    {"name": "gemm", "m": 64, "n": 64, "k": 64, "threads": 2, "pins": "fused(c, task)=4"},
    {"name": "gemm", "m": 17, "n": 33, "k": 9},
    {"name": "gemm", "m": 128, "n": 64, "k": 64, "threads": 2, "pins": "fused(c, task)=2"},
    {"name": "gemm", "m": 12, "n": 40, "k": 30, "dtype": "bf16bf16f32"},
    {"name": "gemv", "m": 100, "k": 90},
    {"name": "batch_matmul", "batch": 3, "m": 10, "n": 24, "k": 12},
    {"name": "batch_matmul", "batch": 1, "m": 8, "n": 2048, "k": 1024, "pins": "position(pack(b))=root"},
    {"name": "conv2d", **IMAGE, "padding": 1},
    {"name": "conv2d", **IMAGE, "n": 2, "h": 5, "w": 9, "padding": 1},
    {"name": "conv2d", **IMAGE, "stride_w": 2, "padding_left": 1, "groups": 2},
    {"name": "conv2d", **IMAGE, "padding": 1, "layout": "channels-first"},
    {"name": "conv2d", **IMAGE, "dtype": "bf16bf16f32"},
    {"name": "conv2d", **IMAGE, "padding": 1, "epilogue": "bias,add,clip=-1:6"},
    {"name": "conv2d", **IMAGE, "layout": "channels-first", "epilogue": "bias,requantize=u8:per-channel"},
    {"name": "gemm", "m": 9, "n": 20, "k": 30, "threads": 2, "epilogue": "bias,requantize=s8"},
    {"name": "conv1d", "n": 1, "w": 30, "ci": 8, "co": 24, "kw": 3, "dilation": 2},
    {"name": "conv3d", "n": 1, "d": 4, "h": 5, "w": 6, "ci": 8, "co": 16, "kd": 2, "kh": 3, "kw": 3, "padding_w": 1},
    {
        "name": "conv2d_transposed",
        "n": 1,
        "h": 5,
        "w": 6,
        "ci": 8,
        "co": 16,
        "kh": 4,
        "kw": 4,
        "stride": 2,
        "padding": 1,
    },
    {"name": "depthwise_conv2d", "n": 1, "h": 8, "w": 7, "c": 32, "kh": 3, "kw": 3, "padding": 1},
    {"name": "scan", "m": 9, "n": 40, "k": 40},
    {"name": "scan", "m": 17, "n": 40, "k": 40},
    {"name": "mean", "m": 10, "k": 70},
    {"name": "variance", "m": 10, "k": 70},
)


@pytest.fixture(scope="session")
def exported(runnable: Target, compiler: CCompiler, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A library with kernels of every operator for one and two threads."""
    folder = tmp_path_factory.mktemp("library")
    programs = [sampled(runnable, **program) for program in PROGRAMS]  # type: ignore[arg-type]
    return Exported(folder, export_tuned(programs, folder, NAME))


def interface_of(made: Operator) -> Interface:
    return Interface.of(made)
