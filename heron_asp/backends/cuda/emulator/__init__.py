"""Runs CUDA C++ on the CPU: what says whether a program is right where there is no GPU, and why where it is not."""

from __future__ import annotations

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
    "schedules",
    "unwritten",
    "verify",
]
