"""Programs for a GPU, scheduled by hand: what the tests and benchmarks of the CUDA backend run."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np
import tvm
import tvm_ffi
from ml_dtypes import bfloat16
from tvm import s_tir, te, tirx
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods

from heron_asp.backends.cuda.program import Buffer, Kernel, Program, Use

TARGET = {
    "kind": "cuda",
    "arch": "sm_80",
    "thread_warp_size": 32,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 163 * 1024,
}
SHORT = {"float16": "f16", "float32": "f32", "int8": "s8", "int32": "i32"}
NUMPY = {"bfloat16": np.dtype(bfloat16)}


@dataclass(frozen=True)
class Gemm:
    """A matrix product of `a` (m x k) and `b` (k x n, or n x k if it is transposed), and how it is scheduled.

    Attributes:
        shape: m, n and k of the instruction; `mma` is 16x16x16 or, of int8, 16x16x32.
        tile: rows, columns and depth that a block of threads holds in shared memory.
        warps: along rows and columns.
        stages: 0 fetches and computes in turn, 1 fetches the next tile into registers, more copy asynchronously.
        vector: elements that a thread fetches at once.
        pad: elements that each row in shared memory is longer.
        mma: `mma.sync` and `ldmatrix` in place of wmma.
        missing: rows that `a` is shorter; zeros stand for them in shared memory.
    """

    m: int = 64
    n: int = 64
    k: int = 64
    operand: str = "float16"
    sum: str = "float32"
    shape: tuple[int, int, int] = (16, 16, 16)
    transposed: bool = True
    tile: tuple[int, int, int] = (32, 32, 32)
    warps: tuple[int, int] = (2, 1)
    stages: int = 0
    dynamic: bool = True
    vector: int = 8
    pad: int = 8
    pad_sum: int = 4
    mma: bool = False
    missing: int = 0

    @property
    def scope(self) -> str:
        return "shared.dyn" if self.dynamic else "shared"

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Inputs: integers so small that all sums are exact, in half precision too."""
        random = np.random.default_rng(seed)
        columns = (self.n, self.k) if self.transposed else (self.k, self.n)
        span = 2 if self.sum == "float16" else 8
        draw = [
            random.integers(-span, span, size, endpoint=True) for size in ((self.m - self.missing, self.k), columns)
        ]
        return {name: values.astype(numpy_type(self.operand)) for name, values in zip("ab", draw, strict=True)}

    def expected(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The exact product."""
        a, b = (arrays[name].astype(np.float64) for name in "ab")
        a = np.pad(a, ((0, self.missing), (0, 0)))
        return (a @ (b.T if self.transposed else b)).astype(numpy_type(self.sum))


def numpy_type(storage: str) -> np.dtype[Any]:
    return NUMPY.get(storage) or np.dtype(storage)


def gemm_program(gemm: Gemm) -> Program:
    """The product as a program of one kernel, `gemm_kernel`."""
    schedule = mma_gemm(gemm) if gemm.mma else wmma_gemm(gemm)
    return lower(schedule.mod, asynchronous=gemm.stages > 1, reuse=gemm.mma)


def definition(gemm: Gemm) -> tirx.PrimFunc:
    m, n, k = gemm.m, gemm.n, gemm.k
    a = te.placeholder((m - gemm.missing, k), gemm.operand, name="a")
    b = te.placeholder((n, k) if gemm.transposed else (k, n), gemm.operand, name="b")
    axis = te.reduce_axis((0, k), name="k")
    zero = tirx.const(0, gemm.operand)
    there = m - gemm.missing
    padded = te.compute((m, k), lambda i, j: tirx.if_then_else(i < there, a[i, j], zero), name="padded")
    left = padded if gemm.missing else a

    def wide(value: Any) -> Any:
        return value.astype(gemm.sum) if gemm.sum != gemm.operand else value

    def term(row: Any, column: Any) -> Any:
        right = b[column, axis] if gemm.transposed else b[axis, column]
        return te.sum(wide(left[row, axis]) * wide(right), axis=axis)

    c = te.compute((m, n), term, name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "gemm")


def frames() -> list[inspect.FrameInfo]:
    """`inspect.stack` without lines of source, which take 0.1 s in each function that TVM parses."""
    found, frame = [], inspect.currentframe()
    while frame := frame.f_back if frame else None:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
    return found


@cache
def tensor_intrinsics() -> Any:
    """TVM's module of them, which parses about 250 functions."""
    with patch("inspect.stack", frames):
        from tvm.s_tir.tensor_intrin import cuda

    return cuda


def intrinsic(name: str, make: Any, *arguments: Any) -> str:
    """Registers an intrinsic once; its name tells all arguments apart."""
    name = "_".join(["heron_test", name, *map(str, arguments)]).replace(".", "_")
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        with patch("inspect.stack", frames):
            s_tir.TensorIntrin.register(name, *make(*arguments))
    return name


def wmma_gemm(gemm: Gemm) -> s_tir.Schedule:
    """A schedule on fragments: operands wait in shared memory, sums leave through it."""
    intrinsics = tensor_intrinsics()
    schedule = s_tir.Schedule(definition(gemm))
    product = schedule.get_sblock("C")
    rows, columns, depth = gemm.shape
    (i, ii), (j, jj), (k, kk) = (
        schedule.split(loop, [None, size]) for loop, size in zip(schedule.get_loops(product), gemm.shape, strict=True)
    )
    schedule.reorder(i, j, k, ii, jj, kk)
    outer = schedule.blockize(ii)
    tile = [size // step for size, step in zip(gemm.tile, gemm.shape, strict=True)]
    i_block, i_warp, i_tile = schedule.split(i, [None, gemm.warps[0], tile[0] // gemm.warps[0]])
    j_block, j_warp, j_tile = schedule.split(j, [None, gemm.warps[1], tile[1] // gemm.warps[1]])
    k_block, k_tile = schedule.split(k, [None, tile[2]])
    schedule.reorder(i_block, j_block, i_warp, j_warp, k_block, k_tile, i_tile, j_tile)
    schedule.bind(i_block, "blockIdx.y")
    schedule.bind(j_block, "blockIdx.x")
    warp = schedule.fuse(i_warp, j_warp)
    schedule.bind(warp, "threadIdx.y")

    fetches = [fetch(schedule, gemm, outer, which, k_block) for which in (0, 1)]
    if gemm.missing:
        schedule.compute_inline(schedule.get_sblock("padded"))
    fragments = [schedule.cache_read(outer, which, f"wmma.matrix_{'ab'[which]}") for which in (0, 1)]
    for fragment in fragments:
        schedule.compute_at(fragment, k_tile)
    leave = schedule.cache_write(outer, 0, gemm.scope)
    store = schedule.cache_write(outer, 0, "wmma.accumulator")
    for block in (store, leave):
        schedule.reverse_compute_at(block, warp)
    spread(schedule, leave, [None, 32, 4])
    load_a = inner_tile(schedule, fragments[0], rows, depth)
    load_b = inner_tile(schedule, fragments[1], *((columns, depth) if gemm.transposed else (depth, columns)))
    store_tile = inner_tile(schedule, store, rows, columns)
    initial = schedule.get_child_blocks(schedule.decompose_reduction(outer, k_block))[0]

    kind = (*gemm.shape, gemm.operand)
    load = intrinsics.get_wmma_load_intrin
    schedule.tensorize(load_a, intrinsic("load", load, *kind, gemm.scope, False, False))
    schedule.tensorize(load_b, intrinsic("load", load, *kind, gemm.scope, True, gemm.transposed))
    schedule.tensorize(
        schedule.get_loops(initial)[-2], intrinsic("fill", intrinsics.get_wmma_fill_intrin, *gemm.shape, gemm.sum)
    )
    name = schedule.get(store).name_hint + "_o"
    schedule.tensorize(
        store_tile, intrinsic("store", intrinsics.get_wmma_store_intrin, *gemm.shape, gemm.sum, gemm.scope)
    )
    if gemm.pad_sum:  # an annotation from before would be lost: tensorize replaces the block
        schedule.storage_align(schedule.get_sblock(name), 0, -2, 16, gemm.pad_sum)
    schedule.tensorize(
        schedule.get_loops(product)[-3],
        intrinsic("sync", intrinsics.get_wmma_sync_intrin, *kind, gemm.sum, gemm.transposed),
    )
    pipeline(schedule, gemm, k_block, k_tile, fetches)
    return schedule


def fetch(schedule: s_tir.Schedule, gemm: Gemm, outer: Any, which: int, loop: Any) -> Any:
    block = schedule.cache_read(outer, which, gemm.scope)
    schedule.compute_at(block, loop)
    spread(schedule, block, [None, prod(gemm.warps), 32, gemm.vector])
    if gemm.pad:
        schedule.storage_align(block, 0, -2, 16, gemm.pad)
    return block


def spread(schedule: s_tir.Schedule, block: Any, factors: list[int | None]) -> None:
    """Shares a copy among the threads, of a warp or of all, with vectors of the last factor."""
    loops = schedule.split(schedule.fuse(*schedule.get_loops(block)[-2:]), factors)
    if factors[-1] == 1:
        schedule.unroll(loops[-1])
    else:
        schedule.vectorize(loops[-1])
    for loop, thread in zip(reversed(loops[1:-1]), "xy", strict=False):
        schedule.bind(loop, f"threadIdx.{thread}")


def inner_tile(schedule: s_tir.Schedule, block: Any, rows: int, columns: int) -> Any:
    i, j = schedule.get_loops(block)[-2:]
    (i, ii), (j, jj) = schedule.split(i, [None, rows]), schedule.split(j, [None, columns])
    schedule.reorder(i, j, ii, jj)
    return ii


def pipeline(schedule: s_tir.Schedule, gemm: Gemm, outer: Any, inner: Any, fetches: list[Any]) -> None:
    if gemm.stages == 1:
        for block in fetches:
            schedule.annotate(block, "tirx.manifest_shared_memory_local_stage", 1)
            schedule.annotate(block, "double_buffer_scope", 0)
        annotate(schedule, outer, stage=[0, 0, 0, 0, 0, 1, 1], order=[0, 3, 1, 4, 5, 2, 6])
        annotate(schedule, inner, stage=[0, 0, 1], order=[0, 1, 2])
    elif gemm.stages > 1:
        annotate(schedule, outer, stage=[0, 0, gemm.stages - 1], order=[0, 1, 2], async_stages=[0])


def annotate(schedule: s_tir.Schedule, loop: Any, **lists: list[int]) -> None:
    for name, values in lists.items():
        schedule.annotate(loop, f"software_pipeline_{name}", values)


def mma_gemm(gemm: Gemm) -> s_tir.Schedule:
    """TVM's own schedule on `mma.sync`: four warps, tiles of 32 x 32."""
    from tvm.testing.tir import mma_schedule

    intrinsics = tensor_intrinsics()
    square_map = intrinsics.shared_16x16_to_ldmatrix_32x8_layout
    short, total = SHORT[gemm.operand], SHORT[gemm.sum]
    depth = 32 if gemm.operand == "int8" else 16
    dynamic, transposed = "_dyn" if gemm.dynamic else "", "_trans" if gemm.transposed else ""
    a_map = intrinsics.shared_16x32_to_ldmatrix_32x16_layout if depth == 32 else square_map
    b_map = intrinsics.shared_32x16_to_ldmatrix_32x16_layout if depth == 32 and not gemm.transposed else a_map
    compute = f"mma_{short}{short}{total}".replace("s8", "i8")

    def tiled(mapping: Any, rows: int, columns: int) -> Any:
        return lambda i, j: (i // rows, j // columns, *mapping(i % rows, j % columns))

    load = f"mma_ldmatrix_{short}_".replace("s8", "i8")
    schedule = mma_schedule(
        definition(gemm),
        depth,
        gemm.operand,
        gemm.transposed,
        [1, gemm.m // 32, 2, 1, 1],
        [1, gemm.n // 32, 2, 1, 1],
        [gemm.k // (2 * depth), 2, 1],
        tiled(a_map, 16, depth),
        tiled(b_map, *((16, depth) if gemm.transposed else (depth, 16))),
        tiled(square_map, 16, 16),
        f"{load}a{dynamic}",
        f"{load}b{transposed}{dynamic}",
        f"{compute}{'_trans_b' if gemm.transposed else ''}",
        f"mma_fill_16x16_{total}",
        f"mma_store_16x16_{total}_global_",
        shared_scope=gemm.scope,
    )
    if gemm.stages > 1:
        outer = schedule.get_loops(schedule.get_sblock("C_o_update"))[3]
        annotate(schedule, outer, stage=[0, 0, gemm.stages - 1], order=[0, 1, 2], async_stages=[0])
    return schedule


def lower(module: tvm.IRModule, asynchronous: bool = False, reuse: bool = False) -> Program:
    """A module of one function as a program: each of its kernels with the launch that its host code makes."""
    target = Target(TARGET, host="llvm")
    function = next(iter(module.functions.values()))
    config = {"tirx.use_async_copy": asynchronous, "tirx.disable_storage_rewrite": not reuse}
    with tvm.transform.PassContext(opt_level=3, config=config):
        passes, _, finalize = tvm.tirx.get_default_tir_pipeline(target)
        _, devices = split_host_device_mods(passes(tirx.transform.BindTarget(target)(module)))
        ((_, device),) = devices.items()
        device = finalize()(device)
        source = codegen_build(device, target).inspect_source()
    buffers = [
        Buffer(str(one.name), str(one.dtype), tuple(int(extent) for extent in one.shape), Use.INPUT)
        for one in function.params
    ]
    buffers[-1] = replace(buffers[-1], use=Use.OUTPUT)
    kernels = tuple(launch(variable.name_hint, kernel) for variable, kernel in device.functions.items())
    return Program(source, kernels, tuple(buffers))


def launch(name: str, function: tirx.PrimFunc) -> Kernel:
    extents: dict[str, int] = {}
    shared = {"shared": 0, "shared.dyn": 0}

    def see(node: Any) -> None:
        if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
            extents[node.node.thread_tag] = int(node.value)
        if isinstance(node, tirx.AllocBuffer) and node.buffer.scope() in shared:
            bits = tvm.DataType(str(node.buffer.dtype))
            shared[node.buffer.scope()] += prod(map(int, node.buffer.shape)) * bits.bits * bits.lanes // 8

    tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, see), (tirx.AllocBuffer, see)], order="post")
    grid, block = (tuple(extents.get(f"{kind}Idx.{axis}", 1) for axis in "xyz") for kind in ("block", "thread"))
    arguments = tuple(parameter.name.removesuffix("_ptr") for parameter in function.params)
    return Kernel(name, grid, block, shared["shared.dyn"], shared["shared"], arguments)


@dataclass(frozen=True)
class Case:
    """A program with inputs and the exact outputs."""

    program: Program
    arrays: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


def gemm_case(gemm: Gemm) -> Case:
    arrays = gemm.arrays()
    return Case(gemm_program(gemm), arrays, {"C": gemm.expected(arrays)})


def row_sums_case(rows: int = 8, depth: int = 256, threads: int = 128) -> Case:
    """Sums of rows by a block of threads each: shuffles, and shared memory between warps."""
    a = te.placeholder((rows, depth), "float32", name="a")
    axis = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows,), lambda row: te.sum(a[row, axis], axis=axis), name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, c]).with_attr("global_symbol", "sums"))
    row, column = schedule.get_loops(schedule.get_sblock("C"))
    _, column = schedule.split(column, [None, threads])
    schedule.bind(row, "blockIdx.x")
    schedule.bind(column, "threadIdx.x")
    values = np.random.default_rng(0).integers(-8, 8, (rows, depth)).astype(np.float32)
    return Case(lower(schedule.mod), {"a": values}, {"C": values.sum(axis=1)})


_GEMMS = {
    "wmma": Gemm(),
    "wmma static": Gemm(dynamic=False),
    "wmma 32x8x16": Gemm(shape=(32, 8, 16), tile=(64, 32, 32)),
    "wmma 8x32x16": Gemm(shape=(8, 32, 16), tile=(32, 64, 32)),
    "wmma half": Gemm(sum="float16", pad_sum=8),
    "wmma bfloat": Gemm(operand="bfloat16"),
    "wmma int8": Gemm(operand="int8", sum="int32", vector=16, pad=16, tile=(32, 64, 32)),
    "wmma uint8": Gemm(operand="uint8", sum="int32", vector=16, pad=16, tile=(32, 64, 32), stages=2, k=128),
    "wmma straight": Gemm(transposed=False),
    "wmma padded": Gemm(missing=5, k=128, stages=3),
    "wmma registers": Gemm(stages=1),
    "wmma 2 stages": Gemm(stages=2, k=128),
    "wmma 3 stages": Gemm(stages=3, k=128),
    "wmma 4 stages": Gemm(stages=4, k=160),
    "mma": Gemm(mma=True, k=128),
    "mma half": Gemm(mma=True, k=128, sum="float16"),
    "mma straight": Gemm(mma=True, transposed=False),
    "mma int8": Gemm(mma=True, k=128, operand="int8", sum="int32", dynamic=False),
    "mma 3 stages": Gemm(mma=True, k=128, stages=3),
}
PROGRAMS = {name: partial(gemm_case, gemm) for name, gemm in _GEMMS.items()} | {"row sums": row_sums_case}

C_TYPES = {
    "float16": "half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
}


def by_hand(
    body: str,
    threads: int | tuple[int, int, int] = 32,
    blocks: int = 1,
    shared: int = 0,
    inputs: dict[str, tuple[str, tuple[int, ...]]] | None = None,
    output: tuple[str, tuple[int, ...]] = ("float32", (32,)),
) -> Program:
    """A program of one kernel `k` with a body that is given: pointers `a`, `b`, ... of inputs and `out`."""
    buffers = [Buffer(name, *what, Use.INPUT) for name, what in (inputs or {"a": ("float32", (32,))}).items()]
    buffers.append(Buffer("out", *output, Use.OUTPUT))
    parameters = ", ".join(f"{C_TYPES[one.storage]}* __restrict__ {one.name}" for one in buffers)
    source = f'#include <mma.h>\nextern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'
    block = (threads, 1, 1) if isinstance(threads, int) else threads
    kernel = Kernel("k", (blocks, 1, 1), block, shared, 0, tuple(one.name for one in buffers))
    return Program(source, (kernel,), tuple(buffers))
