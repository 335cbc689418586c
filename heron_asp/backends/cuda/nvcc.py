"""Compiles CUDA C++ for a device with nvcc, and reads what it will occupy there. No GPU is needed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from heron_asp.backends.cuda.program import Kernel
from heron_asp.errors import HeronError, MissingError

_WARP = 32
_REGISTER_UNIT = 256  # registers are given to a warp in units of this many (CUDA's cuda_occupancy.h, as all below)
_SHARED_UNIT = 128  # bytes, from compute capability 8.0 on
_PARTITIONS = 4  # of a multiprocessor, each with a quarter of the registers and of the warps


class Step(StrEnum):
    """What refuses a program."""

    DRIVER = "nvcc"  # the architecture, or an option
    FRONT_END = "the front end"
    ASSEMBLER = "ptxas"


class CompileError(HeronError):
    """A program that nvcc refuses.

    Args:
        step: which part of it.
        line: what it says first.
    """

    def __init__(self, step: Step, line: str) -> None:
        super().__init__(f"{step} refuses the CUDA source: {line}")
        self.step = step
        self.line = line


class CompileTimeout(HeronError):  # noqa: N818 - of the name's taste: TimeoutExpired
    """A program that nvcc does not compile in time."""


@dataclass(frozen=True)
class Resources:
    """What a kernel takes, as ptxas reports it.

    Attributes:
        registers: of a thread.
        spill_stores: bytes that a thread stores for want of registers.
        spill_loads: bytes that it loads again.
        stack: bytes of a thread's stack frame; arrays that are indexed by variables lie there too.
        static_shared: bytes of shared memory that the source declares with a size.
        barriers: that the kernel uses.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_shared: int
    barriers: int


@dataclass(frozen=True)
class Compiled:
    """A program for one architecture.

    Attributes:
        architecture: such as `sm_80`.
        cubin: the machine code of all kernels.
        resources: of each kernel, by its name.
    """

    architecture: str
    cubin: bytes = field(repr=False)
    resources: dict[str, Resources]


@dataclass(frozen=True)
class Multiprocessor:
    """What the blocks that run on a multiprocessor at a time share.

    Attributes:
        registers: of 32 bits.
        shared_bytes: of shared memory, what is reserved included.
        threads: at most.
        blocks: at most.
        reserved_shared: bytes of shared memory that the system takes of each block, 1024 from capability 8.0 on.
    """

    registers: int
    shared_bytes: int
    threads: int
    blocks: int
    reserved_shared: int


def find_nvcc() -> Path:
    """The compiler: on the PATH, below $CUDA_HOME or $CUDA_PATH, or of the packages of the extra `cuda`.

    Raises:
        MissingError: it is in none of these places.
    """
    for candidate in _places():
        if os.access(candidate, os.X_OK):
            return candidate
    raise MissingError("nvcc is not on this machine", "pip install 'heron-asp[cuda]', or put CUDA's bin on the PATH")


def _places() -> Iterator[Path]:
    if found := shutil.which("nvcc"):
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin" / "nvcc"
    yield Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"


def compile_cubin(source: str, architecture: str, timeout: float = 120.0) -> Compiled:
    """Compiles CUDA C++ to machine code.

    Args:
        source: of one or more `extern "C"` kernels.
        architecture: such as `sm_80`.
        timeout: seconds.

    Raises:
        MissingError: there is no nvcc.
        CompileError: nvcc refuses the source.
        CompileTimeout: it took longer.
    """
    with tempfile.TemporaryDirectory(prefix="heron_asp_nvcc_") as folder:
        written, made = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        written.write_text(source)
        options = ["-cubin", "-O3", "-w", f"-arch={architecture}", "-Xptxas", "-v"]
        code, report = _run([str(find_nvcc()), *options, "-o", str(made), str(written)], timeout)
        if code:
            raise _refusal(report)
        return Compiled(architecture, made.read_bytes(), read_report(report))


def _run(command: list[str], timeout: float) -> tuple[int, str]:
    """The exit code and all that was printed; nvcc starts others, which end with it."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            report, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CompileTimeout(f"nvcc was not done after {timeout:g} seconds") from None
            raise
    return process.returncode, report


def _refusal(report: str) -> CompileError:
    patterns = (
        (Step.DRIVER, r"^nvcc (?:fatal|error)\s*: (.*)"),
        (Step.FRONT_END, r"^\S*kernel\.cu(\(\d+\): error.*)"),
        (Step.FRONT_END, r"^(.*(?:fatal )?error: .*)"),
        (Step.ASSEMBLER, r"^ptxas.*(?:error|fatal)\s*: (.*)"),
    )
    for step, pattern in patterns:
        if match := re.search(pattern, report, re.MULTILINE):
            return CompileError(step, re.sub(r"^\((\d+)\): error: ", r"line \1: ", match[1].strip()))
    return CompileError(Step.DRIVER, report.strip()[-300:])


def read_report(report: str) -> dict[str, Resources]:
    """What `ptxas -v` says about each kernel.

    Raises:
        CompileError: it says nothing that could be read.
    """
    sections = re.split(r"^ptxas info\s*: Compiling entry function '(\w+)'.*$", report, flags=re.MULTILINE)
    found = {name: _resources(name, text) for name, text in zip(sections[1::2], sections[2::2], strict=True)}
    if not found:
        raise CompileError(Step.ASSEMBLER, f"no kernel in its report: {report.strip()[-300:]}")
    return found


def _resources(name: str, text: str) -> Resources:
    def number(pattern: str) -> int | None:
        match = re.search(pattern, text)
        return int(match[1]) if match else None

    registers = number(r"Used (\d+) registers")
    if registers is None:
        raise CompileError(Step.ASSEMBLER, f"no registers of {name} in its report: {text.strip()[-300:]}")
    return Resources(
        registers=registers,
        spill_stores=number(r"(\d+) bytes spill stores") or 0,
        spill_loads=number(r"(\d+) bytes spill loads") or 0,
        stack=number(r"(\d+) bytes stack frame") or 0,
        static_shared=number(r"(\d+) bytes smem") or 0,
        barriers=number(r"used (\d+) barriers") or 0,
    )


def occupancy(kernel: Kernel, resources: Resources, limits: Multiprocessor) -> int:
    """How many blocks of a kernel run on a multiprocessor at a time; 0 if not even one does.

    The rules are those of CUDA's occupancy calculator: registers are given to whole warps, out of the quarter of the
    multiprocessor that runs them; shared memory is rounded up and includes what the system reserves.
    """
    warps = -(-kernel.threads // _WARP)
    return min(
        _by_registers(warps, resources.registers, limits.registers),
        _by_shared(kernel, resources, limits),
        limits.threads // (warps * _WARP),
        limits.blocks,
    )


def _by_registers(warps: int, registers: int, limit: int) -> int:
    if registers == 0:
        return limit
    per_warp = _rounded(registers * _WARP, _REGISTER_UNIT)
    if per_warp * _rounded(warps, _PARTITIONS) > limit:  # a launch is refused as if all quarters were filled alike
        return 0
    return limit // _PARTITIONS // per_warp * _PARTITIONS // warps


def _by_shared(kernel: Kernel, resources: Resources, limits: Multiprocessor) -> int:
    static = max(resources.static_shared, kernel.static_shared)
    taken = _rounded(static + kernel.dynamic_shared + limits.reserved_shared, _SHARED_UNIT)
    return limits.shared_bytes // taken if taken else limits.blocks


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit
