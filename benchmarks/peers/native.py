"""C code of the benchmarks: compiling it, buffers at aligned addresses, calls that C times."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heron_asp.errors import MissingError
from heron_asp.library import find_compiler

HERE = Path(__file__).parent
BLOCK = 0.004  # seconds of a timed block: so short that on a shared machine some are not interrupted
BLOCKS = 6  # of a round
ROUND = 0.15  # seconds after which a round has no further block
PAUSE = 0.03  # seconds in which the threads of the other side go to sleep
_ALIGNMENT = 64
Array = npt.NDArray[Any]


def aligned(array: Array) -> Array:
    """A copy at a multiple of 64 bytes, rows packed one after the other."""
    room = np.zeros(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def compile_shared(source: Path, out: Path, flags: Sequence[str] = (), command: Sequence[str] = ()) -> Path:
    """Compiles a file into a shared library.

    Args:
        source: C, or whatever `command` compiles.
        out: the library.
        flags: further options, after the source.
        command: the compiler; the machine's C compiler by default.

    Raises:
        MissingError: there is no compiler, or it refuses the file.
    """
    compiler = list(command) or list(find_compiler().command)
    try:
        done = subprocess.run(
            [*compiler, "-O2", "-shared", "-fPIC", "-o", str(out), str(source), *flags],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise MissingError(f"there is no {compiler[0]}", "install a C++ compiler: apt install g++") from None
    if done.returncode != 0:
        raise MissingError(f"{compiler[0]} does not compile {source.name}: {done.stderr.strip()[-2000:]}")
    return out


class Side(Protocol):
    """One side of a comparison, ready to be called.

    Attributes:
        name: of the side.
        implementation: which of its programs it has chosen.
        tolerance: how far an element of the result may be from `expects`.
    """

    name: str
    implementation: str
    tolerance: float

    def run(self) -> Array:
        """One call; its result, which the next call overwrites."""

    def seconds(self, calls: int) -> float:
        """Seconds of one call, over a block of calls."""

    def expects(self, exact: Array) -> Array:
        """The result that a call should have, from the exact one."""


class Clock:
    """Times calls in C.

    Args:
        library: clock.c, compiled.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.time_calls.restype = ctypes.c_double
        self._library.time_calls.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

    def seconds(self, function: int, context: int, calls: int) -> float:
        """Seconds of one call of `void function(void *context)`, over a block of calls."""
        return float(self._library.time_calls(function, context, calls))


@dataclass
class NativeCall:
    """A call that C makes and times.

    Attributes:
        clock: times it.
        name: of the side.
        function: address of `void function(void *)`.
        context: what it is called with.
        result: where the result appears.
        implementation: which of its programs the side has chosen.
        kept: buffers that the call uses.
    """

    clock: Clock
    name: str
    function: int
    context: int
    result: Array
    implementation: str
    kept: tuple[object, ...] = ()
    tolerance: float = 0.0

    def run(self) -> Array:
        """One call; its result."""
        self.clock.seconds(self.function, self.context, 1)
        return self.result

    def seconds(self, calls: int) -> float:
        """Seconds of one call, over a block of calls."""
        return self.clock.seconds(self.function, self.context, calls)

    def expects(self, exact: Array) -> Array:
        """The exact result."""
        return exact


def address(function: Any) -> int:
    """The address of a function of a loaded library."""
    value = ctypes.cast(function, ctypes.c_void_p).value
    assert value is not None
    return value


@dataclass(frozen=True)
class Turn:
    """A side's turn in a round.

    Attributes:
        seconds: of one call in the best block; in the best undisturbed one, if any.
        undisturbed: whether there was a block in which the system took no processor away from us.
    """

    seconds: float
    undisturbed: bool


def take_turn(side: Side, calls: int) -> Turn:
    """A turn after a pause and a few calls that wake threads and warm caches.

    Args:
        side: whose turn it is.
        calls: in a block.
    """
    time.sleep(PAUSE)
    end = time.monotonic() + ROUND
    side.seconds(max(1, calls // 4))
    blocks: list[tuple[bool, float]] = []
    while not blocks or (len(blocks) < BLOCKS and time.monotonic() < end):
        before = _interruptions()
        seconds = side.seconds(calls)
        blocks.append((_interruptions() > before, seconds))
    disturbed, seconds = min(blocks)
    return Turn(seconds, not disturbed)


def _interruptions() -> int:
    """How often the system has taken a processor from a thread of ours that could have gone on."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def calls_of(side: Side) -> int:
    """How many calls make a block."""
    side.seconds(1)
    return max(1, round(BLOCK / min(side.seconds(1) for _ in range(3))))
