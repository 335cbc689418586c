"""Which programs go into a library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heron_asp.errors import HeronError
from heron_asp.library.choice import choose
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.library.conftest import sampled


def test_one_kernel_a_shape_and_number_of_threads(zen4: Target) -> None:
    first = sampled(zen4, "gemm", m=16, n=16, k=16)
    faster = replace(first, seconds=first.seconds / 2)
    slower = replace(first, seconds=first.seconds * 2)
    parallel = sampled(zen4, "gemm", threads=2, m=16, n=16, k=16)
    kernels, dropped = choose([first, faster, parallel, slower])
    assert [kernel.symbol for kernel in kernels] == ["gemm_u8s8s32_m16_n16_k16_t1", "gemm_u8s8s32_m16_n16_k16_t2"]
    assert kernels[0].tuned is faster
    assert [(one.tuned, one.kept) for one in dropped] == [(first, faster), (slower, faster)]


def test_kernels_are_sorted_as_the_dispatch_searches_them(zen4: Target) -> None:
    shapes = [(32, 16, 16), (8, 16, 32), (8, 16, 16), (128, 16, 16)]
    programs = [sampled(zen4, "gemm", m=m, n=n, k=k) for m, n, k in shapes]
    kernels, _ = choose([*programs, sampled(zen4, "gemv", m=32, k=32)])
    assert [kernel.extents for kernel in kernels[:-1]] == sorted(shapes)
    assert kernels[-1].interface.function == "gemv_u8s8s32"


def test_kernels_that_share_a_constant_share_its_layout(zen4: Target) -> None:
    kernels, _ = choose([sampled(zen4, "gemm", m=m, n=32, k=32) for m in (8, 16)])
    layouts = [kernel.layouts["b"] for kernel in kernels]
    assert layouts[0].symbol == layouts[1].symbol == "gemm_u8s8s32_pack_b_n32_k32"
    assert layouts[0].fingerprint == layouts[1].fingerprint
    assert layouts[0].bytes == layouts[0].room == 32 * 32


def test_room_for_a_packed_operand_is_what_aligned_alloc_takes(zen4: Target) -> None:
    kernels, _ = choose([sampled(zen4, "gemm", dtype="f32f32f32", m=8, n=3, k=5)])
    layout = kernels[0].layouts["b"]
    assert layout.room % 64 == 0
    assert 0 <= layout.room - layout.bytes < 64


def test_two_layouts_of_one_constant_are_refused(zen4: Target) -> None:
    by_intrinsic = sampled(zen4, "gemm", m=16, n=32, k=32)
    plain = sampled(zen4, "gemm", m=32, n=32, k=32, plain=True)
    with pytest.raises(HeronError) as caught:
        choose([by_intrinsic, plain])
    assert "gemm u8s8s32 m=16,n=32,k=32 on 1 thread" in caught.value.message
    assert "gemm u8s8s32 m=32,n=32,k=32 on 1 thread" in caught.value.message
    assert "2 x 8 x 16 x 4" in caught.value.message


def test_one_library_is_for_one_target(zen4: Target) -> None:
    other = load_target(targets_folder() / "icelake.toml")
    with pytest.raises(HeronError, match=r"different targets.*zen4.*icelake") as caught:
        choose([sampled(zen4, "gemm", m=16, n=16, k=16), sampled(other, "gemm", m=16, n=16, k=16)])
    assert caught.value.hint == "export one library for each target"


def test_there_must_be_a_program() -> None:
    with pytest.raises(HeronError, match="no run to export"):
        choose([])


def test_a_constant_that_a_program_takes_as_it_is_is_copied(zen4: Target) -> None:
    tuned = sampled(zen4, "gemm", m=16, n=16, k=16)
    kernels, _ = choose([tuned])
    unpacked = replace(kernels[0], program=replace(kernels[0].program, packings=()))
    layout = unpacked.layouts["b"]
    assert layout.packed == (16, 16)
    assert isinstance(tuned.task, Task)
