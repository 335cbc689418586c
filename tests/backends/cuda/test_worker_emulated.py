"""The worker on real kernels: the fake driver's cubins are programs of TVM's that the emulator has compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_asp.backends.cuda.emulator import compile_program
from heron_asp.backends.cuda.jobs import Data, Entry, Expected, Problem, write_jobs
from heron_asp.backends.cuda.measured import Local, run_jobs
from heron_asp.backends.cuda.program import Use
from heron_asp.backends.cuda.worker.options import Options
from heron_asp.measure.result import Status
from tests.cuda_kernels import Gemm, gemm_case

KERNELS = {
    "wmma": Gemm(),
    "cp.async": Gemm(stages=3),
    "mma.sync": Gemm(mma=True),
}


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """Right kernels, and the first of them without its barriers."""
    folder = tmp_path_factory.mktemp("emulated")
    programs = {name: gemm_case(gemm).program for name, gemm in KERNELS.items()}
    first = programs["wmma"]
    assert "__syncthreads();" in first.source
    programs["no barriers"] = replace(first, source=first.source.replace("__syncthreads();", ";"))
    return [Entry(name, program, compile_program(program, folder).library) for name, program in programs.items()]


def test_real_kernels_are_checked_and_timed(entries: list[Entry], fake_driver: Path, tmp_path: Path) -> None:
    case = gemm_case(KERNELS["wmma"])
    buffers = tuple(one for one in case.program.buffers if one.use is not Use.SCRATCH)
    (output,) = (one.name for one in buffers if one.use is Use.OUTPUT)
    data = Data("small", case.arrays, {output: Expected(next(iter(case.expected.values())))})
    write_jobs(tmp_path, Problem("gemm", "sm_80", buffers, [data]), entries)
    found = {one.name: one for one in run_jobs(tmp_path, Local(), Options(str(fake_driver), timing=0.001)).candidates}
    for name in KERNELS:
        assert (found[name].status, found[name].error) == (Status.CORRECT, ""), name
        assert found[name].warm, name
    assert found["no barriers"].status in (Status.CORRECTNESS, Status.RUNTIME)
    assert found["no barriers"].error
