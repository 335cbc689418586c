"""What this machine can do at most, measured once, and the bound that follows for a workload (its roofline)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.native import HERE, compile_shared
from peers.workload import Workload

from heron_asp.errors import MissingError

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_SLICE = 0.004  # seconds of one measurement
_REPEATS = 25  # the best counts: others use the machine too
_GUESS = 1e11  # bytes a second, to choose how many passes a measurement makes
_PEAK_STEPS = 2_000_000
_UNIT = 512  # bytes that a step of read_bandwidth reads
_DRAM = "DRAM"


@dataclass(frozen=True)
class Level:
    """A level of memory.

    Attributes:
        name: `L1`, `L2`, `L3` or `DRAM`.
        capacity: bytes that all threads together find in it; None for DRAM.
        bandwidth: bytes a second that all threads together read from it.
    """

    name: str
    capacity: int | None
    bandwidth: float


@dataclass(frozen=True)
class Machine:
    """What a number of threads can do at most.

    Attributes:
        threads: how many.
        peak: operations a second of dot products on registers.
        levels: memory, nearest first.
        overhead: seconds of a call that does nothing.
    """

    threads: int
    peak: float
    levels: tuple[Level, ...]
    overhead: float


def best_of(machines: Sequence[Machine], peaks: Sequence[float] = ()) -> Machine:
    """The most that was ever seen of a machine which others use too.

    Args:
        machines: measurements, of equal levels and threads; at least one.
        peaks: further measurements of the peak.
    """
    first = machines[0]
    levels = zip(*(one.levels for one in machines), strict=True)
    return Machine(
        first.threads,
        max([one.peak for one in machines] + list(peaks)),
        tuple(Level(same[0].name, same[0].capacity, max(one.bandwidth for one in same)) for same in levels),
        min(one.overhead for one in machines),
    )


@dataclass(frozen=True)
class Bound:
    """The least time of a workload, and what sets it.

    Attributes:
        seconds: no program takes less.
        name: `compute`, `call`, or the level of memory from which most of the time is spent reading.
    """

    seconds: float
    name: str


def bound(workload: Workload, machine: Machine) -> Bound:
    """The roofline: arithmetic at the peak, operands read once from the nearest level of memory with room, a call.

    Workloads are called again and again on the same data, as they are here, so small ones are read from the caches.
    Products with padding are free, and so is writing, up to as many bytes as are read.
    """
    times = {"compute": workload.useful_operations / machine.peak, "call": machine.overhead}
    reading: dict[str, float] = {}
    left, below = max(workload.bytes_read, workload.bytes_written), 0
    for level in machine.levels:
        room = left if level.capacity is None else min(left, max(0, level.capacity - below))
        below = level.capacity or below
        reading[level.name] = room / level.bandwidth
        left -= room
    slowest = max(reading, key=lambda name: reading[name])
    times[slowest] = sum(reading.values())
    name = max(times, key=lambda one: times[one])
    return Bound(times[name], name)


def caches(folder: Path = _CACHES) -> list[tuple[str, int, bool]]:
    """Name, bytes, and whether all cores share it (the third level on), of each data cache, nearest first.

    Raises:
        MissingError: the system does not say.
    """
    found = []
    for index in sorted(folder.glob("index*")):
        if (index / "type").read_text().strip() == "Instruction":
            continue
        level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
        kib = int(size.removesuffix("K")) if size.endswith("K") else 1024 * int(size.removesuffix("M"))
        found.append((f"L{level}", 1024 * kib, level > 2))
    if not found:
        raise MissingError(f"{folder} does not say which caches there are", "Linux does on x86-64")
    return sorted(found)


class Probe:
    """Measures a machine.

    Args:
        folder: where the probe is compiled.
    """

    def __init__(self, folder: Path) -> None:
        self._library = ctypes.CDLL(str(compile_shared(HERE / "machine.c", folder / "machine.so", ["-fopenmp"])))
        self._library.dot_product_peak.restype = ctypes.c_double
        self._library.dot_product_peak.argtypes = [ctypes.c_int, ctypes.c_long]
        self._library.read_bandwidth.restype = ctypes.c_double
        self._library.read_bandwidth.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_long]

    def peak(self, threads: int, steps: int = _PEAK_STEPS) -> float:
        """Operations a second of dot products on registers, once; others may have slowed the machine down."""
        return float(self._library.dot_product_peak(threads, steps))

    def bandwidth(self, threads: int, bytes_each: int) -> float:
        """Bytes a second that threads read from buffers of so many bytes each.

        Raises:
            MissingError: there is not so much memory.
        """
        size = max(_UNIT, bytes_each // _UNIT * _UNIT)
        passes = max(2, int(_SLICE * _GUESS / size))
        best = max(float(self._library.read_bandwidth(threads, size, passes)) for _ in range(_REPEATS))
        if best < 0:
            raise MissingError(f"there are no {threads} * {size} bytes of memory to measure its bandwidth")
        return best

    def machine(self, threads: int, overhead: float, said: Sequence[tuple[str, int, bool]] = ()) -> Machine:
        """Everything, for a number of threads.

        A level is read at half its size, one that others share at an eighth, DRAM at four times the last cache.

        Args:
            threads: how many.
            overhead: seconds of a call that does nothing.
            said: the caches, by default those of this machine.
        """
        levels = []
        last = 0
        for name, size, shared in said or caches():
            each = size // threads if shared else size
            levels.append(Level(name, each * threads, self.bandwidth(threads, each // (8 if shared else 2))))
            last = each * threads
        levels.append(Level(_DRAM, None, self.bandwidth(threads, 4 * last // threads)))
        peak = max(self.peak(threads) for _ in range(_REPEATS))
        return Machine(threads, peak, tuple(levels), overhead)
