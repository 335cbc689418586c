"""The analytic model: conflicts against a simulation of the banks, times where it is known which way they must go."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heron_asp.backends.cuda.banks import fragment_cycles, matrix_cycles, part_cycles, tile_cycles
from heron_asp.backends.cuda.model import Estimate, Gpu, Pipelining, Work, dram_bytes, estimate, occupancy
from heron_asp.errors import InternalError

GPU = Gpu(  # the numbers of NVIDIA's A100 (white paper of 2020); latencies are round numbers
    multiprocessors=108,
    clock_mhz=1410,
    multiply_adds=1024,
    shared_bytes_per_cycle=128,
    port_bytes_per_cycle=64,
    l2_bytes_per_second=7.2e12,
    l2_bytes=40 << 20,
    dram_bytes_per_second=1.555e12,
    registers=65536,
    shared_bytes=164 << 10,
    shared_bytes_of_block=163 << 10,
    shared_bytes_reserved=1024,
    threads=2048,
    blocks=32,
    global_cycles=500,
    shared_cycles=30,
    tensor_cycles=30,
    barrier_cycles=20,
    launch_seconds=2e-6,
)
USUAL = Work(1, 4096, 4096, 4096, (128, 128, 32), (64, 32), (16, 16, 16), 128, 40960, padding=(8, 8, 4))


# --- banks ---


def simulated(addresses: list[int], nbytes: int) -> int:
    """A part of a request, cycle by cycle: each bank gives one word to all that want it."""
    wanted = [at + byte for at in addresses for byte in range(nbytes)]
    cycles = 0
    while wanted:
        given = {}
        for byte in wanted:
            given.setdefault(byte // 4 % 32, byte // 4)
        wanted = [byte for byte in wanted if given[byte // 4 % 32] != byte // 4]
        cycles += 1
    return cycles


@given(st.lists(st.integers(0, 4096), min_size=1, max_size=32), st.sampled_from([2, 4, 8, 16]))
def test_a_part_of_a_request_takes_as_long_as_the_banks_need(places: list[int], nbytes: int) -> None:
    addresses = [place * nbytes for place in places]
    assert part_cycles(addresses, nbytes) == simulated(addresses, nbytes)


@given(st.integers(1, 200))
def test_the_closed_form_of_ldmatrix(sixteens: int) -> None:
    stride = 16 * sixteens
    assert matrix_cycles(stride) == simulated([row * stride for row in range(8)], 16)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 24), st.integers(0, 8), st.sampled_from([2, 4, 8, 16]))
def test_tiles_are_stored_part_by_part(rows: int, vectors: int, behind: int, nbytes: int) -> None:
    row_bytes = vectors * nbytes
    stride = row_bytes + behind * nbytes
    threads = [(row, at) for row in range(rows) for at in range(0, row_bytes, nbytes)]
    together = min(32, 128 // nbytes)
    wanted = 0
    for first in range(0, len(threads), together):
        wanted += simulated([row * stride + at for row, at in threads[first : first + together]], nbytes)
    assert tile_cycles(rows, row_bytes, stride, nbytes) == wanted


@given(st.integers(2, 40), st.sampled_from([2, 4]))
def test_sums_are_stored_eight_rows_at_a_time(eights: int, nbytes: int) -> None:
    stride = 8 * eights * nbytes
    pairs = [row * stride + pair * 2 * nbytes for row in range(8) for pair in range(4)]
    parts = [pairs] if nbytes == 2 else [pairs[:16], pairs[16:]]
    assert fragment_cycles(16, 16, stride, nbytes) == 4 * sum(simulated(part, 2 * nbytes) for part in parts)


def test_well_known_conflicts() -> None:
    assert matrix_cycles(64) == 4, "rows of 32 halves: four rows meet"
    assert matrix_cycles(128) == 8, "rows of 64 halves: all meet"
    assert matrix_cycles(80) == matrix_cycles(144) == 1, "with 8 halves behind each row none meet"
    assert tile_cycles(128, 64, 64, 16) == 128 * 64 // 128, "without padding a tile is stored at full width"
    with pytest.raises(InternalError, match="misaligned"):
        matrix_cycles(72)
    with pytest.raises(InternalError, match="not whole vectors"):
        tile_cycles(4, 24, 32, 16)


# --- times ---


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Products that fit on the GPU."""
    warp = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 32, 64]))
    warps = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    block = warp[0] * warps[0], warp[1] * warps[1], draw(st.sampled_from([16, 32, 64]))
    tiles = draw(st.integers(1, 30)), draw(st.integers(1, 30)), draw(st.integers(1, 20))
    pipelining = draw(st.sampled_from(list(Pipelining)))
    m, n, k = (one * tile for one, tile in zip(tiles, block, strict=True))
    stages = draw(st.integers(2, 4)) if pipelining is Pipelining.ASYNC else 1
    return Work(
        draw(st.integers(1, 4)), m, n, k, block, warp, (16, 16, 16), draw(st.integers(32, 160)),
        draw(st.integers(1, 100)) * 1024, pipelining, stages, draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from([(0, 0, 0), (8, 8, 4), (8, 0, 8)])),
        draw(st.sampled_from([(8, 8, 4), (4, 8, 2), (2, 2, 1)])),
        gather=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(works(), st.booleans())
def test_a_better_gpu_is_never_slower(work: Work, cold: bool) -> None:
    before = estimate(GPU, work, cold).seconds
    for name, factor in (
        ("multiprocessors", 1.25),
        ("multiprocessors", 1.01),
        ("clock_mhz", 1.1),
        ("multiply_adds", 2),
        ("shared_bytes_per_cycle", 2),
        ("port_bytes_per_cycle", 2),
        ("l2_bytes_per_second", 1.5),
        ("dram_bytes_per_second", 1.5),
        ("l2_bytes", 4),
        ("global_cycles", 0.5),
        ("shared_cycles", 0.5),
        ("tensor_cycles", 0.5),
        ("barrier_cycles", 0.5),
        ("launch_seconds", 0.5),
    ):
        value = getattr(GPU, name) * factor
        better = replace(GPU, **{name: value if isinstance(getattr(GPU, name), float) else int(np.ceil(value))})
        assert estimate(better, work, cold).seconds <= before * (1 + 1e-12), name


@settings(max_examples=80, deadline=None)
@given(works())
def test_more_work_is_never_faster(work: Work) -> None:
    before = estimate(GPU, work)
    bm, bn, bk = work.block
    for more in (
        replace(work, batch=work.batch + 1),
        replace(work, m=work.m + bm),
        replace(work, n=work.n + bn),
        replace(work, k=work.k + bk),
        replace(work, gather=1.0),
        replace(work, bytes_out=8),
    ):
        assert estimate(GPU, more).seconds >= before.seconds * (1 - 1e-12), more


@settings(max_examples=80, deadline=None)
@given(works())
def test_no_time_is_below_what_a_resource_needs(work: Work) -> None:
    found = estimate(GPU, work)
    busy = [seconds for name, seconds in found.terms.items() if name not in ("launch", "ends")]
    assert found.seconds >= max(busy) + GPU.launch_seconds
    products = work.batch * work.m * work.n * work.k
    peak = GPU.multiprocessors * GPU.multiply_adds * GPU.clock_mhz * 1e6
    assert found.terms["tensor"] >= products / peak * (1 - 1e-12)
    assert found.conflicts >= 1
    assert found.bound == max(found.terms, key=lambda name: found.terms[name])
    assert estimate(GPU, work, cold=False).seconds <= found.seconds


def test_a_good_program_is_bound_by_the_tensor_cores_and_a_bad_one_is_not() -> None:
    good = replace(USUAL, pipelining=Pipelining.ASYNC, stages=3, fragments_ahead=True, b_by_columns=True)
    found = estimate(GPU, good)
    assert found.bound in ("tensor", "shared")
    assert 0.5 < 2 * 4096**3 / found.seconds / 312e12 < 1
    waiting = estimate(GPU, USUAL)
    assert waiting.bound == "latency"
    conflicting = estimate(GPU, replace(good, padding=(0, 0, 0)))
    assert conflicting.bound == "shared"
    assert (found.conflicts, conflicting.conflicts) == (1.25, 3.25), (
        "with padding only the stores of rows of 64 bytes meet"
    )
    assert conflicting.seconds > 1.5 * found.seconds


def test_small_products_are_bound_by_launch_and_latency() -> None:
    small = replace(USUAL, m=128, n=128, k=64)
    found = estimate(GPU, small)
    assert found.bound in ("launch", "latency", "ends")
    assert found.seconds > GPU.launch_seconds


def test_occupancy_is_what_fits() -> None:
    assert occupancy(GPU, USUAL) == 2, "65536 // (128 * 256) by registers"
    assert occupancy(GPU, replace(USUAL, registers=64, shared_bytes=81 << 10)) == 2, "by shared memory"
    assert occupancy(GPU, replace(USUAL, registers=64, shared_bytes=82 << 10)) == 1, "which is reserved in part"
    assert occupancy(GPU, replace(USUAL, registers=16, shared_bytes=0)) == 8, "by threads"
    assert occupancy(GPU, replace(USUAL, warp=(128, 128), registers=16, shared_bytes=0)) == 32, "by blocks"
    assert occupancy(GPU, replace(USUAL, registers=129)) == 1, "136 registers of 256 threads twice are too many"


@pytest.mark.parametrize(
    "change",
    [{"shared_bytes": 164 << 10}, {"warp": (16, 16)}],
    ids=["shared", "threads"],
)
def test_what_cannot_be_launched_takes_for_ever(change: dict[str, object]) -> None:
    assert estimate(GPU, replace(USUAL, **change)) == Estimate(inf)  # type: ignore[arg-type]


def test_more_registers_than_a_launch_may_have_are_spilt() -> None:
    full = replace(USUAL, block=(256, 256, 32), warp=(64, 32), registers=64)
    assert full.warps == 32
    assert occupancy(GPU, full) == occupancy(GPU, replace(full, registers=170)) == 1, "1024 threads have 64 at most"
    assert occupancy(GPU, replace(USUAL, registers=300)) == 1, "255 at most"


def test_memory_is_read_once_where_l2_holds_it() -> None:
    a, b, c = (prod(shape) for shape in ((4096, 4096, 2), (4096, 4096, 2), (4096, 4096, 4)))
    assert dram_bytes(GPU, USUAL, cold=True) == a + b + c
    assert dram_bytes(GPU, USUAL, cold=False) == a + b + c, "128 MiB do not stay in 40"
    tiny = replace(GPU, l2_bytes=1 << 20)
    assert dram_bytes(tiny, USUAL, cold=True) == a + b * 32 * 32 / 216 + c, "216 blocks in flight, of 32 x 32"
    small = replace(USUAL, m=1024, n=1024, k=1024)
    assert dram_bytes(GPU, small, cold=False) == 0


def test_tiles_have_to_fit() -> None:
    with pytest.raises(InternalError, match="do not divide"):
        replace(USUAL, m=4000)
    with pytest.raises(InternalError, match="contradict"):
        replace(USUAL, stages=2)
