"""Which programs go into a library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heron_asp.errors import HeronError
from heron_asp.library import CCompiler, Tuned, export_tuned
from heron_asp.library.choice import Dropped, choose
from heron_asp.operators import KINDS, Layout, Operator, OperatorKind
from heron_asp.operators.kind import Expression
from heron_asp.resources import targets_folder
from heron_asp.target import Target, load_target
from heron_asp.task import Task
from tests.library.conftest import sampled

WINDOW = {"ci": 12, "co": 32, "kh": 3, "kw": 3, "padding": 1}


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


def test_kernels_share_the_layout_of_weights_whatever_the_image(zen4: Target) -> None:
    images = [{"n": 1, "h": 8, "w": 7}, {"n": 2, "h": 8, "w": 7}, {"n": 1, "h": 5, "w": 9}]
    kernels, _ = choose([sampled(zen4, "conv2d", **image, **WINDOW) for image in images])
    assert {kernel.layouts["weight"].symbol for kernel in kernels} == {
        "conv2d_u8s8s32_pack_weight_ci12_co32_kh3_kw3_padding_top1_padding_bottom1_padding_left1_padding_right1"
    }
    assert kernels[0].symbol == (
        "conv2d_u8s8s32_n1_h5_w9_ci12_co32_kh3_kw3_padding_top1_padding_bottom1_padding_left1_padding_right1_t1"
    )


def test_weights_of_other_windows_and_groups_are_other_weights(zen4: Target) -> None:
    image = {"n": 1, "h": 8, "w": 7}
    others = [{}, {"dilation": 2}, {"stride": 2}, {"groups": 2}]
    kernels, _ = choose([sampled(zen4, "conv2d", **image, **WINDOW, **other) for other in others])
    assert len({kernel.layouts["weight"].symbol for kernel in kernels}) == 4


def test_layouts_of_the_tensors_are_functions_of_their_own(zen4: Target) -> None:
    image = {"n": 1, "h": 8, "w": 7}
    kernels, dropped = choose(
        [sampled(zen4, "conv2d", layout=layout, **image, **WINDOW) for layout in KINDS["conv2d"].layouts]
    )
    assert [kernel.interface.function for kernel in kernels] == [
        "conv2d_channels_first_u8s8s32",
        "conv2d_u8s8s32",
    ]
    assert not dropped


def test_epilogues_are_functions_of_their_own(zen4: Target) -> None:
    kernels, dropped = choose(
        [sampled(zen4, "gemm", m=16, n=16, k=16, epilogue=epilogue) for epilogue in ("", "relu", "clip=0:6")]
    )
    assert [kernel.symbol for kernel in kernels] == [
        "gemm_clip_0_6_u8s8s32_m16_n16_k16_t1",
        "gemm_relu_u8s8s32_m16_n16_k16_t1",
        "gemm_u8s8s32_m16_n16_k16_t1",
    ]
    assert not dropped


def test_a_shape_that_is_said_in_two_ways_is_one(zen4: Target) -> None:
    image = {"n": 1, "h": 8, "w": 7}
    first = sampled(zen4, "conv2d", **image, **WINDOW, stride=2)
    second = replace(sampled(zen4, "conv2d", **image, **WINDOW, stride_h=2, stride_w=2), seconds=first.seconds / 2)
    assert first.task.operator.label != second.task.operator.label
    kernels, dropped = choose([first, second])
    assert [kernel.tuned for kernel in kernels] == [second]
    assert dropped == [Dropped(first, second)]


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


def own(target: Target, scale: int = 1, threads: int = 1, **changed: Any) -> Tuned:
    """A program of an operator of the reader's own, made anew in each call: y(12, 40) = scale * x(12, 24) w(40, 24)."""

    def build(made: Operator, x: Any, w: Any) -> Any:
        from tvm import te

        k = te.reduce_axis((0, 24), name="k")
        total = te.compute((12, 40), lambda i, j: te.sum(widened(x[i, k]) * widened(w[j, k]), axis=k), name="y_sum")
        axes = {"rows": 12, "columns": 40}
        return Expression(total, axes, lambda place: total[place["rows"], place["columns"]] * scale)

    def widened(element: Any) -> Any:
        return element.astype("int32")

    kind = OperatorKind(
        name="mine",
        keys=(),
        layouts={"plain": Layout({"x": ("rows", "depth"), "w": ("columns", "depth"), "y": ("rows", "columns")})},
        slots=(0, 1, 2),
        constant=frozenset({"w"}),
        build=build,
        reference=lambda _extents, arrays, _layout: scale * (arrays[0] @ arrays[1].T),
        terms=lambda _: 24,
        operations=lambda _: 2 * 12 * 40 * 24,
        summary="a product",
        derived=lambda _: {"rows": 12, "columns": 40, "depth": 24},
    )
    task = Task(Operator(replace(kind, **changed), {}, "u8s8s32", "plain"), target, threads)
    (candidate,) = task.space.parts[0].sample(1, np.random.default_rng(0))
    return Tuned(task, candidate, seconds=1e-6 / threads)


def test_programs_of_one_operator_of_ones_own_are_one_function(zen4: Target) -> None:
    kernels, dropped = choose([own(zen4), own(zen4, threads=2), own(zen4)])
    assert [kernel.symbol for kernel in kernels] == ["mine_u8s8s32_t1", "mine_u8s8s32_t2"]
    assert len(dropped) == 1


def test_two_operators_of_one_name_are_refused(zen4: Target) -> None:
    with pytest.raises(HeronError, match="two operators are called mine") as caught:
        choose([own(zen4), own(zen4, scale=2)])
    assert "another name" in caught.value.hint


def test_one_function_has_one_list_of_arguments(zen4: Target) -> None:
    with pytest.raises(HeronError, match="mine would take different arguments: int mine_u8s8s32"):
        choose([own(zen4), own(zen4, threads=2, constant=frozenset())])


def test_an_operator_of_ones_own_is_exported(runnable: Target, compiler: CCompiler, tmp_path: Path) -> None:
    manifest = export_tuned([own(runnable), own(runnable, threads=2)], tmp_path, "own")
    assert manifest.functions[3:] == (
        "int mine_u8s8s32(const uint8_t *x, const void *packed_w, int32_t *y)",
        "size_t mine_u8s8s32_packed_w_bytes(void)",
        "int mine_u8s8s32_pack_w(const int8_t *w, void *packed_w)",
    )
    assert [(kernel.shape, kernel.extents, kernel.checked) for kernel in manifest.kernels] == [
        ({}, {"rows": 12, "columns": 40, "depth": 24}, True)
    ] * 2
    done = subprocess.run([sys.executable, tmp_path / "example.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "mine_u8s8s32: equals the reference\n"


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
