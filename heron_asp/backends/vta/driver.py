"""Runs programs on a user's own VTA library (functional simulator, RTL simulator or board) through VTA's C driver API.

The library runs in a child process with a time-out: a program that waits for a token that never comes makes the public
functional simulator spin for ever, and an assertion ends the process. The library must be ready to run by itself: an
RTL simulator that wants to be told its hardware model needs a small library of the user's own around it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from heron_asp.backends.vta.config import Configuration
from heron_asp.backends.vta.encode import encode_program
from heron_asp.backends.vta.functional import Bytes
from heron_asp.backends.vta.isa import Instruction, Memory, Transfer, carries_only_tokens
from heron_asp.errors import HeronError, MissingError

VARIABLE = "HERON_ASP_VTA_LIBRARY"
MOST_BYTES = 32 << 20  # VTA_MAX_XFER of driver.h
_CHILD = "heron_asp.backends.vta.device"
_ROOT = Path(__file__).parents[3]  # where the child finds this package, installed or not
_SHOWN = 2000  # characters of the library's own messages


def find_library(option: str | None = None) -> list[Path]:
    """The libraries to load, the driver last; those before it are what it depends on.

    Args:
        option: a path, or several joined by the separator of PATH; without it, the environment variable is asked.

    Raises:
        MissingError: if none is named or a file is not there.
    """
    text = option or os.environ.get(VARIABLE, "")
    if not text:
        raise MissingError(
            "no VTA library is named", f"Give --vta-library or set {VARIABLE} to libvta_fsim.so or a board's libvta.so."
        )
    paths = [Path(part) for part in text.split(os.pathsep) if part]
    for path in paths:
        if not path.is_file():
            raise MissingError(
                f"{path} (from {'--vta-library' if option else VARIABLE}) is no file",
                f"Several libraries are joined by '{os.pathsep}', the driver last.",
            )
    return paths


def relocate(instructions: Sequence[Instruction], config: Configuration, base: int) -> list[Instruction]:
    """A program whose DRAM image begins at physical address `base` instead of 0.

    Raises:
        HeronError: if `base` is no multiple of an element that is moved.
    """
    moved = []
    for number, instruction in enumerate(instructions):
        if isinstance(instruction, Transfer) and not carries_only_tokens(instruction):
            size = config.element_bytes(instruction.memory_type)
            if base % size:
                name = instruction.memory_type.name
                raise HeronError(f"instruction {number}: address {base} is no multiple of the {size} bytes of {name}")
            instruction = replace(instruction, dram_base=instruction.dram_base + base // size)
        moved.append(instruction)
    return moved


def alignment(config: Configuration) -> int:
    """What the physical address of an image must be a multiple of, so that every element can be addressed."""
    return max(config.element_bytes(memory) for memory in Memory)


def run_on_library(
    libraries: Sequence[Path],
    instructions: Sequence[Instruction],
    memory: Bytes,
    config: Configuration,
    timeout: float = 60.0,
    wait_cycles: int = 100_000_000,
) -> Bytes:
    """Runs a program and returns the DRAM image afterwards.

    Args:
        libraries: shared libraries, the one with VTA's driver functions last.
        instructions: the program, addressed as if the image began at 0. It should have passed `check`.
        memory: the DRAM image before; not changed.
        config: the device that the library was built for.
        timeout: seconds of the child process.
        wait_cycles: what a board's driver waits at most, in its own unit.

    Raises:
        HeronError: if the image is too large, time runs out, or the library fails, with what it said.
    """
    if len(memory) > MOST_BYTES:
        raise HeronError(
            f"the image has {len(memory)} bytes; VTA's drivers allocate at most {MOST_BYTES} contiguous ones",
            "Use a smaller operator.",
        )
    with tempfile.TemporaryDirectory(prefix="heron-asp-vta-") as name:
        folder = Path(name)
        (folder / "memory").write_bytes(memory.tobytes())
        (folder / "program").write_bytes(encode_program(instructions, config))
        request = {
            "libraries": [str(path.resolve()) for path in libraries],
            "config": config.model_dump(),
            "wait_cycles": wait_cycles,
        }
        (folder / "request").write_text(json.dumps(request))
        _run_child(folder, timeout)
        return np.frombuffer((folder / "result").read_bytes(), np.uint8).copy()


def _run_child(folder: Path, timeout: float) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHILD, str(folder)],
            capture_output=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))},
        )
    except subprocess.TimeoutExpired as error:
        raise HeronError(
            f"the VTA library did not end within {timeout:g} s",
            "A missing token makes it wait for ever; the checker finds those. Long programs need a larger --timeout.",
        ) from error
    said = done.stderr.decode(errors="replace")[-_SHOWN:].strip()
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise HeronError(f"the VTA library ended with {name}", said or "It said nothing.")
    if done.returncode or not (folder / "result").is_file():
        raise HeronError(f"the VTA library failed: {said or f'exit code {done.returncode}'}")
