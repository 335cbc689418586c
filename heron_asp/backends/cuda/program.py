"""A program for a GPU: CUDA C++, the kernels that are launched in turn, the buffers that they read and write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import prod

Dim3 = tuple[int, int, int]


class Use(StrEnum):
    """What a buffer is to the caller of a program."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"  # between two kernels; its contents before and after mean nothing


@dataclass(frozen=True)
class Buffer:
    """A buffer in global memory, row-major and contiguous.

    Attributes:
        name: unique in its program.
        storage: TVM's name of an element's type: `float16`, `bfloat16`, `float32`, `int8`, `int32`.
        shape: extents, in elements.
        use: what it is to the caller.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    use: Use

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        bits = int(re.sub(r"\D+", "", self.storage))
        return prod(self.shape) * bits // 8


@dataclass(frozen=True)
class Kernel:
    """One launch.

    Attributes:
        name: of the `extern "C" __global__` function.
        grid: blocks along x, y and z.
        block: threads of a block along x, y and z.
        dynamic_shared: bytes of dynamic shared memory that the launch asks for.
        static_shared: bytes of shared memory that the source declares with a size.
        arguments: names of buffers, in the order of the function's parameters.
    """

    name: str
    grid: Dim3
    block: Dim3
    dynamic_shared: int
    static_shared: int
    arguments: tuple[str, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)


@dataclass(frozen=True)
class Program:
    """What is compiled, emulated, measured and exported.

    Attributes:
        source: CUDA C++ of all kernels, as TVM prints it.
        kernels: in the order in which they are launched, each after the end of the one before.
        buffers: all that the kernels' arguments name.
    """

    source: str
    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
