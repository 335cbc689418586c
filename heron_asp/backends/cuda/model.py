"""How long a tiled matrix product takes on a GPU, by what its hardware can do at most.

Every term is a number of cycles or bytes that follows from the tiles, divided by a rate that the vendor states or that
was measured with programs of a single instruction (targets/*.toml say which); no constant is fitted to programs. So
the times are optimistic, and meant to order programs and to say what holds one up. A multiprocessor takes as many
blocks as fit, and the next ones when all of those are done. In a step along k, its blocks compete for tensor cores,
shared memory, its port to L2 and instruction issue: a step takes as long as the busiest of these, or as the chain of
waits of a single block. L2 and DRAM are shared by all, and bound the whole.

What is left out: address arithmetic, spilt registers, instruction caches, the order in which the hardware assigns
blocks, clocks that fall under load.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, inf

from heron_asp.backends.cuda.banks import LINE, WARP, fragment_cycles, matrix_cycles, tile_cycles
from heron_asp.backends.cuda.nvcc import Multiprocessor, Resources
from heron_asp.backends.cuda.nvcc import occupancy as blocks_at_a_time
from heron_asp.backends.cuda.program import Kernel
from heron_asp.errors import InternalError

_SECTOR = 32  # bytes that L2 delivers at least (CUDA C++ Best Practices Guide, coalesced access)
_MOST_REGISTERS = 255  # of a thread
_REGISTER_STEP = 8  # registers of a thread are given in steps of so many (CUDA occupancy calculator)
_MOST_THREADS = 1024  # of a block
_MMA_SUMS, _MMA_BYTES = 16 * 8, 32  # of `mma.sync.m16n8`: sums, and bytes along k of each of its rows (PTX ISA)
_LDMATRIX = 512  # bytes that `ldmatrix.x4` loads


class Pipelining(StrEnum):
    """How tiles get from global to shared memory while others are used."""

    NONE = "none"  # one after the other
    REGISTERS = "registers"  # the next tile waits in registers
    ASYNC = "async"  # `cp.async`, several tiles ahead


@dataclass(frozen=True)
class Gpu:
    """What a GPU can do, as its target file has it.

    Attributes:
        multiprocessors: how many.
        clock_mhz: at which they run.
        multiply_adds: of the tensor cores of a multiprocessor, for the element type, per cycle.
        schedulers: partitions of a multiprocessor; each has a share of the tensor cores and issues an instruction per
            cycle.
        shared_bytes_per_cycle: of a multiprocessor's shared memory.
        port_bytes_per_cycle: from L2 to a multiprocessor.
        l2_bytes_per_second: of the whole L2.
        l2_bytes: its size.
        dram_bytes_per_second: of the memory.
        registers, shared_bytes, threads, blocks: that a multiprocessor has room for.
        shared_bytes_of_block: that a block may have.
        shared_bytes_reserved: that the system takes of each block's.
        global_cycles: from a load from memory to its data.
        shared_cycles: from a load from shared memory to its data.
        tensor_cycles: from a multiplication on a tensor core to its sums.
        barrier_cycles: of a block's barrier.
        launch_seconds: of an empty kernel.
    """

    multiprocessors: int
    clock_mhz: float
    multiply_adds: int
    shared_bytes_per_cycle: int
    port_bytes_per_cycle: int
    l2_bytes_per_second: float
    l2_bytes: int
    dram_bytes_per_second: float
    registers: int
    shared_bytes: int
    shared_bytes_of_block: int
    shared_bytes_reserved: int
    threads: int
    blocks: int
    global_cycles: float
    shared_cycles: float
    tensor_cycles: float
    barrier_cycles: float
    launch_seconds: float
    schedulers: int = 4


@dataclass(frozen=True)
class Work:
    """A product c[batch, m, n] += a[batch, m, k] * b[batch, k, n], and how it is cut. Extents are as padded.

    Attributes:
        batch, m, n, k: extents.
        block: rows, columns and steps along k of a block's tile.
        warp: rows and columns of a warp's tile.
        fragment: rows, columns and steps along k of one instruction of the schedule.
        pipelining: how tiles are fetched.
        stages: tiles in shared memory at a time; more than one needs pipelining.
        fragments_ahead: fragments are loaded while others are multiplied.
        b_by_columns: b lies as [n, k], so that the rows of its tile run along k.
        padding: elements behind each row of the tiles of a, b and c.
        vector: elements of an access when the tiles of a, b and c are copied.
        bytes_in, bytes_sum, bytes_out: of an element of a and b, of a sum, of c in memory.
        through_shared: sums go to memory by way of shared memory.
        registers: of a thread, or what it would like to have: compilers know how many threads a block has, and spill
            what a launch would be refused for.
        shared_bytes: of a block, static and dynamic.
        gather: share of a's vectors that do not lie beside their neighbours in memory, as in a convolution.
    """

    batch: int
    m: int
    n: int
    k: int
    block: tuple[int, int, int]
    warp: tuple[int, int]
    fragment: tuple[int, int, int]
    registers: int
    shared_bytes: int
    pipelining: Pipelining = Pipelining.NONE
    stages: int = 1
    fragments_ahead: bool = False
    b_by_columns: bool = False
    padding: tuple[int, int, int] = (0, 0, 0)
    vector: tuple[int, int, int] = (8, 8, 4)
    bytes_in: int = 2
    bytes_sum: int = 4
    bytes_out: int = 4
    through_shared: bool = True
    gather: float = 0.0

    def __post_init__(self) -> None:
        pairs = zip(
            (self.m, self.n, self.k, *self.block, *self.warp),
            (*self.block, *self.warp, self.fragment[2], *self.fragment[:2]),
            strict=True,
        )
        if any(whole % part for whole, part in pairs):
            raise InternalError(f"tiles do not divide what they cut: {self}")
        if (self.pipelining is Pipelining.ASYNC) != (self.stages > 1):
            raise InternalError(f"{self.stages} stages and pipelining {self.pipelining} contradict one another")

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.block[0] // self.warp[0] * (self.block[1] // self.warp[1])

    @property
    def rows(self) -> int:
        """Tiles along m."""
        return self.m // self.block[0]

    @property
    def columns(self) -> int:
        """Tiles along n."""
        return self.n // self.block[1]

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.batch * self.rows * self.columns

    @property
    def steps(self) -> int:
        """Steps of a block along k."""
        return self.k // self.block[2]


@dataclass(frozen=True)
class Estimate:
    """What the model says.

    Attributes:
        seconds: of a call; infinite where a block does not fit on a multiprocessor.
        terms: seconds for which each resource is busy, or waited for: `tensor`, `shared`, `port`, `issue`, `latency`
            (of the steps along k on the busiest multiprocessor), `ends` (what comes before and after these steps),
            `l2`, `dram` (of the whole), `launch`.
        bound: the term that takes most of the time; `occupancy` where it is infinite.
        occupancy: blocks that fit on a multiprocessor.
        waves: how often a multiprocessor takes blocks.
        conflicts: cycles that shared memory takes, over those without bank conflicts: 1 or more.
    """

    seconds: float
    terms: dict[str, float] = field(default_factory=dict)
    bound: str = "occupancy"
    occupancy: int = 0
    waves: int = 0
    conflicts: float = 1.0


def estimate(gpu: Gpu, work: Work, cold: bool = True) -> Estimate:
    """How long a product takes.

    Args:
        gpu: where.
        work: what.
        cold: nothing of the operands is in L2 at the start.
    """
    most = occupancy(gpu, work)
    if not most:
        return Estimate(inf)
    block = _Block(gpu, work)
    resident = ceil(work.blocks / gpu.multiprocessors)  # blocks of the busiest multiprocessor, over the whole time
    waves = [most] * (resident // most) + [resident % most] * (resident % most > 0)
    hertz = gpu.clock_mhz * 1e6
    terms = dict.fromkeys(("tensor", "shared", "port", "issue", "latency", "ends"), 0.0)
    timeline = 0.0
    for blocks in waves:
        step, ends = block.step(blocks), block.ends(blocks)
        for name, cycles in step.items():
            terms[name] += work.steps * cycles / hertz
        terms["ends"] += ends / hertz
        timeline += (work.steps * max(step.values()) + ends) / hertz
    terms["l2"] = block.l2_bytes / gpu.l2_bytes_per_second
    terms["dram"] = dram_bytes(gpu, work, cold) / gpu.dram_bytes_per_second
    terms["launch"] = gpu.launch_seconds
    seconds = gpu.launch_seconds + max(timeline, terms["l2"], terms["dram"])
    bound = max(terms, key=lambda name: terms[name])
    return Estimate(seconds, terms, bound, most, len(waves), block.conflicts)


def occupancy(gpu: Gpu, work: Work) -> int:
    """Blocks that fit on a multiprocessor; 0 where a block cannot be launched."""
    threads = work.warps * WARP
    if threads > _MOST_THREADS or work.shared_bytes > gpu.shared_bytes_of_block:
        return 0
    most = (
        gpu.registers // (ceil(work.warps / gpu.schedulers) * gpu.schedulers * WARP) // _REGISTER_STEP * _REGISTER_STEP
    )
    registers = min(work.registers, most, _MOST_REGISTERS)
    kernel = Kernel("", (work.blocks, 1, 1), (threads, 1, 1), work.shared_bytes, 0, ())
    limits = Multiprocessor(gpu.registers, gpu.shared_bytes, gpu.threads, gpu.blocks, gpu.shared_bytes_reserved)
    return blocks_at_a_time(kernel, Resources(registers, 0, 0, 0, 0, 0), limits)


def dram_bytes(gpu: Gpu, work: Work, cold: bool) -> float:
    """Bytes that move between memory and L2.

    Blocks run in the order of their number, columns of tiles fastest. Those in flight cover all of b or a part of it,
    and a few rows of tiles of a; b is read again for the next rows, unless it stays in L2.
    """
    a, b = (work.batch * extent * work.k * work.bytes_in for extent in (work.m, work.n))
    c = work.batch * work.m * work.n * work.bytes_out
    if not cold and a + b + c <= gpu.l2_bytes:
        return 0.0
    rows_of_a = work.block[0] * work.k * work.bytes_in
    if b / work.batch + rows_of_a <= gpu.l2_bytes:
        return a + b + c
    in_flight = max(gpu.multiprocessors * occupancy(gpu, work), work.columns)
    return a + b * max(1.0, work.rows * work.columns / in_flight) + c


class _Block:
    """Cycles of a block on a multiprocessor that has all to itself, and of several together."""

    def __init__(self, gpu: Gpu, work: Work) -> None:
        self._gpu, self._work = gpu, work
        bm, bn, bk = work.block
        of_a, of_b, of_c = work.padding
        size = work.bytes_in
        rows_b, row_b = (bn, bk) if work.b_by_columns else (bk, bn)
        stride_a, stride_b = (bk + of_a) * size, (row_b + of_b) * size
        self._degrees = matrix_cycles(stride_a), matrix_cycles(stride_b)
        scale = LINE / gpu.shared_bytes_per_cycle
        self._stores = scale * (
            tile_cycles(bm, bk * size, stride_a, work.vector[0] * size)
            + tile_cycles(rows_b, row_b * size, stride_b, work.vector[1] * size)
        )
        self._loads = scale * work.warps * self._fragments(bk)
        self._scale = scale
        ideal = (bm + bn) * bk * size / LINE + work.warps * sum(work.warp) * bk * size / LINE
        self.conflicts = (self._stores + self._loads) / scale / ideal
        gathered = work.gather * bm * (bk // work.vector[0]) * max(_SECTOR, work.vector[0] * size)
        contiguous = (1 - work.gather) * _sectors(bm, bk * size)
        self._fetched = gathered + contiguous + _sectors(rows_b, row_b * size)
        self._written = _sectors(bm, bn * work.bytes_out)
        self._vectors = bm * bk // work.vector[0] + bn * bk // work.vector[1]
        self._stride_c = (bn + of_c) * work.bytes_sum
        self.l2_bytes = work.blocks * (work.steps * self._fetched + self._written)

    def _fragments(self, along_k: int) -> float:
        """Cycles in which shared memory gives a warp its fragments of so many steps along k, at full width."""
        a, b = (one * along_k * self._work.bytes_in / LINE for one in self._work.warp)
        return a * self._degrees[0] + b * self._degrees[1]

    def step(self, blocks: int) -> dict[str, float]:
        """Cycles of each resource for one step along k of so many blocks."""
        gpu, work = self._gpu, self._work
        busiest = ceil(blocks * work.warps / gpu.schedulers)  # warps of one partition
        products = work.warp[0] * work.warp[1] * work.block[2]
        mma = products / (_MMA_SUMS * _MMA_BYTES / work.bytes_in)
        loads = sum(work.warp) * work.block[2] * work.bytes_in / _LDMATRIX
        copies = self._vectors / WARP / work.warps * (1 if work.pipelining is Pipelining.ASYNC else 2)
        return {
            "tensor": busiest * products / (gpu.multiply_adds / gpu.schedulers),
            "shared": blocks * (self._stores + self._loads),
            "port": blocks * self._fetched / gpu.port_bytes_per_cycle,
            "issue": busiest * (mma + loads + copies),
            "latency": self._chain(),
        }

    def _chain(self) -> float:
        """Cycles from the start of a step along k of one block to the start of the next, if nobody else were there."""
        gpu, work = self._gpu, self._work
        fragment, repeats = work.fragment[2], work.block[2] // work.fragment[2]
        load = gpu.shared_cycles + self._scale * self._fragments(fragment)
        multiply = work.warp[0] * work.warp[1] * fragment / (gpu.multiply_adds / gpu.schedulers)
        inside = load + repeats * max(load, multiply) if work.fragments_ahead else repeats * (load + multiply)
        compute = inside + gpu.tensor_cycles
        if work.pipelining is Pipelining.ASYNC:
            return max(compute, gpu.global_cycles / (work.stages - 1)) + gpu.barrier_cycles
        store = gpu.shared_cycles + self._stores
        if work.pipelining is Pipelining.REGISTERS:
            return max(compute, gpu.global_cycles) + store + gpu.barrier_cycles
        return gpu.global_cycles + store + compute + 2 * gpu.barrier_cycles

    def ends(self, blocks: int) -> float:
        """Cycles before the first and after the last step along k of so many blocks."""
        gpu, work = self._gpu, self._work
        first = 0.0
        if work.pipelining is not Pipelining.NONE:
            first = gpu.global_cycles + gpu.barrier_cycles + blocks * self._fetched / gpu.port_bytes_per_cycle
        port = blocks * self._written / gpu.port_bytes_per_cycle
        if not work.through_shared:
            return first + port
        bm, bn, _ = work.block
        written = fragment_cycles(bm, bn, self._stride_c, work.bytes_sum)
        read = tile_cycles(bm, bn * work.bytes_sum, self._stride_c, work.vector[2] * work.bytes_sum)
        shared = blocks * self._scale * (written + read)
        return first + max(port, shared) + gpu.shared_cycles + gpu.barrier_cycles


def _sectors(rows: int, row_bytes: int) -> int:
    """Bytes that L2 delivers for rows that begin at sectors."""
    return rows * ceil(row_bytes / _SECTOR) * _SECTOR
