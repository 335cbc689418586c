"""Runs CUDA C++ on the CPU: what says whether a program is right where there is no GPU, and why where it is not.

Threads of a block are fibers that take turns; blocks run one after the other. Found are wrong results; accesses out of
bounds of buffers, shared memory and local arrays; vectors, fragments and copies at addresses that do not suit them;
barriers and warp-wide instructions that not all threads reach alike; results that depend on the order of threads, or on
when an asynchronous copy is done; shared memory and registers that are read before they are written; endless loops.

Not found: what depends on a device's weaker order of memory within a phase between two barriers, bank conflicts,
limits of a device (registers, shared memory). Products of a tile are added up from first to last in single precision;
a device may add them in another order and with more bits.
"""

from __future__ import annotations

from heron_asp.backends.cuda.emulator.build import prepare
from heron_asp.backends.cuda.emulator.emulated import Copies, Emulated, Order, compile_program, schedules, verify
from heron_asp.backends.cuda.emulator.error import EmulationError, UnsupportedError
from heron_asp.backends.cuda.emulator.memory import dtype_of, unwritten

__all__ = [
    "Copies",
    "Emulated",
    "EmulationError",
    "Order",
    "UnsupportedError",
    "compile_program",
    "dtype_of",
    "prepare",
    "schedules",
    "unwritten",
    "verify",
]
