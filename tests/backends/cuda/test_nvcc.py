"""What nvcc makes of a program, what it says where it refuses one, and how many blocks fit."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from heron_asp.backends.cuda.nvcc import (
    CompileError,
    CompileTimeout,
    Multiprocessor,
    Resources,
    Step,
    compile_cubin,
    find_nvcc,
    occupancy,
    read_report,
)
from heron_asp.backends.cuda.program import Kernel
from heron_asp.errors import MissingError

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    800 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 800 bytes cumulative stack size, 360 bytes cmem[0]
ptxas info    : Compile time = 89.035 ms
ptxas info    : Compiling entry function 'first_kernel' for 'sm_90a'
ptxas info    : Function properties for first_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1200 bytes smem
ptxas info    : Compile time = 1.128 ms
"""
SOURCE = """
extern "C" __global__ void reverse(float* a) {
  __shared__ float s[300];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = s[255 - threadIdx.x];
}
extern "C" __global__ void twice(float* a) { a[threadIdx.x] *= 2; }
"""


@pytest.fixture(scope="module")
def nvcc() -> Path:
    try:
        return find_nvcc()
    except MissingError as error:
        pytest.skip(str(error))


def test_each_kernel_has_its_own_numbers() -> None:
    assert read_report(REPORT) == {
        "second": Resources(32, 12, 16, 800, 0, 0),
        "first_kernel": Resources(10, 0, 0, 0, 1200, 1),
    }


def test_a_report_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(CompileError, match="no kernel"):
        read_report("ptxas info    : 0 bytes gmem\n")
    with pytest.raises(CompileError, match="no registers of first_kernel"):
        read_report(REPORT.replace("Used 10 registers", "Used some"))


def test_machine_code_and_resources(nvcc: Path) -> None:
    made = compile_cubin(SOURCE, "sm_80")
    assert made.architecture == "sm_80"
    assert made.cubin[:4] == b"\x7fELF"
    assert set(made.resources) == {"reverse", "twice"}
    assert made.resources["reverse"].static_shared == 1200
    assert made.resources["reverse"].barriers == 1
    assert made.resources["twice"].static_shared == made.resources["twice"].barriers == 0
    assert all(one.registers > 0 and one.spill_stores == one.stack == 0 for one in made.resources.values())


@pytest.mark.parametrize(
    ("source", "architecture", "step", "words"),
    [
        ("int x = nonsense;", "sm_80", Step.FRONT_END, 'line 1: identifier "nonsense" is undefined'),
        ("#include <nothing.h>", "sm_80", Step.FRONT_END, "nothing.h: No such file"),
        (
            'extern "C" __global__ void k(float* a) { asm volatile("blah.f32 %0;" :: "f"(a[0])); }',
            "sm_80",
            Step.ASSEMBLER,
            "Not a name of any known instruction: 'blah'",
        ),
        (
            'extern "C" __global__ void k(float* a) { __shared__ float s[30000];'
            " s[threadIdx.x] = a[0]; __syncthreads(); a[0] = s[3]; }",
            "sm_80",
            Step.ASSEMBLER,
            "uses too much shared data (0x1d4c0 bytes, 0xc000 max)",
        ),
        (SOURCE, "sm_17", Step.DRIVER, "sm_17"),
    ],
)
def test_refusals_name_the_step(source: str, architecture: str, step: Step, words: str, nvcc: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, architecture)
    assert caught.value.step is step
    assert words in caught.value.line


def _executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_where_nvcc_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "site"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingError, match=r"heron-asp\[cuda\]"):
        find_nvcc()
    packaged = _executable(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "")
    assert find_nvcc() == packaged
    home = _executable(tmp_path / "cuda" / "bin" / "nvcc", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert find_nvcc() == home
    first = _executable(tmp_path / "path" / "nvcc", "")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_nvcc() == first


def test_a_compiler_that_hangs_ends_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _executable(tmp_path / "nvcc", f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CompileTimeout, match="after 1 seconds"):
        compile_cubin(SOURCE, "sm_80", timeout=1)
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


A100 = Multiprocessor(registers=65536, shared_bytes=164 * 1024, threads=2048, blocks=32, reserved_shared=1024)


@pytest.mark.parametrize(
    ("threads", "registers", "static", "dynamic", "blocks"),
    [
        (256, 32, 0, 0, 8),  # threads: 2048 / 256
        (32, 16, 0, 0, 32),  # blocks
        (256, 64, 0, 0, 4),  # registers: 2048 a warp, 8 warps in each quarter
        (256, 65, 0, 0, 3),  # 2304 a warp, 7 in each quarter, 28 in all
        (96, 144, 0, 0, 4),  # 4608 a warp, 3 in each quarter, 12 in all
        (928, 124, 0, 0, 0),  # 29 warps count as 32 of 4096
        (1024, 64, 0, 0, 1),
        (1024, 65, 0, 0, 0),
        (128, 32, 0, 40 * 1024, 4),  # 41 KiB each with what is reserved
        (128, 32, 1, 40 * 1024, 3),  # rounded up to the next 128 bytes
        (128, 32, 0, 163 * 1024, 1),
        (128, 32, 0, 163 * 1024 + 1, 0),
        (19, 167, 0, 0, 12),  # part of a warp takes all of it
    ],
)
def test_occupancy(threads: int, registers: int, static: int, dynamic: int, blocks: int) -> None:
    """Figures of CUDA's own calculator (cuda_occupancy.h) for a multiprocessor of compute capability 8.0."""
    kernel = Kernel("k", (1, 1, 1), (threads, 1, 1), dynamic, static, ())
    assert occupancy(kernel, Resources(registers, 0, 0, 0, static, 0), A100) == blocks
