"""Single instructions against NumPy: layouts of registers, conversions, exchange among lanes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from heron_asp.backends.cuda.emulator import Copies, Order, build, compile_program, dtype_of
from heron_asp.backends.cuda.program import Buffer, Kernel, Program, Use
from tests.cuda_kernels import by_hand

EVERY_ORDER = [(order, copies) for order in Order for copies in Copies]


def outputs(program: Program, **arrays: np.ndarray) -> np.ndarray:
    """What it computes, the same in every order."""
    emulated = compile_program(program)
    every = [emulated.run(arrays, *schedule)["out"] for schedule in EVERY_ORDER]
    for one in every[1:]:
        np.testing.assert_array_equal(one, every[0])
    return every[0]


def small(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    least = 0 if kind == "uint8" else -8
    return np.random.default_rng(seed).integers(least, 9, shape).astype(dtype_of(kind))


LOAD = """
extern __shared__ __align__(16) unsigned char s[];
for (int i = 0; i < 16; ++i) ((unsigned*)s)[threadIdx.x * 16 + i] = ((unsigned*)a)[threadIdx.x * 16 + i];
__syncwarp();
unsigned addr = __cvta_generic_to_shared((half*)s + threadIdx.x * 8);
unsigned r[4] = {};
"""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, transposed: bool) -> None:
    """Eight rows of eight halves a matrix; lane l gets two neighbours of row l / 4, or of column l / 4."""
    targets = ", ".join(f"%{i}" for i in range(count))
    results = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    trans = ".trans" if transposed else ""
    body = (
        f'{LOAD} asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 '
        f'{{{targets}}}, [%{count}];" : {results} : "r"(addr));'
        "for (int i = 0; i < 4; ++i) ((unsigned*)out)[threadIdx.x * 4 + i] = r[i];"
    )
    a = np.arange(1024, dtype=np.float16)
    program = by_hand(body, shared=2048, inputs={"a": ("float16", (1024,))}, output=("float16", (32, 4, 2)))
    matrices = a[: 64 * count].reshape(count, 8, 8)
    matrices = matrices.transpose(0, 2, 1) if transposed else matrices
    expected = np.zeros((32, 4, 2), np.float16)
    expected[:, :count] = matrices.reshape(count, 32, 2).transpose(1, 0, 2)
    np.testing.assert_array_equal(outputs(program, a=a), expected)


@pytest.mark.parametrize(
    ("kind", "other", "total", "depth"),
    [
        ("float16", "float16", "float32", 8),
        ("float16", "float16", "float32", 16),
        ("float16", "float16", "float16", 8),
        ("float16", "float16", "float16", 16),
        ("bfloat16", "bfloat16", "float32", 8),
        ("bfloat16", "bfloat16", "float32", 16),
        ("int8", "int8", "int32", 16),
        ("int8", "int8", "int32", 32),
        ("uint8", "int8", "int32", 32),
    ],
)
def test_mma_sync(kind: str, other: str, total: str, depth: int) -> None:
    """Each lane picks its registers from global memory by the layouts of the PTX manual."""
    each = 4 // dtype_of(kind).itemsize
    runs = depth // (4 * each)
    names = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "uint8": "u8", "int32": "s32"}
    halves = total == "float16"
    sums, constraint = (2, "r") if halves else (4, "r" if total == "int32" else "f")
    operands = [*["r"] * (2 * runs), *["r"] * runs, *[constraint] * sums]
    numbers = iter(range(sums + len(operands)))

    def group(size: int) -> str:
        return "{" + ", ".join(f"%{next(numbers)}" for _ in range(size)) + "}"

    shape = ", ".join(group(size) for size in (sums, 2 * runs, runs, sums))
    values = [
        f"((unsigned*)a)[((g + {i % 2 * 8}) * {depth} + {i // 2 * 4 * each}) / {each} + t]" for i in range(2 * runs)
    ]
    values += [f"((unsigned*)b)[(g * {depth} + {i * 4 * each}) / {each} + t]" for i in range(runs)]
    word = "unsigned" if halves else {"float32": "float", "int32": "int"}[total]
    places = [f"(({word}*)P)[(g * 8 + 2 * t) / {2 if halves else 1} + {i}]" for i in (0, 1)]
    places = [places[0], places[0].replace("(g *", "((g + 8) *")] if halves else places
    places += [] if halves else [place.replace("(g *", "((g + 8) *") for place in places]
    values += [place.replace("P", "c") for place in places]
    mnemonic = f"mma.sync.aligned.m16n8k{depth}.row.col.{names[total]}.{names[kind]}.{names[other]}.{names[total]}"
    results = ", ".join(f'"={constraint}"({place.replace("P", "out")})' for place in places)
    listed = ", ".join(f'"{one}"({value})' for one, value in zip(operands, values, strict=True))
    body = f'int g = threadIdx.x / 4, t = threadIdx.x % 4; asm volatile("{mnemonic} {shape};" : {results} : {listed});'
    inputs = {"a": (kind, (16, depth)), "b": (other, (8, depth)), "c": (total, (16, 8))}
    program = by_hand(body, inputs=inputs, output=(total, (16, 8)))
    arrays = {name: small(shape, kind, seed) for seed, (name, (kind, shape)) in enumerate(inputs.items())}
    a, b, c = (array.astype(np.float64) for array in arrays.values())
    np.testing.assert_array_equal(outputs(program, **arrays).astype(np.float64), a @ b.T + c)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("__shfl_sync(0xffffffff, a[threadIdx.x], 5)", lambda a: np.full(32, a[5])),
        ("__shfl_xor_sync(0xffffffff, a[threadIdx.x], 3)", lambda a: a[np.arange(32) ^ 3]),
        ("__shfl_down_sync(0xffffffff, a[threadIdx.x], 2)", lambda a: a[[*range(2, 32), 30, 31]]),
        ("__shfl_up_sync(0xffffffff, a[threadIdx.x], 2)", lambda a: a[[0, 1, *range(30)]]),
        ("__shfl_sync(0xffffffff, a[threadIdx.x], 1, 8)", lambda a: a[np.arange(32) // 8 * 8 + 1]),
        ("__shfl_sync(0xffu << threadIdx.x / 8 * 8, a[threadIdx.x], 1, 8)", lambda a: a[np.arange(32) // 8 * 8 + 1]),
    ],
)
def test_shuffles(call: str, expected: Any) -> None:
    a = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(outputs(by_hand(f"out[threadIdx.x] = {call};"), a=a), expected(a))


def test_conversions_of_half_and_bfloat_round_as_numpy_does() -> None:
    """All halves widened; floats near and between them narrowed, by the compiler's conversion and by ours."""
    with np.errstate(all="ignore"):
        halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
        floats = np.concatenate([halves, halves * np.float32(1.0004), halves * np.float32(0.99993), halves * 3])
        floats = np.concatenate([floats, np.float32([65519.9, 65520, 1e-8, 2**-25, 2**-24 * 1.5, -0.0, 1e30])])
    body = """
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
      out[4 * i] = ((half)a[i]).bits;
      out[4 * i + 1] = heron::float_to_half(a[i]);
      out[4 * i + 2] = ((__nv_bfloat16)a[i]).bits;
      out[4 * i + 3] = heron::half_to_float(((half)a[i]).bits) == (float)(half)a[i] || a[i] != a[i];
    }"""
    size = len(floats)
    program = by_hand(body.replace("N", str(size)), inputs={"a": ("float32", (size,))}, output=("int32", (size, 4)))
    out = compile_program(program).run({"a": floats})["out"]
    known = ~np.isnan(floats)
    with np.errstate(all="ignore"):
        half, bfloat = (floats.astype(kind).view(np.uint16)[known] for kind in (np.float16, bfloat16))
    np.testing.assert_array_equal(out[known, 0], half)
    np.testing.assert_array_equal(out[known, 1], half)
    np.testing.assert_array_equal(out[known, 2], bfloat)
    assert out[:, 3].all()


def test_kernels_run_one_after_the_other() -> None:
    """Two kernels in one source, with a buffer between them."""
    source = """
extern "C" __global__ void second(float* __restrict__ between, float* __restrict__ out);
extern "C" __global__ void first(float* __restrict__ a, float* __restrict__ between) {
  between[blockIdx.x * 8 + threadIdx.x] = a[blockIdx.x * 8 + threadIdx.x] + 1.0f;
}
extern "C" __global__ void __launch_bounds__(32) second(float* __restrict__ between, float* __restrict__ out) {
  out[threadIdx.x] = between[31 - threadIdx.x] * 2.0f;
}
"""
    kernels = (
        Kernel("first", (4, 1, 1), (8, 1, 1), 0, 0, ("a", "between")),
        Kernel("second", (1, 1, 1), (32, 1, 1), 0, 0, ("between", "out")),
    )
    uses = {"a": Use.INPUT, "between": Use.SCRATCH, "out": Use.OUTPUT}
    buffers = tuple(Buffer(name, "float32", (32,), use) for name, use in uses.items())
    a = np.arange(32, dtype=np.float32)
    program = Program(source, kernels, buffers)
    np.testing.assert_array_equal(outputs(program, a=a), (a[::-1] + 1) * 2)
    reversed_ = compile_program(replace(program, kernels=kernels[::-1])).run({"a": a})["out"]
    assert np.isnan(reversed_).all()  # what lies between is garbage before it is written


def test_indices_of_threads_and_blocks() -> None:
    body = (
        "int b = blockIdx.x, t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;"
        "out[b * 24 + t] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x * gridDim.x;"
    )
    out = outputs(
        by_hand(body, threads=(2, 3, 4), blocks=2, output=("float32", (2, 4, 3, 2))), a=small((32,), "float32")
    )
    b, z, y, x = np.indices((2, 4, 3, 2))
    np.testing.assert_array_equal(out, x + 10 * y + 100 * z + 2000 * b)


def test_assembly_under_a_predicate_and_dp4a() -> None:
    body = """
    extern __shared__ __align__(16) unsigned char s[];
    unsigned to = __cvta_generic_to_shared(s + threadIdx.x * 16);
    int there = threadIdx.x < 20, sum;
    asm volatile("{\\n .reg .pred p;\\n setp.ne.b32 p, %0, 0;\\n"
                 "@p cp.async.ca.shared.global.L2::128B [%1], [%2], 8, %3;\\n"
                 "@!p st.shared.v2.u32 [%1], {%4, %4};}"
                 :: "r"(there), "r"(to), "l"(a + threadIdx.x * 8), "r"(4), "r"(7));
    asm volatile("cp.async.wait_all;");
    asm volatile("dp4a.s32.u32 %0, %1, %2, %3;"
                 : "=r"(sum) : "r"(*(int*)(a + 4 * threadIdx.x)), "r"(0x01020304), "r"(5));
    out[3 * threadIdx.x] = ((int*)s)[threadIdx.x * 4];
    out[3 * threadIdx.x + 1] = ((int*)s)[threadIdx.x * 4 + 1];
    out[3 * threadIdx.x + 2] = sum;
    """
    a = small((256,), "int8")
    program = by_hand(body, shared=512, inputs={"a": ("int8", (256,))}, output=("int32", (32, 3)))
    out = outputs(program, a=a)
    words = a.view(np.int32).reshape(32, 2)
    np.testing.assert_array_equal(out[:20, 0], words[:20, 0])
    np.testing.assert_array_equal(out[:20, 1], 0)  # four of eight bytes come from the source, zeros fill the rest
    np.testing.assert_array_equal(out[20:, :2], 7)
    np.testing.assert_array_equal(out[:, 2], a.reshape(64, 4)[:32].astype(int) @ [4, 3, 2, 1] + 5)


def test_without_our_own_switch_of_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other processors use, ucontext, runs here too."""
    monkeypatch.setattr(build, "_FLAGS", (*build._FLAGS, "-DHERON_UCONTEXT"))
    emulated = compile_program(by_hand("out[threadIdx.x] = __shfl_xor_sync(~0u, a[threadIdx.x], 1);"), tmp_path)
    (runtime,) = tmp_path.glob("runtime_*/runtime.o")
    assert b"swapcontext" in subprocess.run(["nm", str(runtime)], capture_output=True, check=True).stdout
    a = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(emulated.run({"a": a})["out"], a[np.arange(32) ^ 1])
